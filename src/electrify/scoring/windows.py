"""A number for each token of texts of any length. Nothing here imports torch.

A text that is longer than a window is read in windows that overlap by a quarter. A token has the
number of the window that shows the most of both its sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import need
from ..finetuning.encoding import framed, in_batches, windows_of
from ..onnx_models import Array

After = Callable[[float], None]
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
    after: After = lambda n: None,
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
    by_text, end = [], 0
    for ids in texts:
        by_text.append(found[end : (end := end + len(ids))])
    odd = sum(not np.isfinite(one).all() for one in by_text)
    need(
        not odd,
        f"{model.name}: its scores of {odd:,} of {len(texts):,} texts are not finite numbers; the "
        "model is damaged or diverged",
    )
    return by_text


def _rows(tokenizer: Any, texts: Sequence[list[int]], size: int, *, singly: bool) -> Iterator[Row]:
    """size: tokens of a window without the special ones."""
    number = 0
    for ids in texts:
        for start, stop, first, last in windows_of(len(ids), size=size):
            window = framed(tokenizer, ids[start:stop])
            step = 1 if singly else max(1, last - first)
            for a in range(first, last, step):
                at = range(1 + a - start, 1 + a + step - start)
                yield Row(window, at, range(number + a, number + a + step))
        number += len(ids)
