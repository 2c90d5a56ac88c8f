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
    position is the class number; empty for regression. metrics: names in metrics.METRICS, the first is the one that is compared. also: further
    development sets by the name that their scores carry. test: GLUE's test sets, file by name of the submission; none = test.tsv under the name of
    the folder. published: development scores times 100 of the first metric, by model (README of
    google-research/electra; BERT-Base from 2012.08561, table 4).
    """

    name: str
    kind: Kind
    folder: str
    train: str
    validation: str
    text: str | int
    pair: str | int | None
    label: str | int
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: float
    symmetric: bool = False
    also: dict[str, str] = field(default_factory=dict)
    test: dict[str, str] = field(default_factory=dict)
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
    also: tuple[tuple[str, tuple[Example, ...]], ...] = ()
    """Further development sets, by name; scored after the last update."""
    test: tuple[tuple[str, tuple[Example, ...]], ...] = ()
    """Test sets without labels, by the name of their file in a submission."""
    notes: tuple[str, ...] = ()
    """What a reader of the scores must know: files that are not the official ones."""

    def __post_init__(self) -> None:
        for split in ("train", "validation"):
            if not getattr(self, split):
                raise UserError(f"task {self.name!r} has no {split} examples")
        if self.kind == "classification" and len(self.labels) < 2:
            raise UserError(
                f"task {self.name!r} has only the class {self.labels[0]!r}: nothing to learn" if self.labels else f"task {self.name!r} has no classes"
            )

    @property
    def score_names(self) -> tuple[str, ...]:
        """Of every score of a run: the metrics, then those of further development sets (accuracy_mismatched)."""
        return (*self.metrics, *(f"{metric}_{name}" for name, _ in self.also for metric in self.metrics))

    @property
    def num_outputs(self) -> int:
        return len(self.labels) if self.kind == "classification" else 1


_ENTAILS = ("entailment", "not_entailment")


def _published(*scores: float) -> dict[str, float]:
    return dict(zip(("ELECTRA-Small++", "ELECTRA-Base++", "ELECTRA-Large", "BERT-Base"), scores, strict=True))


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "cola", "classification", "CoLA", "train.tsv", "dev.tsv", 3, None, 1, ("0", "1"), ("matthews", "accuracy"), 3,
            published=_published(57.0, 67.7, 69.1, 58.4),
        ),
        Task(
            "sst2", "classification", "SST-2", "train.tsv", "dev.tsv", "sentence", None, "label", ("0", "1"), ("accuracy",), 3,
            published=_published(91.2, 95.1, 96.9, 92.8),
        ),
        Task(
            "mrpc", "classification", "MRPC", "train.tsv", "dev.tsv", "#1 String", "#2 String", "Quality", ("0", "1"), ("accuracy", "f1"), 3,
            symmetric=True, published=_published(88.0, 89.5, 90.8, 86.0),
        ),
        Task(
            "stsb", "regression", "STS-B", "train.tsv", "dev.tsv", "sentence1", "sentence2", "score", (), ("spearman", "pearson"), 10,
            symmetric=True, published=_published(87.5, 91.2, 92.6, 87.8),
        ),
        Task(
            "qqp", "classification", "QQP", "train.tsv", "dev.tsv", "question1", "question2", "is_duplicate", ("0", "1"), ("accuracy", "f1"), 3,
            published=_published(89.0, 91.5, 92.4, 90.8),
        ),
        Task(
            "mnli", "classification", "MNLI", "train.tsv", "dev_matched.tsv", "sentence1", "sentence2", "gold_label",
            ("entailment", "neutral", "contradiction"), ("accuracy",), 3, also={"mismatched": "dev_mismatched.tsv"},
            test={"MNLI-m": "test_matched.tsv", "MNLI-mm": "test_mismatched.tsv", "AX": "../diagnostic/diagnostic.tsv"},
            published=_published(81.3, 88.8, 90.9, 84.5),
        ),
        Task(
            "qnli", "classification", "QNLI", "train.tsv", "dev.tsv", "question", "sentence", "label", _ENTAILS, ("accuracy",), 3,
            published=_published(88.4, 93.2, 95.0, 88.6),
        ),
        Task(
            "rte", "classification", "RTE", "train.tsv", "dev.tsv", "sentence1", "sentence2", "label", _ENTAILS, ("accuracy",), 10,
            published=_published(66.7, 82.7, 88.0, 68.5),
        ),
        Task("wnli", "classification", "WNLI", "train.tsv", "dev.tsv", "sentence1", "sentence2", "label", ("0", "1"), ("accuracy",), 3),
    )
}  # fmt: skip
# What the published average is over: the first metric of each; WNLI, where the majority class wins, is left out (2003.10555 section 3.1).
AVERAGED = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


def task_named(name: str) -> Task:
    """The row of a task. Raises UserError with the nearest name."""
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise UserError(f"no task {name!r}{nearest(key, TASKS)}")
    return TASKS[key]
