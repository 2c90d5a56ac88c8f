"""The networks that an objective runs in a forward pass: the list from which its cost is
counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn


@dataclass(frozen=True)
class Share:
    """A share of the tokens that moves linearly during the run."""

    start: float
    end: float

    def at(self, progress: float) -> float:
        """progress: the share of the run that is done."""
        return self.start * (1 - progress) + self.end * progress


@dataclass(frozen=True)
class Pass:
    """One run of a network in a forward pass of an objective."""

    network: nn.Module
    """An Encoder or the top of one, a Head, or a plain nn.Linear."""
    share: float | Share
    """Share of the tokens on which it runs: 1.0 for every token (padding included), the mask rate
    for the chosen positions."""
    trains: bool
    """False if no gradient is computed (a frozen network): then no backward pass is counted."""
    again_above: int | None = None
    """If a forward pass of the objective has more tokens than this, the network runs a second time
    for its gradient instead of keeping its output. None means never."""

    def share_at(self, progress: float) -> float:
        """The share of the tokens when this share of the run is done."""
        return self.share.at(progress) if isinstance(self.share, Share) else self.share


@dataclass(frozen=True)
class Period:
    """A part of the run in which an objective asks for something of its own."""

    start: float
    """The share of the run that is done when it begins; it ends where the next one begins."""
    passes: list[Pass]


class Measured(Protocol):
    """An objective that can list the networks it runs."""

    def passes(self) -> list[Pass]: ...

    def periods(self) -> list[Period]: ...
