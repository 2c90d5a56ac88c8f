"""Electric: an energy-based cloze model. Shape suffixes: T flat tokens, R rows, L row length, S
sequence number."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..corruption.choosing import Plan
from ..corruption.corruptor import Corrupted
from ..corruption.masking import Frequency
from ..corruption.two_tower import TwoTower
from ..model.costs import Pass
from ..model.encoder import Encoder
from ..model.heads import Head
from ..terms import Loss, Terms, term
from ..tokens import Tokens, of_sequence, per_sequence
from .objective import Graded, Objective, Parts, binary_ce, histogram, replaced_share


def noise_logit(energy_T: Tensor, log_q_T: Tensor, log_odds_T: Tensor) -> Tensor:
    """[T] log-odds of "drawn from the noise": E + log q + log(k / (n - k)), the data having exp(-E)
    (2012.08561 section 2.2)."""
    return energy_T.float() + log_q_T + log_odds_T


@dataclass(frozen=True, kw_only=True)
class Contrasted(Graded):
    """logits: those of "drawn from the noise"."""

    energy_T: Tensor
    """The energies, without gradient."""


class Electric(Objective):
    """The encoder gives every token an energy, low where it fits, by telling tokens of the text
    from draws of a cloze model q (2012.08561).

    k of the n words of a sequence are drawn from q, all at once, and count as noise even where the
    draw equals the original. At the optimum exp(-E) is the probability of a token given the others,
    normalised by itself: minus the sum of energies is a pseudo-log-likelihood in one pass.
    Relations: without q in the logit, and with equal draws labelled original, it is ELECTRA with a
    two-tower generator. With a Frequency as noise, q uses no context: this is noise contrast as it
    is used for language models (Mnih and Teh 2012).
    """

    corruptor: TwoTower | Frequency

    def __init__(self, corruptor: TwoTower | Frequency, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.corruptor = corruptor
        self.encoder = encoder
        self.head = head

    @classmethod
    def build(cls, parts: Parts) -> Electric:
        return cls(parts.corruptor, parts.encoder, parts.energy_head())

    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        return {"nce": plan.candidates_T.sum()}

    def passes(self) -> list[Pass]:
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), Pass(self.head, 1.0, True)]

    def forward(self, tokens: Tokens, plan: Plan) -> Contrasted:
        z = self.corruptor(tokens, plan)
        states_TD = self.states(z)
        energy_T = self.head(states_TD).float()
        logits_T = noise_logit(energy_T, self.corruptor.log_q_now(z), log_odds(z))
        losses = {"nce": Loss(binary_ce(logits_T, z.chosen_T), plan.candidates_T)}
        return Contrasted(
            z,
            self.corruptor.likelihood(z) | losses,
            states_TD,
            logits_T,
            energy_T=energy_T.detach(),
        )

    def watch(self, graded: Contrasted) -> Terms:
        z = graded.corrupted
        noise_T = z.chosen_T
        words_T = z.plan.candidates_T
        energy_T = graded.energy_T
        terms = self.corruptor.rates(z, graded.losses) | replaced_share(z)
        terms["energy_data"] = term(energy_T, words_T & ~noise_T)
        terms["energy_noise"] = term(energy_T, words_T & noise_T)
        if not self.training:
            terms["nce_detection"] = histogram(graded.logits, noise_T, words_T)
            terms["energy_ranking"] = histogram(energy_T, z.replaced_T, words_T, "ranking")
        return terms


def log_odds(z: Corrupted) -> Tensor:
    """[T] log(k / (n - k)) of each token's sequence. Where every word is noise (a sequence of one)
    n - k counts as 1."""
    k_RS = per_sequence(z.chosen_T, z.tokens)
    n_RS = per_sequence(z.plan.candidates_T, z.tokens)
    odds_RS = (k_RS.clamp(min=1) / (n_RS - k_RS).clamp(min=1)).log()
    return of_sequence(odds_RS, z.tokens).to(torch.float32)
