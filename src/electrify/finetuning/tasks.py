"""Tasks: the types of their examples, `TaskData`, the tasks that are known by name, and what a
fine-tuned model predicts by its config.json.

The known tasks are rows of tasks.yaml. To add one, add a row there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from ..errors import UserError, need
from ..exporting.places import check_place, metadata_of
from ..files import read_json
from ..hub import file_of
from ..names import nearest

Kind = Literal["classification", "multilabel", "regression", "tagging", "answering"]
MAX_SEQ_LENGTH: dict[Kind, int] = {
    "classification": 128,
    "multilabel": 128,
    "regression": 128,
    "tagging": 256,
    "answering": 512,
}
"""Default length of a sequence in tokens, as in ELECTRA (chunking 256, SQuAD 512)."""
CLASSES: dict[Kind, tuple[str, str | None]] = {
    "classification": ("AutoModelForSequenceClassification", "single_label_classification"),
    "multilabel": ("AutoModelForSequenceClassification", "multi_label_classification"),
    "regression": ("AutoModelForSequenceClassification", "regression"),
    "tagging": ("AutoModelForTokenClassification", None),
    "answering": ("AutoModelForQuestionAnswering", None),
}
"""The library's class that loads, or makes, a model for a kind of task, and its name for the
problem."""
KEY = "electrify"
"""The key in config.json of how a model reads its texts (Saved.reading)."""
TRAINED = "fine-tuned"
"""The part in the metadata of a model that `electrify finetune` saved."""
MIN_UPDATES = 1000
"""Small sets are repeated until the encoder makes this many updates."""


@dataclass(frozen=True)
class Example:
    """A text, or a pair of texts, with its label.

    label: a class number, a value, or the numbers of all classes that apply (multilabel).
    unknown: multilabel only, the classes of which nobody knows: neither trained nor scored.
    """

    text: str
    pair: str | None = None
    label: float | tuple[int, ...] = 0.0
    unknown: tuple[int, ...] = ()

    @property
    def whole(self) -> str:
        """All that is read."""
        return f"{self.text} {self.pair or ''}"


@dataclass(frozen=True)
class Sentence:
    """Words with one tag each; a new sentence has no tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def whole(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Answer:
    """A span of a context: context[start : start + len(text)] is text. start counts characters."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context. No answers: the context does not contain one (SQuAD 2.0)."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]

    @property
    def whole(self) -> str:
        return f"{self.question} {self.context}"


Examples = tuple[Example, ...] | tuple[Sentence, ...] | tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class Described:
    """What is known of a task before its examples are read."""

    name: str
    kind: Kind
    metrics: tuple[str, ...]
    epochs: float
    labels: tuple[str, ...] = ()
    """Classes or tags; the position is the number."""
    symmetric: bool = False
    """Whether the order of a pair's texts does not matter."""
    value_range: tuple[float, float] | None = None
    """The least and the largest possible value of a regression, if known."""
    max_seq_length: int | None = None
    """Default length of a sequence in tokens; None takes that of the kind."""


@dataclass(frozen=True, kw_only=True)
class TaskData(Described):
    """A task with its examples: the input of a fine-tuning run."""

    train: Examples
    validation: Examples
    also: tuple[tuple[str, Examples], ...] = ()
    """Further labelled sets, by name; scored after the last update."""
    test: tuple[tuple[str, Examples], ...] = ()
    """Test sets without labels, by the name of their file in a submission."""
    min_updates: int = 0
    """Fewest updates by default."""
    notes: tuple[str, ...] = ()
    """What a reader of the scores must know, such as files that are not the official ones."""

    def __post_init__(self) -> None:
        least = {"classification": 2, "tagging": 2, "multilabel": 1}.get(self.kind, 0)
        for part in ("train", "validation"):
            need(bool(getattr(self, part)), f"task {self.name!r} has no {part} examples")
        labels = ", ".join(self.labels) or "none"
        need(len(self.labels) >= least, f"task {self.name!r} has too few labels: {labels}")

    @property
    def score_names(self) -> tuple[str, ...]:
        """The metrics, then those of the further sets (accuracy_mismatched)."""
        further = (f"{metric}_{name}" for name, _ in self.also for metric in self.metrics)
        return (*self.metrics, *further)


@dataclass(frozen=True, kw_only=True)
class KnownTask(Described):
    """A row of tasks.yaml, which describes the fields."""

    group: str
    folders: tuple[str, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    columns: tuple[str, ...] = ()
    text: str = ""
    pair: str | None = None
    label: str = "label"
    also: dict[str, list[str]] = field(default_factory=dict)
    submission: dict[str, list[str]] = field(default_factory=dict)
    hub: str | None = None
    languages: bool = False
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Average:
    """A mean over the first metrics of tasks, as it is published elsewhere. said: what a reader
    must know about it. published: figures, times 100, by model."""

    tasks: tuple[str, ...]
    said: str
    published: dict[str, float] = field(default_factory=dict)


def _row(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}


_FILE = yaml.safe_load(Path(__file__).with_name("tasks.yaml").read_text("utf-8"))
_DEFAULTS = _FILE.pop("defaults")
AVERAGES = {name: Average(**_row(fields)) for name, fields in _FILE.pop("averages").items()}
TASKS = {
    name: KnownTask(name=name, group=group, **_row(_DEFAULTS[group] | fields))
    for group, rows in _FILE.items()
    for name, fields in rows.items()
}
GROUPS = {group: tuple(rows) for group, rows in _FILE.items()}


def tasks_named(names: Iterable[str]) -> list[KnownTask]:
    """The rows of these tasks, each once. SST-2 is sst2, and the name of a group (glue, tagging,
    squad, babylm) stands for its tasks. Raises UserError with the nearest name."""
    keys = {_key(name): name for name in TASKS}
    found = []
    for given in names:
        if given.lower() in GROUPS:
            found += GROUPS[given.lower()]
        elif _key(given) in keys:
            found.append(keys[_key(given)])
        else:
            raise UserError(f"no task {given!r}{nearest(given.lower(), (*TASKS, *GROUPS))}")
    return [TASKS[name] for name in dict.fromkeys(found)]


def _key(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


# ------------------------------------------------------------------ fine-tuned models


@dataclass(frozen=True)
class Saved:
    """What a fine-tuned model predicts, and how it reads its texts: max_seq_length, pairs (whether
    it was trained on pairs of texts), and no_answer_threshold (the score for "no answer" above
    which none is given). What is not known, or does not apply, is missing."""

    kind: Kind
    labels: tuple[str, ...]
    reading: dict[str, Any]


def saved(model: str) -> Saved:
    """By the config.json of a folder or a model of the Hub. Raises UserError."""
    check_place(model)
    folder = Path(model)
    file = folder / "config.json" if folder.is_dir() else file_of(model, "config.json")
    need(file is not None, f"{model} has no config.json that can be read")
    config = read_json(file or folder)
    kind = kind_of(model, config)
    # The library leaves out two unnamed classes.
    count = config.get("num_labels", 2)
    names = config.get("id2label") or {str(k): f"LABEL_{k}" for k in range(count)}
    labels = tuple(names[str(k)] for k in range(len(names)))
    plain = kind in ("regression", "answering")
    return Saved(kind, () if plain else labels, config.get(KEY) or {})


def kind_of(model: str, config: Mapping[str, Any]) -> Kind:
    """What a model with this configuration predicts. Raises UserError for one that was not
    fine-tuned: another class, or, by the folder's metadata, a network of a run: some discriminators
    have the class for tags."""
    name = str((config.get("architectures") or [""])[0])
    kinds: dict[str | None, Kind] = {
        problem: kind
        for kind, (auto, problem) in CLASSES.items()
        if name.endswith(auto.removeprefix("AutoModel"))
    }
    part = metadata_of(model).get("part", TRAINED)
    what = f"the {part} of a run" if part != TRAINED else name or "a model without a head"
    fact = f"{model} is {what}, not a fine-tuned model"
    need(part == TRAINED and bool(kinds), fact, "fine-tune it first with `electrify finetune`")
    number = len(config.get("id2label") or range(config.get("num_labels", 2)))
    usual: Kind = "regression" if number == 1 else "classification"
    return kinds.get(None, kinds.get(config.get("problem_type"), usual))
