"""What corruption hands on, and the corruptor without parameters: [MASK], the same, or a random token.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, N ordinary tokens, D hidden width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.passes import Pass
from ..tokens import SpecialIds, Tokens
from .choosing import Chooser


@dataclass(frozen=True)
class Corrupted:
    """Corrupted text and everything a grader may ask about it."""

    tokens: Tokens
    """The changed text."""
    original_T: Tensor
    at_M: Tensor
    """Chosen positions, flat, ascending; with `padded` filled up with 0."""
    shown_M: Tensor
    """What a language model was shown at the chosen positions: [MASK], the original, or a random token."""
    logits_MV: Tensor | None = None
    """What a learned corruptor believed; None for one without parameters."""
    p_MV: Tensor | None = None
    """softmax(logits_MV) in float32, without gradient, where the samples were drawn from just that."""
    states_MD: Tensor | None = None
    """The hidden states it believed that from."""
    log_q_T: Tensor | None = None
    """Of a cloze model: log q of the ORIGINAL at every position given the other tokens, with gradient."""
    words_T: Tensor | None = None
    """Of a cloze model: True for the tokens that it speaks of, those that may be chosen."""
    padded: bool = False
    """Whether at_M is longer than the number of chosen positions (see Draws.room)."""

    @property
    def there_M(self) -> Tensor | None:
        """Which entries of at_M are chosen positions; None where all are."""
        return self.at_M > 0 if self.padded else None

    @property
    def was_M(self) -> Tensor:
        return self.original_T[self.at_M]

    @property
    def now_M(self) -> Tensor:
        return self.tokens.ids_T[self.at_M]

    @property
    def chosen_T(self) -> Tensor:
        """True at the chosen positions."""
        chosen_T = torch.zeros_like(self.original_T, dtype=torch.bool).index_fill(0, self.at_M, True)
        return chosen_T & (torch.arange(len(chosen_T), device=chosen_T.device) > 0) if self.padded else chosen_T

    @property
    def replaced_T(self) -> Tensor:
        """True where a token differs from the original: a sample equal to the original counts as original."""
        return self.tokens.ids_T != self.original_T


def ordinary(special: SpecialIds, vocab_size: int) -> Tensor:
    """Ids that a random token may have: neither special nor [UNK]."""
    return torch.tensor(sorted(set(range(vocab_size)) - set(special.never_chosen) - {special.unk}))


class MaskMix(nn.Module):
    """A share of the chosen positions becomes [MASK], a share stays, a share becomes a random token: BERT's 80/10/10 is mix=(.8, .1, .1),
    ELECTRA's generator 85/15/0. Random tokens are never special. BERT, 1810.04805 section 3.1 and Table 8.

    As a corruptor it is the whole of `bert`; a Generator uses it to make its input. No parameters.
    """

    trains = False

    def __init__(self, chooser: Chooser, special: SpecialIds, vocab_size: int, *, mix: tuple[float, ...]) -> None:
        super().__init__()
        if len(mix) != 3 or min(mix) < 0 or not math.isclose(sum(mix), 1.0, abs_tol=1e-6):
            raise ValueError(f"mask_mix is three shares (mask, same, random) that sum to 1, not {mix}")
        self.chooser, self.mask_id, self.mix = chooser, special.mask, mix
        self.register_buffer("ordinary_N", ordinary(special, vocab_size), persistent=False)

    def passes(self) -> list[Pass]:
        return []

    def forward(self, tokens: Tokens, draws: Draws) -> Corrupted:
        assert isinstance(self.ordinary_N, Tensor)
        at_M = self.chooser(tokens, draws)
        u_M, was_M = draws.uniform_T("mix")[at_M], tokens.ids_T[at_M]
        random_M = self.ordinary_N[draws.bits_T("random_token")[at_M] % len(self.ordinary_N)]
        mask, same, _ = self.mix
        shown_M = torch.where(u_M < mask, self.mask_id, torch.where(u_M < mask + same, was_M, random_M))
        return substitute(tokens, at_M, shown_M, shown_M=shown_M, padded=draws.room is not None)


def substitute(tokens: Tokens, at_M: Tensor, new_M: Tensor, *, shown_M: Tensor, logits_MV: Tensor | None = None, padded: bool = False) -> Corrupted:
    """`tokens` with `new_M` written at `at_M`. padded: see Corrupted."""
    if padded:  # the fillers write the first token where it stands
        new_M = torch.where(at_M > 0, new_M, tokens.ids_T[0])
    changed = tokens.with_ids(tokens.ids_T.index_copy(0, at_M, new_M))
    return Corrupted(changed, tokens.ids_T, at_M, shown_M, logits_MV, padded=padded)
