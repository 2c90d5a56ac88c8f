"""Sums between two log lines: what the loop carries besides parameters. Exact in a checkpoint, so a resumed log equals an unbroken one."""

from __future__ import annotations

import torch
from torch import Tensor

from ..objectives.terms import Term, Terms, summarise
from .dist import sum_across


class Window:
    """Terms added up since the last log line, on the device, in float64 where it has that."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.sums = device, {}

    sums: dict[str, tuple[Tensor, Tensor]]

    def add(self, terms: Terms) -> None:
        for name, term in terms.items():
            total, count = term.sum.detach().double(), term.count.detach().double()
            if name in self.sums:
                self.sums[name][0].add_(total)
                self.sums[name][1].add_(count)
            else:
                self.sums[name] = (total.clone(), count.clone())

    def merge(self, other: Window, *, unless: Tensor) -> None:
        """Adds the sums of `other`, or zeros where `unless` is 1: then they may be no numbers. unless: 0-dim, on the device."""
        self.add({name: Term(*(t.masked_fill(unless > 0, 0.0) for t in pair)) for name, pair in other.sums.items()})

    def across(self) -> Terms:
        """The sums over all ranks (a copy)."""
        copies = {name: (total.clone(), count.clone()) for name, (total, count) in sorted(self.sums.items())}
        sum_across([t for pair in copies.values() for t in pair])
        return {name: Term(*pair) for name, pair in copies.items()}

    def means(self) -> dict[str, float]:
        return summarise(self.across())

    def save(self) -> dict[str, list[float]]:
        """JSON that `load` reads back to the bit (scalars only)."""
        return {name: [float(term.sum), float(term.count)] for name, term in self.across().items()}

    def load(self, saved: dict[str, list[float]], *, rank: int) -> None:
        """The sums are global: rank 0 carries them on, the others have zeros of the same names, because all add up the same list."""
        mine = {k: pair if rank == 0 else [0.0, 0.0] for k, pair in saved.items()}
        self.sums = {k: tuple(torch.tensor(v, dtype=torch.float64, device=self.device) for v in pair) for k, pair in mine.items()}  # type: ignore[misc]
