"""The common interface of all problems: training rows, held-out rows, a model, scores, files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ..loop import Data

Answers = dict[str, Tensor]


@dataclass(frozen=True)
class HeldOut:
    """Examples to be answered: their rows, and for each row its place in the examples (in the form
    that the problem needs)."""

    examples: Sequence[Any]
    data: Data
    spots: Any = None


class Problem(Protocol):
    """A task made ready for one encoder. Answers are what the model keeps of its outputs, in the
    order of the rows."""

    def model(self, *, dropout: float, std: float | None) -> Any:
        """The encoder and a fresh head, drawn from torch's generator. std: see heads.linear."""
        ...

    def training(self, examples: Sequence[Any]) -> Data: ...

    def held_out(self, examples: Sequence[Any]) -> HeldOut: ...

    def score(self, held: HeldOut, answers: Answers) -> dict[str, float]:
        """The task's metrics, in its order."""
        ...

    def files(self, held: HeldOut, answers: Answers, name: str) -> dict[str, str]:
        """The answers as files, name to content, in the layout that the task's own tools read."""
        ...
