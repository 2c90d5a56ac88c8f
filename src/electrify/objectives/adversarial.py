"""Adversarial training of the generator. Shape suffixes: T flat tokens, M chosen positions, V
vocabulary, D hidden width."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from ..corruption.choosing import Plan, count
from ..corruption.generator import Generator
from ..draws import Draws
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import Head, LinearHead
from ..terms import Loss, Terms, term
from ..tokens import Tokens
from .objective import Graded, Objective, Parts, binary_ce, entropy, histogram, replaced_share


def reward(logits_M: Tensor, replaced_M: Tensor) -> Tensor:
    """[M] the generator's reward for a sample: the discriminator's loss on it (2003.10555, appendix
    on adversarial training)."""
    return binary_ce(logits_M, replaced_M).detach()


def baseline(logits_M: Tensor) -> Tensor:
    """[M] -log sigmoid(w . h): the reward to expect, from what the generator saw."""
    return -F.logsigmoid(logits_M.float())


@dataclass(frozen=True, kw_only=True)
class Paid(Graded):
    """logits: of every token."""

    paid_M: Tensor


class Adversarial(Objective):
    """The generator learns to fool the discriminator, by REINFORCE with a learned baseline, in
    place of maximum likelihood (ELECTRA, 2003.10555 section 3.2 and the appendix on adversarial
    training). The published result: worse than maximum likelihood, with draws of low entropy.

    All tokens drawn count as one action, whose reward is a sum of one reward for each token; the
    discriminator is taken to judge a token by itself and by the tokens that were not replaced. The
    baseline's head is trained by cross-entropy towards exp(-reward); its input is not trained by
    it.
    """

    corruptor: Generator

    def __init__(
        self, corruptor: Generator, encoder: Encoder, head: Head, baseline_head: LinearHead
    ) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head
        self.baseline_head = baseline_head

    @classmethod
    def build(cls, parts: Parts, *, rtd_head: str) -> Adversarial:
        width = parts.corruptor.lm.encoder.shape.hidden_size
        return cls(parts.corruptor, parts.encoder, parts.rtd_head(rtd_head), LinearHead(width))

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        plan = super().plan(tokens, draws, fixed=fixed)
        counts = plan.counts.copy()
        counts.pop("generator")  # the generator is not trained with its likelihood
        return replace(plan, counts=counts)

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        chosen = count(plan)
        return {"rtd": tokens.real_T.sum(), "reinforce": chosen, "baseline": chosen}

    def passes(self) -> list[Pass]:
        share = self.corruptor.chooser.share
        own = [
            Pass(self.encoder, 1.0, True),
            Pass(self.head, 1.0, True),
            Pass(self.baseline_head, share, True),
        ]
        return [*self.corruptor.passes(), *own]

    def generator_parts(self) -> list[nn.Module]:
        """The baseline reads the generator's states."""
        return [self.corruptor, self.baseline_head]

    def forward(self, tokens: Tokens, plan: Plan) -> Paid:
        z = self.corruptor(tokens, plan)
        assert z.logits_MV is not None
        states_TD = self.states(z)
        logits_T = self.head(self.head.inputs(states_TD, z.tokens))
        paid_M = reward(logits_T[z.at_M], z.replaced_T[z.at_M])
        expected_M = self.baseline_head(z.states_MD.detach())
        log_p_M = z.logits_MV.float().log_softmax(-1).gather(-1, z.now_M[:, None]).squeeze(-1)
        advantage_M = paid_M - baseline(expected_M).detach()
        losses = {
            "rtd": Loss(binary_ce(logits_T, z.replaced_T), tokens.real_T),
            "reinforce": Loss(-advantage_M * log_p_M, z.valid_M),
            "baseline": Loss(binary_ce(expected_M, (-paid_M).exp()), z.valid_M),
        }
        return Paid(z, losses, states_TD, logits_T, paid_M=paid_M)

    def watch(self, graded: Paid) -> Terms:
        z = graded.corrupted
        likelihood = self.corruptor.likelihood(z)
        terms = {name: loss.term() for name, loss in likelihood.items()}
        terms |= self.corruptor.rates(z, likelihood)
        terms |= {"reward": term(graded.paid_M, z.valid_M)} | entropy(z) | replaced_share(z)
        if not self.training:
            terms["rtd_detection"] = histogram(graded.logits, z.replaced_T, z.tokens.real_T)
        return terms
