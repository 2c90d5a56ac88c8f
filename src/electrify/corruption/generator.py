"""The learned corruptor. Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D hidden
width, J candidates beside the original."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.costs import Pass
from ..model.heads import MaskedLM, Network
from ..model.likelihood import token_ce
from ..terms import Loss, Terms
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
