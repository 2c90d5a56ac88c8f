"""Tokens: the batch that every layer reads. It consists of rows of one fixed length, laid flat,
with several whole sequences in each row.

Shape suffixes: T = rows * row_length flat tokens, R rows, L row length, S sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

# It stands there because preparing a corpus needs it without torch.
from .values import SpecialIds as SpecialIds

V = TypeVar("V")

ALWAYS_JOINS = -1
ALWAYS_BEGINS = 0


@dataclass(frozen=True)
class WordEdges:
    """How tokens join into words, for each token of the vocabulary [V] (int8).

    first_V: ALWAYS_JOINS (the token before it, like `##ed`), ALWAYS_BEGINS (a word), or the class
    of its first character, 1, 2, ...: it then joins a token whose last character is of the same
    class. last_V: the class of its last character, or ALWAYS_JOINS: every token that does not begin
    a word joins it.
    """

    first_V: Tensor
    last_V: Tensor

    def joins(self, before_N: Tensor, ids_N: Tensor) -> Tensor:
        """True where ids_N continues the word of before_N."""
        first_N = self.first_V[ids_N]
        last_N = self.last_V[before_N]
        return (first_N == ALWAYS_JOINS) | (
            (first_N > 0) & ((first_N == last_N) | (last_N == ALWAYS_JOINS))
        )


@dataclass(frozen=True)
class Tokens:
    """A batch of rows laid flat. Every field has T = rows * row_length entries, row after row.

    ids_T: token ids (int64). seq_T: which sequence of its row a token belongs to, 1, 2, ... in
    order; 0 is padding (int64). pos_T: position inside its sequence, from 0 (int64). segment_T:
    token type, 0 or 1 (int64).
    """

    ids_T: Tensor
    seq_T: Tensor
    pos_T: Tensor
    segment_T: Tensor
    row_length: int
    runs: int | None = None
    """Upper bound for the number of runs of equal seq_T in all rows (sequences, and the padding at
    the end of a row), which kernels for packed rows need to know beforehand. None if it was not
    counted."""

    @property
    def num_rows(self) -> int:
        return self.ids_T.numel() // self.row_length

    @property
    def real_T(self) -> Tensor:
        """True where there is a token, False at padding."""
        return self.seq_T > 0

    @property
    def first_T(self) -> Tensor:
        """True at the first token of each sequence: [CLS]."""
        return (self.pos_T == 0) & self.real_T

    @property
    def start_T(self) -> Tensor:
        """[T] where the first token of a token's sequence is; for padding, its own place."""
        place_T = torch.arange(len(self.ids_T), device=self.ids_T.device)
        return torch.where(self.real_T, place_T - self.pos_T, place_T)

    @property
    def used_R(self) -> Tensor:
        """[R] True for rows that hold text. The last batch of a validation may have rows without
        any: a loss over rows counts only these."""
        return self.real_T.view(self.num_rows, self.row_length).any(-1)

    def rows(self, start: int, stop: int) -> Tokens:
        """Rows start..stop-1 as a batch of their own (a view)."""
        cut = slice(start * self.row_length, stop * self.row_length)
        return mapped(self, lambda t: t[cut])


def mapped(value: V, change: Callable[[Tensor], Any]) -> V:
    """The same dataclass, list, tuple or dict with each tensor in it changed."""

    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: one(v) for key, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(one, value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: one(getattr(value, f.name)) for f in fields(value)})
        return change(value) if isinstance(value, Tensor) else value

    return one(value)


def per_sequence(values_T: Tensor, tokens: Tokens) -> Tensor:
    """[R, L + 1]: the sum of integers over sequence s of each row (s = 0 is padding)."""
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    zero_RS = seq_RL.new_zeros(seq_RL.shape[0], tokens.row_length + 1)
    return zero_RS.scatter_add(1, seq_RL, values_T.view(seq_RL.shape).long())


def of_sequence(values_RS: Tensor, tokens: Tokens) -> Tensor:
    """[T] the value of the sequence that each token belongs to."""
    return values_RS.gather(1, tokens.seq_T.view(tokens.num_rows, -1)).flatten()
