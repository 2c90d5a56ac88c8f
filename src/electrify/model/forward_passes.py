"""The networks that an objective runs in a forward pass: the list from which its cost is
counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn


@dataclass(frozen=True)
class Pass:
    """One run of a network in a forward pass of an objective."""

    network: nn.Module
    """An Encoder or the top of one, a Head, or a plain nn.Linear."""
    share: float
    """Share of the tokens on which it runs: 1.0 for every token (padding included), the mask rate
    for the chosen positions."""
    trains: bool
    """False if no gradient is computed (a frozen network): then no backward pass is counted."""
    again_above: int | None = None
    """If a forward pass of the objective has more tokens than this, the network runs a second time
    for its gradient instead of keeping its output. None means never."""


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
