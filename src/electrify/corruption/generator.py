"""Learned corruptors: a generator, and several masked language models in one encoder, mixed by
weights that learn to fool the discriminator.

Shape suffixes: T flat tokens, M chosen positions, C a chunk of them, K read-outs, V vocabulary, D
hidden width, E embedding width, J candidates beside the original.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.costs import Pass
from ..model.embeddings import Words
from ..model.heads import CHUNK, MaskedLM, Network, token_ce
from ..terms import Loss, Terms, term
from ..tokens import Tokens
from .choosing import Plan, count
from .corruptor import Corrupted, Source, lm_rates, substitute
from .masking import MaskMix
from .sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Generated(Corrupted):
    """Corrupted text, with what a generator knows in addition."""

    mask_id: int
    states_MD: Tensor
    """The hidden states from which it computed `logits_MV`."""
    p_MV: Tensor | None
    """softmax(logits_MV) in float32, without gradient, where the samples were drawn from just that.
    """


class Generator(nn.Module):
    """Fills masked positions with samples from a masked LM (ELECTRA, 2003.10555 section 2).

    The corrupted text starts from the ORIGINAL, also where the mix kept or randomised a token, with
    the samples at the chosen positions. trains: False for a frozen generator, the second of two
    stages.
    """

    def __init__(
        self, mask: MaskMix, lm: MaskedLM, *, sampling: Sampling, trains: bool = True
    ) -> None:
        super().__init__()
        self.mask = mask
        self.lm = lm
        self.sampling = sampling
        self.trains = trains
        self.chooser = mask.chooser
        if not trains:
            lm.requires_grad_(False)

    @classmethod
    def build(cls, source: Source) -> Generator:
        networks = source.networks
        lm = MaskedLM(networks.encoder(), networks.masked_lm_head())
        return cls(MaskMix.build(source), lm, sampling=source.sampling, trains=source.trains)

    def train(self, mode: bool = True) -> Generator:
        """A frozen generator stays in evaluation mode, without dropout."""
        super().train(mode)
        self.lm.train(mode and self.trains)
        return self

    def passes(self) -> list[Pass]:
        lm = self.lm
        return lm.head.passes(lm.encoder, self.chooser.share, trains=self.trains)

    def networks(self) -> dict[str, Network]:
        return {"generator": Network(self.lm.encoder, self.lm.head)}

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        plan = self.mask.plan(tokens, draws, fixed=fixed)
        plan = replace(plan, uniform_M=draws.uniform_T("sample")[plan.at_M])
        return plan.counting(generator=count(plan)) if self.trains else plan

    def forward(self, tokens: Tokens, plan: Plan) -> Generated:
        assert plan.uniform_M is not None
        masked = self.mask(tokens, plan)
        with torch.set_grad_enabled(self.trains and torch.is_grad_enabled()):
            states_MD = self.lm.states(masked.tokens, plan.at_M)
            logits_MV = self.lm.head(states_MD)
        new_M, p_MV = self.sampling.draw(logits_MV, masked.was_M, plan.uniform_M, plan.progress)
        changed = substitute(tokens, plan, new_M)
        own = {"mask_id": self.mask.mask_id, "states_MD": states_MD, "p_MV": p_MV}
        return Generated(changed, tokens.ids_T, plan, logits_MV, **own)

    def candidates(self, z: Generated, uniform_MJ: Tensor) -> Tensor:
        """[M, 1 + J] the original tokens at the chosen positions, each with J others that the
        generator considers likely there, all of them different."""
        assert z.logits_MV is not None
        others_MJ = self.sampling.others(z.logits_MV, z.was_M, uniform_MJ, z.plan.progress)
        return torch.cat([z.was_M[:, None], others_MJ], 1)

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        """Cross-entropy at the chosen positions, nats."""
        assert isinstance(z, Generated)
        assert z.logits_MV is not None
        return {"generator": Loss(token_ce(z.logits_MV, z.was_M, z.p_MV), z.valid_M)}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        assert isinstance(z, Generated)
        assert z.logits_MV is not None
        own = losses["generator"]
        return lm_rates("generator", z.logits_MV, own, z, mask_id=z.mask_id, p_MV=z.p_MV)


# ------------------------------------------------------------------ several of them, mixed


TAU = 0.3  # the temperature of the softmax that replaces a draw in the backward pass


@dataclass(frozen=True, kw_only=True)
class Mixed(Generated):
    """logits_MV: of the mixture, without gradient. states_MD: of the deepest read-out."""

    depths: tuple[int, ...]
    ce_KM: Tensor
    """The cross-entropy of the original at each depth, nats, with gradient."""
    weight_MK: Tensor
    """The share of each read-out in the mixture."""


class Slope(nn.Module):
    """How the expected word vector moves with a factor on some logits: where p = softmax(u), the
    derivative of sum_v p_v E_v along l is sum_v p_v (l_v - mean of l under p) E_v.

    words: the table E of the discriminator, which gets no gradient here.
    """

    def __init__(self, words: Words) -> None:
        super().__init__()
        # In a tuple, so that the table is not a part of the corruptor, only read by it.
        self.words = (words,)

    def forward(self, p_CV: Tensor, logits_CV: Tensor) -> Tensor:
        table_VE = self.words[0].weight.detach()
        logits_CV = logits_CV.to(p_CV.dtype)
        mean_C1 = (p_CV * logits_CV).sum(-1, keepdim=True)
        return (p_CV * (logits_CV - mean_C1) @ table_VE).to(p_CV.dtype)

    def hardware_flops(self, row_length: int) -> float:
        return 2 * self.words[0].weight.numel()

    def paper_flops(self, row_length: int) -> float:
        return self.hardware_flops(row_length)


class Mixture(Generator):
    """An encoder with one LM head that is read out at several depths, the gradient cut between
    them, so that it is several generators, each on top of the one before; the draws are those of
    their mixture, which is trained to fool the discriminator (AMOS, 2204.03243).

    - loss: the sum of the cross-entropies of all read-outs (our choice: the criterion was not
      published)
    - mixture: with g_k the state that the head reads at depth k, w = softmax(v . g_1, v . g_2, ...)
      and logits = sum_k w_k logits_k, the logits_k without gradient
    - draws: from softmax(logits), by its cumulative sum and one uniform number a position. The
      public code takes the maximum after Gumbel noise, which has the same distribution.
    - backward, straight-through: the gradient at the vector of a drawn word in the
      discriminator goes on as if that vector were sum_v softmax(logits / tau)_v E_v, without the
      noise of the draw (which the public code has there, too) and without a gradient to the table
      E. Times -1, it reaches w, v and the states g_k, and nothing else: not the head, and of the
      encoder below each g_k its own segment.

    That gradient is linear in the gradient at the vector, so it needs K vectors for a position,
    which the forward pass computes (`Slope`): the price is one more product of [M, V] with [V, E]
    for each read-out, and K * M * E numbers kept, where a soft one-hot would keep M * V. The K
    language models keep K times the logits and probabilities [M, V] of one; the mixture adds two.

    Relations: with one read-out it is the Generator. `Adversarial` pays a generator for fooling, by
    REINFORCE and in place of likelihood.
    """

    def __init__(
        self,
        mask: MaskMix,
        lm: MaskedLM,
        *,
        depths: Sequence[int],
        words: Words,
        sampling: Sampling,
    ) -> None:
        super().__init__(mask, lm, sampling=sampling)
        assert depths[-1] == len(lm.encoder.blocks)
        self.depths = tuple(depths)
        self.vote = nn.Linear(lm.encoder.shape.hidden_size, 1, bias=False)
        self.slope = Slope(words)

    @classmethod
    def build(cls, source: Source, *, read_outs: tuple[int, ...] = ()) -> Mixture:
        networks = source.networks
        lm = MaskedLM(networks.encoder(), networks.lm_head())
        depths = read_outs or usual_depths(len(lm.encoder.blocks))
        words: Words = networks.discriminator.embeddings.words
        return cls(MaskMix.build(source), lm, depths=depths, words=words, sampling=source.sampling)

    def passes(self) -> list[Pass]:
        """The gradient of a segment's input, which the cut saves, is counted like all others."""
        share = self.chooser.share
        one = [
            Pass(self.lm.head, share, True),
            Pass(self.vote, share, True),
            Pass(self.slope, share, False),
        ]
        return [Pass(self.lm.encoder, 1.0, True), *(one * len(self.depths))]

    def states(self, tokens: Tokens, at_M: Tensor) -> list[Tensor]:
        """[M, D] at each depth."""
        encoder = self.lm.encoder
        x_TD = encoder.embed(tokens)
        context = encoder.context(tokens, x_TD)
        states = []
        start = 0
        for depth in self.depths:
            x_TD = encoder.through(x_TD, context, encoder.blocks[start:depth])
            states.append(encoder.read(x_TD)[at_M])
            x_TD = x_TD.detach()
            start = depth
        return states

    def forward(self, tokens: Tokens, plan: Plan) -> Mixed:
        assert plan.uniform_M is not None
        masked = self.mask(tokens, plan)
        states = self.states(masked.tokens, plan.at_M)
        logits = [self.lm.head(state_MD) for state_MD in states]
        vote_MK = torch.cat([self.vote(state_MD) for state_MD in states], -1)
        weight_MK = vote_MK.softmax(-1, dtype=torch.float32)
        mixed_MV = mix(logits, weight_MK)
        new_M, p_MV = self.sampling.draw(mixed_MV, masked.was_M, plan.uniform_M, plan.progress)
        rows_ME = None
        if torch.is_grad_enabled():
            rows_ME = against(weight_MK, self.slopes(logits, mixed_MV, masked), plan.valid_M)
        return Mixed(
            substitute(tokens, plan, new_M),
            tokens.ids_T,
            plan,
            mixed_MV,
            rows_ME,
            mask_id=self.mask.mask_id,
            states_MD=states[-1],
            p_MV=p_MV,
            depths=self.depths,
            ce_KM=torch.stack([token_ce(logits_MV, masked.was_M) for logits_MV in logits]),
            weight_MK=weight_MK,
        )

    @torch.no_grad()
    def slopes(self, logits: Sequence[Tensor], mixed_MV: Tensor, masked: Corrupted) -> Tensor:
        """[M, K, E] how the expected word vector moves with each weight of the mixture, in chunks
        whose probabilities do not outlive them."""
        parts = []
        for start in range(0, max(len(mixed_MV), 1), CHUNK):
            some = slice(start, start + CHUNK)
            p_CV, temperature = self.sampling.sharpened(
                mixed_MV[some], masked.was_M[some], masked.plan.progress, tau=TAU
            )
            slopes = [self.slope(p_CV, logits_MV.detach()[some]) for logits_MV in logits]
            parts.append(torch.stack(slopes, 1) / temperature)
        return torch.cat(parts)

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        """Cross-entropy at the chosen positions, nats, summed over the read-outs."""
        assert isinstance(z, Mixed)
        return {"generator": Loss(z.ce_KM.sum(0), z.valid_M)}

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        """The mixture, from which the draws are, as one language model; and for each depth at which
        it is read out the loss there and its share of the mixture."""
        assert isinstance(z, Mixed)
        assert z.logits_MV is not None
        loss = Loss(token_ce(z.logits_MV, z.was_M, z.p_MV), z.valid_M)
        terms = lm_rates("generator", z.logits_MV, loss, z, mask_id=z.mask_id, p_MV=z.p_MV)
        for k, depth in enumerate(z.depths):
            terms[f"generator_loss_depth_{depth}"] = term(z.ce_KM[k], z.valid_M)
            terms[f"mixture_share_depth_{depth}"] = term(z.weight_MK[:, k], z.valid_M)
        return terms


def usual_depths(blocks: int) -> tuple[int, ...]:
    """Half, three quarters and all of the blocks: 4, 6 and 8 of 8."""
    return tuple(sorted({math.ceil(blocks * part) for part in (1 / 2, 3 / 4, 1)}))


@torch.no_grad()
def mix(logits: Sequence[Tensor], weight_MK: Tensor) -> Tensor:
    """[M, V] the weighted sum of several logits, without gradient."""
    mixed_MV = weight_MK[:, :1] * logits[0]
    for k, logits_MV in enumerate(logits[1:], start=1):
        mixed_MV += weight_MK[:, k : k + 1] * logits_MV
    return mixed_MV


def against(weight_MK: Tensor, slope_MKE: Tensor, valid_M: Tensor | None) -> Tensor:
    """[M, E] zeros, whose gradient moves the weights AGAINST what the reader of these rows wants:
    its gradient along the slopes, times -1."""
    rows_ME = -(weight_MK[:, :, None] * slope_MKE).sum(1)
    if valid_M is not None:
        rows_ME = torch.where(valid_M[:, None], rows_ME, 0.0)
    return rows_ME - rows_ME.detach()
