"""A second view of a text: a contiguous part of every sequence, in place, after a [CLS] of its own
(COCO-LM, 2102.08473 section 3.2).

Rows, slots and kernels stay as they are: what is cut off counts as padding.

Shape suffixes: T flat tokens, R rows, L row length, S sequences of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..draws import Draws
from ..tokens import Tokens
from .by_sequence import of_sequence, per_sequence
from .plan import enough, positions


@dataclass(frozen=True)
class View:
    """The second view of a batch, and where the sequences of both begin."""

    tokens: Tokens
    """The crops."""
    first_S: Tensor
    """Flat position of the [CLS] of each sequence, ascending; filled up with 0 if the list has a
    fixed length."""
    crop_first_S: Tensor
    """The same for the crops."""
    valid_S: Tensor | None
    """Which entries are sequences; None where all are."""


def crop(tokens: Tokens, draws: Draws, *, share: float, fixed: bool = False) -> View:
    """Keeps round(share * tokens), at least one, of the tokens after [CLS] of each sequence; the
    place where the part begins is drawn, each with equal probability. The slot before it becomes
    [CLS], and positions count from there.

    fixed: pad the lists to one of a few lengths.
    """
    rows, length = tokens.num_rows, tokens.row_length
    size_RS = (per_sequence(torch.ones_like(tokens.seq_T), tokens) - 1).clamp(min=0)
    kept_RS = torch.minimum((size_RS.double() * share).round().long().clamp(min=1), size_RS)
    u_T = draws.uniform_T("crop") * tokens.first_T
    u_RS = u_T.new_zeros(size_RS.shape).scatter_add(
        1, tokens.seq_T.view(rows, length), u_T.view(rows, length)
    )
    start_RS = (u_RS * (size_RS - kept_RS + 1)).long()
    # Position of the new [CLS] in the sequence of each token, and of the last token that is kept.
    start_T = of_sequence(start_RS, tokens)
    last_T = start_T + of_sequence(kept_RS, tokens)
    within_T = tokens.real_T & (start_T <= tokens.pos_T) & (tokens.pos_T <= last_T)
    begins_T = within_T & (tokens.pos_T == start_T)
    cls_T = tokens.ids_T[tokens.start_T]
    crops = replace(
        tokens,
        ids_T=torch.where(begins_T, cls_T, tokens.ids_T),
        seq_T=torch.where(within_T, tokens.seq_T, 0),
        pos_T=torch.where(within_T, tokens.pos_T - start_T, 0),
        segment_T=torch.where(begins_T, 0, tokens.segment_T),
        runs=_runs(tokens, fixed=fixed),
    )
    fixed_for = 1 / length if fixed else None
    first_S, valid_S = positions(tokens.first_T, fixed_for=fixed_for)
    crop_first_S, _ = positions(begins_T, fixed_for=fixed_for)
    return View(crops, first_S, crop_first_S, valid_S)


def _runs(tokens: Tokens, *, fixed: bool) -> int | None:
    """A sequence leaves padding on both sides. fixed: one of a few numbers."""
    if tokens.runs is None:
        return None
    return enough(tokens.num_rows, 3 * tokens.runs) if fixed else 3 * tokens.runs
