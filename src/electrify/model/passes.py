"""What an objective runs: the list from which its cost is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn


@dataclass(frozen=True)
class Pass:
    """One run of a network in a forward pass of an objective."""

    network: nn.Module
    """An Encoder, LMHead, BinaryHead, or a plain nn.Linear."""
    share: float
    """Share of the tokens that it runs on: 1.0 = every token (pads, too), the mask rate = chosen
    positions."""
    trains: bool
    """False where no gradient is computed (a frozen network): no backward pass is counted."""
    again_above: int | None = None
    """Where a forward pass of the objective has more tokens than this, the network runs a second
    time for its gradient, so as not to keep its output; None = never."""


class Measured(Protocol):
    """An objective that says what it runs."""

    def passes(self) -> list[Pass]: ...
