"""The tasks: rows of data. A task to add is a row here, and a reader only where its files look different."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import UserError, nearest

Kind = Literal["classification", "regression"]


@dataclass(frozen=True)
class Task:
    """One row: where the examples stand, what they are, how they are scored.

    columns: of the texts, by header name, or by 0-based number where the file has no header. labels: the classes as written in the file; the
    position is the class number; empty for regression. metrics: names in metrics.METRICS, the first is the one that is compared. published:
    development scores times 100 of that first metric, by model (docs: README of google-research/electra; BERT-Base from 2012.08561, table 4).
    """

    name: str
    kind: Kind
    folder: str
    train: str
    validation: tuple[str, ...]
    text: str | int
    pair: str | int | None
    label: str | int
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: float
    symmetric: bool = False
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """A text, perhaps a second one, and a class number or a value."""

    text: str
    pair: str | None
    label: float


@dataclass(frozen=True)
class TaskData:
    """A task with its examples: what a fine-tuning run takes."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: float
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    symmetric: bool = False

    def __post_init__(self) -> None:
        for split in ("train", "validation"):
            if not getattr(self, split):
                raise UserError(f"task {self.name!r} has no {split} examples")
        if self.kind == "classification" and len(self.labels) < 2:
            raise UserError(
                f"task {self.name!r} has only the class {self.labels[0]!r}: nothing to learn" if self.labels else f"task {self.name!r} has no classes"
            )

    @property
    def num_outputs(self) -> int:
        return len(self.labels) if self.kind == "classification" else 1


_DEV = ("dev.tsv",)
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "cola", "classification", "CoLA", "train.tsv", _DEV, 3, None, 1, ("0", "1"), ("matthews", "accuracy"), 3,
            published={"ELECTRA-Small++": 57.0, "ELECTRA-Base++": 67.7, "ELECTRA-Large": 69.1, "BERT-Base": 58.4},
        ),
        Task(
            "sst2", "classification", "SST-2", "train.tsv", _DEV, "sentence", None, "label", ("0", "1"), ("accuracy",), 3,
            published={"ELECTRA-Small++": 91.2, "ELECTRA-Base++": 95.1, "ELECTRA-Large": 96.9, "BERT-Base": 92.8},
        ),
        Task(
            "stsb", "regression", "STS-B", "train.tsv", _DEV, "sentence1", "sentence2", "score", (), ("spearman", "pearson"), 10, symmetric=True,
            published={"ELECTRA-Small++": 87.5, "ELECTRA-Base++": 91.2, "ELECTRA-Large": 92.6, "BERT-Base": 87.8},
        ),
    )
}  # fmt: skip


def task_named(name: str) -> Task:
    """The row of a task. Raises UserError with the nearest name."""
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise UserError(f"no task {name!r}{nearest(key, TASKS)}")
    return TASKS[key]
