"""Sums of the metrics between two log lines. A checkpoint holds them exactly, so the log of a
resumed run equals that of an uninterrupted one."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..objectives.metrics import summarise
from ..terms import Term, Terms
from .dist import sum_across


class MetricSums:
    """Terms added up since the last log line, on the device, in float64. A checkpoint holds them
    exactly, so the log of a resumed run equals that of an uninterrupted one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sums: Terms = {}

    def add(self, terms: Terms) -> None:
        for name, term in terms.items():
            total = term.sum.detach().double()
            count = term.count.detach().double()
            if name in self.sums:
                self.sums[name].sum.add_(total)
                self.sums[name].count.add_(count)
            else:
                self.sums[name] = Term(total.clone(), count.clone(), term.kind)

    def merge(self, other: MetricSums, *, unless: Tensor) -> None:
        """Adds the sums of `other`, or zeros if `unless` is 1, because the sums may then be NaN or
        infinite. unless: 0-dim, on the device."""
        bad = unless > 0
        self.add(
            {
                name: replace(
                    term, sum=term.sum.masked_fill(bad, 0.0), count=term.count.masked_fill(bad, 0.0)
                )
                for name, term in other.sums.items()
            }
        )

    def across(self) -> Terms:
        """The sums over all ranks (a copy)."""
        copies = {
            name: replace(term, sum=term.sum.clone(), count=term.count.clone())
            for name, term in sorted(self.sums.items())
        }
        sum_across([t for term in copies.values() for t in (term.sum, term.count)])
        return copies

    def means(self) -> dict[str, float]:
        return summarise(self.across())

    def save(self) -> dict[str, list[float]]:
        """JSON that `load` reads back to the bit (scalars only)."""
        return {name: [float(term.sum), float(term.count)] for name, term in self.across().items()}

    def load(self, saved: dict[str, list[float]], *, rank: int) -> None:
        """Loads global sums: rank 0 takes them, and the other ranks get zeros under the same names,
        because all ranks must add up the same list."""

        def number(x: float) -> Tensor:
            return torch.tensor(x if rank == 0 else 0.0, dtype=torch.float64, device=self.device)

        self.sums = {
            name: Term(number(total), number(count)) for name, (total, count) in saved.items()
        }
