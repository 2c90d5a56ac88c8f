"""Which positions are chosen, and what a parameter-free corruptor writes there.

Shape suffixes: R rows, L row length, T = R * L flat tokens, M chosen positions, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..tokens import SpecialIds, Tokens


@dataclass(frozen=True)
class Corrupted:
    """Corrupted text and everything a grader may ask about it."""

    tokens: Tokens
    """The changed text."""
    original_T: Tensor
    at_M: Tensor
    """Chosen positions, flat, ascending."""
    shown_M: Tensor
    """What a language model was shown at the chosen positions: [MASK], the original, or a random token."""
    logits_MV: Tensor | None = None
    """What a learned corruptor believed; None for one without parameters."""

    @property
    def was_M(self) -> Tensor:
        return self.original_T[self.at_M]

    @property
    def replaced_T(self) -> Tensor:
        """True where a token differs from the original: a sample equal to the original counts as original."""
        return self.tokens.ids_T != self.original_T


class Candidates(nn.Module):
    """True for every token that may be chosen: all but the special ones; [UNK] may."""

    def __init__(self, special: SpecialIds, vocab_size: int) -> None:
        super().__init__()
        allowed_V = torch.ones(vocab_size, dtype=torch.bool)
        allowed_V[list(special.never_chosen)] = False
        self.register_buffer("allowed_V", allowed_V, persistent=False)

    def forward(self, tokens: Tokens) -> Tensor:
        assert isinstance(self.allowed_V, Tensor)
        return self.allowed_V[tokens.ids_T] & tokens.real_T


def wanted(tokens: Tokens, candidate_T: Tensor, rate: float) -> Tensor:
    """[R, L + 1]: how many positions to choose in sequence s of each row: max(1, round(rate * tokens)), capped by its
    candidates; 0 for padding (s = 0)."""
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    zero_RS = seq_RL.new_zeros(seq_RL.shape[0], tokens.row_length + 1)
    length_RS = zero_RS.scatter_add(1, seq_RL, torch.ones_like(seq_RL))
    candidates_RS = zero_RS.scatter_add(1, seq_RL, candidate_T.view(seq_RL.shape).long())
    # In float64, half to even, as Python's round(); in float32 .15 * 190 lies above 28.5.
    want_RS = torch.minimum((length_RS.double() * rate).round().long().clamp(min=1), candidates_RS)
    want_RS[:, 0] = 0
    return want_RS


def choose(tokens: Tokens, candidate_T: Tensor, rate: float, draws: Draws) -> Tensor:
    """at_M: in every sequence `wanted` positions, without replacement, uniform over the candidates."""
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    # One integer key orders a row by sequence, candidates first, then at random: 15 bits, 1 bit, 47 bits.
    other_RL = (~candidate_T).view(seq_RL.shape).long()
    key_RL = (seq_RL << 48) | (other_RL << 47) | (draws.bits_T("choose").view(seq_RL.shape) >> 6)
    order_RL = key_RL.argsort(1)
    sorted_RL = seq_RL.gather(1, order_RL)
    first_RL = torch.searchsorted(sorted_RL, sorted_RL)  # where this token's sequence begins in the sorted row
    rank_RL = torch.arange(tokens.row_length, device=seq_RL.device) - first_RL
    take_RL = rank_RL < wanted(tokens, candidate_T, rate).gather(1, sorted_RL)
    chosen_RL = torch.zeros_like(take_RL).scatter(1, order_RL, take_RL)
    return chosen_RL.flatten().nonzero().squeeze(1)


class MaskMix(nn.Module):
    """A share of the chosen positions becomes [MASK], a share stays, a share becomes a random token: BERT's 80/10/10 is mix=(.8, .1, .1),
    ELECTRA's generator 85/15/0. Random tokens are never special. BERT, 1810.04805 section 3.1 and Table 8.

    As a corruptor it is the whole of `bert`; a Generator uses it to make its input. No parameters.
    """

    def __init__(self, special: SpecialIds, vocab_size: int, *, rate: float, mix: tuple[float, ...]) -> None:
        super().__init__()
        if len(mix) != 3 or min(mix) < 0 or not math.isclose(sum(mix), 1.0, abs_tol=1e-6):
            raise ValueError(f"mask_mix is three shares (mask, same, random) that sum to 1, not {mix}")
        self.mask_id, self.rate, self.mix = special.mask, rate, mix
        self.candidates = Candidates(special, vocab_size)
        ordinary_N = torch.tensor(sorted(set(range(vocab_size)) - set(special.never_chosen) - {special.unk}))
        self.register_buffer("ordinary_N", ordinary_N, persistent=False)

    def count(self, tokens: Tokens) -> Tensor:
        """How many positions will be chosen: depends on the tokens alone, so it is known before any forward pass."""
        return wanted(tokens, self.candidates(tokens), self.rate).sum()

    def forward(self, tokens: Tokens, draws: Draws) -> Corrupted:
        assert isinstance(self.ordinary_N, Tensor)
        at_M = choose(tokens, self.candidates(tokens), self.rate, draws)
        u_M, was_M = draws.uniform_T("mix")[at_M], tokens.ids_T[at_M]
        random_M = self.ordinary_N[draws.bits_T("random_token")[at_M] % len(self.ordinary_N)]
        mask, same, _ = self.mix
        shown_M = torch.where(u_M < mask, self.mask_id, torch.where(u_M < mask + same, was_M, random_M))
        return substitute(tokens, at_M, shown_M, shown_M=shown_M)


def substitute(tokens: Tokens, at_M: Tensor, new_M: Tensor, *, shown_M: Tensor, logits_MV: Tensor | None = None) -> Corrupted:
    """`tokens` with `new_M` written at `at_M`."""
    return Corrupted(tokens.with_ids(tokens.ids_T.index_copy(0, at_M, new_M)), tokens.ids_T, at_M, shown_M, logits_MV)
