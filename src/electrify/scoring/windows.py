"""A number for each token of texts of any length. Nothing here imports torch.

A text that is longer than a window is read in windows that overlap by a quarter. A token has the
number of the window that shows the most of both its sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import need
from ..onnx_models import Array

T = TypeVar("T")
OVERLAP = 4
"""Windows share this part of their tokens with the next one: a quarter."""
AfterTexts = Callable[[float], None]
"""Called with how many more texts, or parts of texts, are done."""


class Row(NamedTuple):
    """What goes through the model once."""

    ids: list[int]
    """A window with its special tokens."""
    at: range
    """Positions in `ids` whose numbers count."""
    out: range
    """The numbers of these tokens, counted over all texts."""


def places(batch: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Row and position of each token whose number counts."""
    return [b for b, row in enumerate(batch) for _ in row.at], [p for row in batch for p in row.at]


def of_tokens(
    model: Any,
    texts: Sequence[list[int]],
    numbers: Callable[[list[Row]], Array],
    *,
    length: int,
    singly: bool = False,
    after: AfterTexts = lambda n: None,
    **most: int,
) -> list[Array]:
    """The numbers of the tokens of each text.

    Args:
        model: With name and tokenizer.
        texts: Token ids, without special ones.
        numbers: A batch -> the numbers of its `places`.
        length: Tokens of a window, special ones included.
        singly: A row for each token, and not for each window.
        most: Of a batch, see `in_batches`.

    Raises:
        UserError: If numbers are not finite.
    """
    rows = list(_rows(model.tokenizer, texts, length - 2, singly=singly))
    found = np.zeros(sum(map(len, texts)))
    for batch in in_batches(rows, lambda row: len(row.ids), **most):
        found[[place for row in batch for place in row.out]] = numbers(batch)
        after(len(texts) * len(batch) / len(rows))
    need(
        bool(np.isfinite(found).all()),
        f"{model.name}: its scores are not finite numbers: the model is damaged or diverged",
    )
    return np.split(found, np.cumsum(list(map(len, texts)), dtype=int)[:-1])[: len(texts)]


def _rows(tokenizer: Any, texts: Sequence[list[int]], size: int, *, singly: bool) -> Iterator[Row]:
    """size: tokens of a window without the special ones."""
    number = 0
    for ids in texts:
        for start, stop, first, last in windows_of(len(ids), size=size):
            window = [tokenizer.cls_token_id, *ids[start:stop], tokenizer.sep_token_id]
            step = 1 if singly else max(1, last - first)
            for a in range(first, last, step):
                at = range(1 + a - start, 1 + a + step - start)
                yield Row(window, at, range(number + a, number + a + step))
        number += len(ids)


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
