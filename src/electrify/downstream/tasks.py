"""The types that describe a task: the kinds of rows in known_tasks.py, and `TaskData`.

`TaskData` is a task with its examples, from whatever files: what a fine-tuning run takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import UserError
from .examples import Example, Question, Sentence

Examples = tuple[Example, ...] | tuple[Sentence, ...] | tuple[Question, ...]

Kind = Literal["classification", "multilabel", "regression", "tagging", "answering"]
# Default length of a sequence in tokens, as in ELECTRA (chunking 256, SQuAD 512).
MAX_SEQ_LENGTH: dict[Kind, int] = {
    "classification": 128,
    "multilabel": 128,
    "regression": 128,
    "tagging": 256,
    "answering": 512,
}


# A small set is shown so often that an encoder makes this many updates.
MIN_UPDATES = 1000


@dataclass(frozen=True)
class TextTask:
    """One row of GLUE, a text or two: where the examples are, what they are, how they are scored.
    columns: those of the texts, by header name, or by 0-based number if the file has no header.
    labels: the classes as written in the file; the position is the class number; empty for
    regression, whose range is value_range. metrics: names in metrics.METRICS, the first is the one
    that is compared. also: further development sets by the name that their scores carry. test:
    GLUE's test sets, file by name of the submission; none = test.tsv under the name of the folder.
    published: development scores times 100 of the first metric, by model (README of
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
    value_range: tuple[float, float] | None = None
    also: dict[str, str] = field(default_factory=dict)
    test: dict[str, str] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)

    @property
    def test_files(self) -> dict[str, str]:
        """The files of the test sets, by name of the submission."""
        return self.test or {self.folder: "test.tsv"}


@dataclass(frozen=True)
class LinesTask:
    """One row of pairs of texts in JSON lines (read/babylm.py). train, validation: names of its
    files. text, pair: the texts, with the names of columns in braces. labels: the classes; in the
    files a class is its number. metrics: as of TextTask. max_seq_length: as of TaskData."""

    name: str
    train: str
    validation: str
    text: str
    pair: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: float = 10
    max_seq_length: int = 512
    kind: Kind = "classification"
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TagTask:
    """One row of tagging: column files (see read/conll.py).

    folders, train, validation, test: patterns of names, the first that matches is read; a set
    without a development part is scored on its test part. word, tag: columns from 0, -1 the last.
    languages: words may begin with their language, as en:Sioux.
    """

    name: str
    folders: tuple[str, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    word: int
    tag: int
    metrics: tuple[str, ...]
    epochs: float = 3
    languages: bool = False
    kind: Kind = "tagging"
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AnswerTask:
    """One row of question answering: SQuAD's JSON. train, validation: patterns of names, the first
    that matches is read."""

    name: str
    folders: tuple[str, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    metrics: tuple[str, ...]
    hub: str
    epochs: float = 2
    kind: Kind = "answering"
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Average:
    """A mean over the first metrics of these tasks, as it is published elsewhere. said: what a
    reader must know of it. published: figures, times 100, by model."""

    tasks: tuple[str, ...]
    said: str
    published: dict[str, float] = field(default_factory=dict)


KnownTask = TextTask | LinesTask | TagTask | AnswerTask


@dataclass(frozen=True)
class TaskData:
    """A task with its examples: what a fine-tuning run takes. labels: classes or tags, the position
    is the number."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: float
    train: Examples
    validation: Examples
    symmetric: bool | None = False
    """Whether the order of a pair's texts does not matter; None if only the user knows."""
    value_range: tuple[float, float] | None = None
    """The least and the largest possible value of a regression; None if that is not known."""
    also: tuple[tuple[str, Examples], ...] = ()
    """Further labelled sets, by name; scored after the last update."""
    test: tuple[tuple[str, Examples], ...] = ()
    """Test sets without labels, by the name of their file in a submission."""
    max_seq_length: int | None = None
    """Default length of a sequence in tokens; None takes that of its kind."""
    min_updates: int = 0
    """Fewest updates by default: small sets are shown more often than `epochs` times."""
    notes: tuple[str, ...] = ()
    """Notes that a reader of the scores must know, such as files that are not the official ones."""

    def __post_init__(self) -> None:
        for split in ("train", "validation"):
            if not getattr(self, split):
                raise UserError(f"task {self.name!r} has no {split} examples")
        if self.kind in ("classification", "tagging") and len(self.labels) < 2:
            raise UserError(
                f"task {self.name!r} has only the label {self.labels[0]!r}: nothing to learn"
                if self.labels
                else f"task {self.name!r} has no labels"
            )

        if self.kind == "regression":
            for split in ("train", "validation"):
                values = {example.label for example in getattr(self, split)}
                if len(values) == 1 < len(getattr(self, split)):
                    raise UserError(
                        f"task {self.name!r}: every {split} label is {values.pop():g}, so there is "
                        "nothing to learn or to compare"
                    )

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of every score of a run: the metrics, then those of further development sets
        (accuracy_mismatched)."""
        return (
            *self.metrics,
            *(f"{metric}_{name}" for name, _ in self.also for metric in self.metrics),
        )

    @property
    def num_outputs(self) -> int:
        return len(self.labels) or 1
