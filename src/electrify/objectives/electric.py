"""Electric: an energy-based cloze model. Shape suffixes: T flat tokens, M chosen positions, R rows, L row length, S sequence number."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..corruption.choosing import per_sequence
from ..corruption.frequency import Frequency
from ..corruption.masking import Corrupted
from ..corruption.two_tower import TwoTower
from ..draws import Draws
from ..model.encoder import Encoder
from ..model.heads import LinearHead
from ..model.passes import Pass
from ..tokens import Tokens
from .terms import Terms, binary_ce, generator_terms, histogram, term


def noise_logit(energy_T: Tensor, log_q_T: Tensor, log_odds_T: Tensor) -> Tensor:
    """[T] log-odds of "drawn from the noise": E + log q + log(k / (n - k)), the data having exp(-E) (2012.08561 section 2.2)."""
    return energy_T.float() + log_q_T + log_odds_T


class Electric(nn.Module):
    """The encoder gives every token an energy, low where it fits, by telling tokens of the text from draws of a cloze model q (2012.08561).

    Of the n words of a sequence k are drawn from q, all at once, and count as noise also where the draw equals the original. At the optimum
    exp(-E) is the probability of a token given the others, normalised by itself: minus the sum of energies is a pseudo-log-likelihood in one pass.
    Relations: without q in the logit, and with equal draws labelled original, it is ELECTRA with a two-tower generator. With a Frequency as noise
    q asks no context: noise contrast as it is used for language models (Mnih and Teh 2012).
    """

    def __init__(self, corruptor: TwoTower | Frequency, encoder: Encoder, head: LinearHead) -> None:
        super().__init__()
        self.corruptor, self.encoder, self.head = corruptor, encoder, head

    def counts(self, tokens: Tokens, draws: Draws) -> dict[str, Tensor]:
        words = self.corruptor.chooser.candidates(tokens).sum()
        return {"generator": words, "nce": words} if self.corruptor.trains else {"nce": words}

    def passes(self) -> list[Pass]:
        return [*self.corruptor.passes(), Pass(self.encoder, 1.0, True), Pass(self.head, 1.0, True)]

    def forward(self, tokens: Tokens, draws: Draws) -> Terms:
        z = self.corruptor(tokens, draws)
        energy_T, noise_T, words_T = self.head(self.encoder(z.tokens)).float(), z.chosen_T, self.corruptor.chooser.candidates(tokens)
        logits_T = noise_logit(energy_T, self.corruptor.log_q_now(z), log_odds(z, noise_T, words_T))
        terms = generator_terms(z, self.corruptor.mask_id) | {
            "nce": term(binary_ce(logits_T, noise_T), words_T),
            "energy_data": term(energy_T.detach(), words_T & ~noise_T),
            "energy_noise": term(energy_T.detach(), words_T & noise_T),
            "replaced": term(z.replaced_T.float(), tokens.real_T),
        }
        if not self.training:
            terms["nce_detection"] = histogram(logits_T, noise_T, words_T)
            terms["energy_ranking"] = histogram(energy_T, z.replaced_T, words_T)
        return terms


def log_odds(z: Corrupted, noise_T: Tensor, words_T: Tensor) -> Tensor:
    """[T] log(k / (n - k)) of each token's sequence. Where every word is noise (a sequence of one) n - k counts as 1."""
    k_RS, n_RS = per_sequence(noise_T, z.tokens), per_sequence(words_T, z.tokens)
    odds_RS = (k_RS.clamp(min=1) / (n_RS - k_RS).clamp(min=1)).log()
    return odds_RS.gather(1, z.tokens.seq_T.view(-1, z.tokens.row_length)).flatten().to(torch.float32)
