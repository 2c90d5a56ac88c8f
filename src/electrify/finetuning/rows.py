"""Rows: token ids padded to one matrix, so that a batch is one indexing operation.

Shape suffixes: N rows, L tokens, B rows of a batch, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NO_WORD = -100
"""The target of a token with which no word begins, as in the library."""


@dataclass(frozen=True)
class Batch:
    """Padded rows. places_BL: tokens that count for a word, or at which an answer may begin or end.
    targets: class numbers [B], values [B], classes that apply [B, C], tags [B, L] where a word
    begins and NO_WORD elsewhere, or start, end and whether there is no answer [B, 3]."""

    inputs: dict[str, Tensor]
    lengths_B: Tensor
    places_BL: Tensor | None
    targets: Tensor


@dataclass(frozen=True)
class Rows:
    """Padded sequences with their targets (see Batch). lengths_N stays on the CPU, where batches
    are planned. spots: where the words or windows of the examples are, see the kind of problem."""

    ids_NL: Tensor
    segments_NL: Tensor | None
    lengths_N: Tensor
    targets: Tensor
    places_NL: Tensor | None = None
    spots: Any = None

    @property
    def device(self) -> torch.device:
        return self.ids_NL.device

    def inputs(self, index_B: Tensor) -> dict[str, Tensor]:
        """The inputs of an encoder, padded to the longest row of the batch."""
        longest = int(self.lengths_N[index_B].max())
        lengths_B = self.lengths_N[index_B].to(self.device, non_blocking=True)
        at_B = index_B.to(self.device, non_blocking=True)
        mask_BL = (torch.arange(longest, device=self.device) < lengths_B[:, None]).long()
        found = {"input_ids": self.ids_NL[at_B, :longest].long(), "attention_mask": mask_BL}
        if self.segments_NL is not None:
            found["token_type_ids"] = self.segments_NL[at_B, :longest].long()
        return found

    def batch(self, index_B: Tensor) -> Batch:
        longest = int(self.lengths_N[index_B].max())
        at_B = index_B.to(self.device, non_blocking=True)
        return Batch(
            self.inputs(index_B),
            self.lengths_N[index_B].to(self.device, non_blocking=True),
            None if self.places_NL is None else self.places_NL[at_B, :longest],
            self.targets[at_B],
        )


def padded(rows: Sequence[Sequence[int]], pad: int, dtype: torch.dtype) -> Tensor:
    """[N, longest], filled up with `pad` on the right."""
    lengths_N = torch.tensor([len(row) for row in rows])
    longest = int(lengths_N.max())
    flat = torch.tensor([i for row in rows for i in row], dtype=dtype)
    return torch.full((len(rows), longest), pad, dtype=dtype).masked_scatter_(
        torch.arange(longest) < lengths_N[:, None], flat
    )


def rows_of(
    ids: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None,
    targets: Tensor,
    *,
    pad: int,
    device: torch.device,
    places: Sequence[Sequence[int]] | None = None,
    spots: Any = None,
) -> Rows:
    """Rows on a device. places: for each row, 1 for tokens that the head may look at, else 0."""
    return Rows(
        padded(ids, pad, torch.int32).to(device),
        None if segments is None else padded(segments, 0, torch.uint8).to(device),
        torch.tensor([len(row) for row in ids]),
        targets.to(device),
        None if places is None else padded(places, 0, torch.uint8).bool().to(device),
        spots,
    )
