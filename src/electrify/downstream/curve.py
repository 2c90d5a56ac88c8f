"""The evaluations of one fine-tuning run: the model's answers, and the scores over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..progress import Progress
from . import loop
from .metrics import better
from .names import short
from .problems.answering import Answering
from .problems.problem import Answers, HeldOut, Problem
from .problems.texts import Texts
from .tasks import TaskData


@dataclass(frozen=True)
class Point:
    """One evaluation: updates and epochs done, mean training loss since the last evaluation,
    validation metrics."""

    step: int
    epoch: float
    loss: float
    metrics: dict[str, float]
    selection: float | None = None
    """The first metric on the examples that were held out of the training set to choose by."""
    chosen: bool = False
    """Whether its weights were kept, in place of the last ones."""


class Best:
    """The best evaluation so far, and its weights."""

    def __init__(self, held: HeldOut, metric: str, patience: int | None) -> None:
        self.held = held
        self.metric = metric
        self.patience = patience
        self.score = math.nan
        self.number = 0
        """The number of the best evaluation, counted from 0."""
        self.worse = 0
        """Evaluations since the best one."""
        self._weights: dict[str, Tensor] = {}
        self._answers: Answers = {}

    def see(self, number: int, score: float, model: Any, answers: Answers) -> None:
        """Looks at an evaluation. answers: those to the validation examples. Where no score is a
        number so far, the latest is kept, as without a choice."""
        self.worse += 1
        if math.isnan(self.score) or better(self.metric, score, self.score):
            self.score = score
            self.number = number
            self.worse = 0
            named = model.named_parameters()
            self._weights = {name: x.detach().clone() for name, x in named if x.requires_grad}
            self._answers = answers

    @property
    def enough(self) -> bool:
        return self.patience is not None and self.worse >= self.patience

    def notes(self) -> tuple[str, ...]:
        """A note if nothing could be chosen."""
        if not math.isnan(self.score):
            return ()
        said = (
            f"no evaluation could be chosen, since {self.metric} is not a number on the held-out "
            "training examples (has each class one there?): the last evaluation counts; raise "
            "--selection-fraction"
        )
        return (said,)

    def restore(self, model: Any) -> Answers:
        """Gives the model its weights back, and returns its answers."""
        with torch.no_grad():
            for name, x in model.named_parameters():
                if name in self._weights:
                    x.copy_(self._weights[name])
        return self._answers


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
        self.best: Best | None = None
        self.notes: tuple[str, ...] = ()
        self._losses: list[Tensor] = []
        self._last: Answers = {}

    @property
    def chosen(self) -> Point:
        """The evaluation whose scores count."""
        return self.points[self.best.number if self.best else -1]

    def after(self, step: int, epoch: float, loss: Tensor) -> bool:
        """Evaluates if it is time, and returns whether the run goes on."""
        self._losses.append(loss)
        note = ""
        if step % self.every == 0 or step == self.total:
            mean = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self._last = self.answers(self.held)
            metrics = self.problem.score(self.held, self._last)
            point = Point(step, round(epoch, 4), mean, metrics, self._selected())
            self.points.append(point)
            name, value = next(iter(metrics.items()))
            note = f"{self.title}: loss {mean:.3f}, {name} {value:.3f}"
        goes_on = not (self.best and self.best.enough)
        if self.progress is not None:
            left = 0 if goes_on else self.total - step
            self.progress.advance(self.share * (1 + left), note)
        return goes_on

    def _selected(self) -> float | None:
        """The score by which an evaluation is chosen; the best one's weights are kept."""
        if self.best is None:
            return None
        held = self.best.held
        score = self.problem.score(held, self.answers(held))[self.best.metric]
        self.best.see(len(self.points), score, self.model, self._last)
        return score

    def finish(self) -> None:
        """After the last update, the model takes the weights that were kept."""
        if self.best is not None:
            self._last = self.best.restore(self.model)
            number = self.best.number
            self.points[number] = replace(self.points[number], chosen=True)
            self.notes += self.best.notes()

    def answers(self, held: HeldOut) -> Answers:
        found = loop.predict(self.model, held.data, bf16=self.bf16)
        if not all(bool(x.isfinite().all()) for x in found.values()):
            raise UserError(
                f"{self.title}: the model's outputs are no longer numbers; lower --learning-rate"
            )
        return found

    def _table(self) -> str:
        assert isinstance(self.problem, Texts)
        return self.problem.table(self.held, self._last)

    def threshold(self) -> float | None:
        """The score for "no answer" above which none is best on the validation examples; None
        where every question has an answer."""
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
            self.problem.files(self.held, self._last, short(task.name))
            if task.kind in ("tagging", "answering")
            else {f"{short(task.name)}-validation.csv": self._table()}
        )
        for name, examples in task.test:
            held = self.problem.held_out(examples)
            found |= self.problem.files(held, self.answers(held), name)
        return found
