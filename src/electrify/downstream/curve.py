"""The evaluations of one fine-tuning run: the model's answers, and the scores over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..progress import Progress
from . import loop
from .problems.answering import Answering
from .problems.problem import Answers, HeldOut, Problem
from .tasks import TaskData


@dataclass(frozen=True)
class Point:
    """One evaluation: updates and epochs done, mean training loss since the last evaluation,
    validation metrics."""

    step: int
    epoch: float
    loss: float
    metrics: dict[str, float]


class Curve:
    """Evaluates when an evaluation is due, and keeps the results."""

    def __init__(
        self,
        model: Any,
        problem: Problem,
        held: HeldOut,
        *,
        bf16: bool,
        progress: Progress | None,
        title: str,
        total: int,
    ) -> None:
        self.model = model
        self.problem = problem
        self.held = held
        self.bf16 = bf16
        self.progress = progress
        self.title = title
        self.every = 1
        self.points = list[Point]()
        self.total = total
        self.share = 1.0
        self._losses: list[Tensor] = []
        self._last: Answers = {}

    def after(self, step: int, epoch: float, loss: Tensor) -> None:
        self._losses.append(loss)
        note = ""
        if step % self.every == 0 or step == self.total:
            mean = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self._last = self.answers(self.held)
            self.points.append(
                Point(step, round(epoch, 4), mean, self.problem.score(self.held, self._last))
            )
            name, value = next(iter(self.points[-1].metrics.items()))
            note = f"{self.title}: loss {mean:.3f}, {name} {value:.3f}"
        if self.progress is not None:
            self.progress.advance(self.share, note)

    def answers(self, held: HeldOut) -> Answers:
        found = loop.predict(self.model, held.data, bf16=self.bf16)
        if not all(bool(x.isfinite().all()) for x in found.values()):
            raise UserError(
                f"{self.title}: the model's outputs are not numbers any more; lower --learning-rate"
            )
        return found

    def threshold(self) -> float | None:
        """Of question answering with unanswerable questions: the score for "no answer" above which
        none is best on the validation examples."""
        if not isinstance(self.problem, Answering):
            return None
        return self.problem.threshold(self.held, self._last)

    def further(self, task: TaskData) -> dict[str, float]:
        """The scores of further labelled sets; their names are appended to those of the metrics."""
        sets = ((name, self.problem.held_out(examples)) for name, examples in task.also)
        return {
            f"{metric}_{name}": value
            for name, held in sets
            for metric, value in self.problem.score(held, self.answers(held)).items()
        }

    def files(self, task: TaskData) -> dict[str, str]:
        """The answers to test sets and, for tagging and question answering, to the validation
        examples."""
        found = (
            self.problem.files(self.held, self._last, task.name)
            if task.kind in ("tagging", "answering")
            else {}
        )
        for name, examples in task.test:
            held = self.problem.held_out(examples)
            found |= self.problem.files(held, self.answers(held), name)
        return found
