"""Adversarial training of the generator. Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D hidden width."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..corruption.generator import Generator
from ..draws import Draws
from ..model.encoder import Encoder
from ..model.heads import BinaryHead, LinearHead
from ..model.passes import Pass
from ..tokens import Tokens
from .terms import Term, Terms, binary_ce, entropy_term, generator_terms, histogram, term


def reward(logits_M: Tensor, replaced_M: Tensor) -> Tensor:
    """[M] what the generator is paid for a sample: the discriminator's loss on it (2003.10555, appendix on adversarial training)."""
    return binary_ce(logits_M, replaced_M).detach()


def baseline(logits_M: Tensor) -> Tensor:
    """[M] -log sigmoid(w . h): the reward to expect, from what the generator saw."""
    return -F.logsigmoid(logits_M.float())


class Adversarial(nn.Module):
    """The generator learns to fool the discriminator, by REINFORCE with a learned baseline, in place of maximum likelihood (ELECTRA, 2003.10555
    section 3.2 and the appendix on adversarial training). The published result: worse than maximum likelihood, with draws of low entropy.

    All tokens drawn count as one action whose reward falls apart into one a token; the discriminator is taken to judge a token by itself and by the
    tokens that were not replaced. The baseline's head is trained by cross-entropy towards exp(-reward), its input is not.
    """

    def __init__(self, corruptor: Generator, encoder: Encoder, head: BinaryHead, baseline_head: LinearHead) -> None:
        super().__init__()
        self.corruptor, self.encoder, self.head, self.baseline_head = corruptor, encoder, head, baseline_head

    def counts(self, tokens: Tokens, draws: Draws) -> dict[str, Tensor]:
        chosen = self.corruptor.count(tokens, draws)
        return {"rtd": tokens.real_T.sum(), "reinforce": chosen, "baseline": chosen}

    def passes(self) -> list[Pass]:
        own = [Pass(self.encoder, 1.0, True), Pass(self.head, 1.0, True), Pass(self.baseline_head, self.corruptor.chooser.share, True)]
        return [*self.corruptor.passes(), *own]

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        assert z.logits_MV is not None
        assert z.states_MD is not None
        real_T, replaced_T = tokens.real_T, z.replaced_T
        logits_T = self.head(self.encoder(z.tokens))
        paid_M = reward(logits_T[z.at_M], replaced_T[z.at_M])
        expected_M = self.baseline_head(z.states_MD.detach())
        log_p_M = z.logits_MV.float().log_softmax(-1).gather(-1, z.now_M[:, None]).squeeze(-1)
        advantage_M = paid_M - baseline(expected_M).detach()
        own = generator_terms(z, self.corruptor.mask_id)  # not what it is trained on here: logged
        terms = {name: Term(t.sum.detach(), t.count) for name, t in own.items()} | {
            "rtd": term(binary_ce(logits_T, replaced_T), real_T),
            "reinforce": term(-advantage_M * log_p_M, z.there_M),
            "baseline": term(F.binary_cross_entropy_with_logits(expected_M.float(), (-paid_M).exp(), reduction="none"), z.there_M),
            "reward": term(paid_M, z.there_M),
            "generator_entropy": entropy_term(z.logits_MV, z.there_M),
            "replaced": term(replaced_T.float(), real_T),
        }
        if not self.training:
            terms["rtd_detection"] = histogram(logits_T, replaced_T, real_T)
        return terms
