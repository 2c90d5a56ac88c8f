"""Long texts in windows that overlap, and windows in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")
OVERLAP = 4
"""Windows share this part of their tokens with the next one: a quarter."""


def framed(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """A window with its special tokens."""
    return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]


def windows_of(n: int, *, size: int) -> list[tuple[int, int, int, int]]:
    """Windows that cover n tokens: start and stop of each, and the first and the end of the tokens
    that are scored in it. Neighbours share a quarter, of which each scores the half that is farther
    from its edge."""
    if n <= size:
        return [(0, n, 0, n)]
    step = max(1, size - size // OVERLAP)
    starts = [*range(0, n - size, step), n - size]
    middles = [(a + size + b + 1) // 2 for a, b in pairwise(starts)]
    return [
        (start, start + size, first, last)
        for start, first, last in zip(starts, [0, *middles], [*middles, n], strict=True)
    ]


def in_batches(
    rows: Iterable[T], length: Callable[[T], int], *, slots: int, most: int = 1 << 30
) -> Iterator[list[T]]:
    """The rows, the shortest first, in batches of at most `most` rows and `slots` slots, or of a
    single row."""
    ordered = sorted(rows, key=length)
    at = 0
    while at < len(ordered):
        guess = min(most, max(1, slots // length(ordered[at])))
        last = ordered[at : at + guess][-1]  # the longest of these, and of any fewer
        size = min(most, max(1, slots // length(last)))
        yield ordered[at : at + size]
        at += size
