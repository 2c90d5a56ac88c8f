"""How a saved model reads its texts: what decides its answers and is not in its weights. Noted in
config.json under `electrify`, so that the model predicts as it was scored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from .answer_heads import NEVER
from .examples import Example
from .options import WordPooling
from .problems.answering import Answering
from .problems.problem import Problem
from .problems.tagging import Tagging
from .problems.texts import Texts
from .tasks import TaskData

KEY = "electrify"
SHORTEST = 16
"""Tokens of a sequence, as in the options."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """See the module. None if it is not known, or does not apply."""

    max_seq_length: int | None = None
    """Tokens per sequence."""
    pairs: bool | None = None
    """Whether it was trained on pairs of texts."""
    doc_stride: int | None = None
    max_answer_length: int | None = None
    no_answer_threshold: float | None = None
    """The score for "no answer" above which none is given."""
    word_pooling: WordPooling | None = None
    """Tagging: which of a word's tokens stand for it."""

    def record(self) -> dict[str, Any]:
        """For config.json: what is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def reading_of(problem: Problem, task: TaskData, *, threshold: float | None) -> Reading:
    """How the problem of a run reads its texts. threshold: see Reading.no_answer_threshold."""
    if isinstance(problem, Answering):
        return Reading(
            max_seq_length=problem.max_seq_length,
            doc_stride=problem.doc_stride,
            max_answer_length=problem.longest_answer,
            no_answer_threshold=None if threshold is None else max(threshold, NEVER),
        )
    if isinstance(problem, Tagging):
        return Reading(max_seq_length=problem.max_seq_length, word_pooling=problem.word_pooling)
    assert isinstance(problem, Texts)
    first = task.train[0]
    pairs = first.pair is not None if isinstance(first, Example) else None
    return Reading(max_seq_length=problem.max_seq_length, pairs=pairs)


def noted(config: Any) -> Reading:
    """What the configuration of a model says; nothing for models made elsewhere, and what is not
    plausible is left out."""
    found = getattr(config, KEY, None)
    if not isinstance(found, dict):
        return Reading()
    known: dict[str, Any] = {}
    for field in fields(Reading):
        value = found.get(field.name)
        if field.name == "pairs":
            good = isinstance(value, bool)
        elif field.name == "word_pooling":
            good = value in get_args(WordPooling)
        elif field.name == "no_answer_threshold":
            good = isinstance(value, int | float) and abs(value) <= -NEVER
        else:
            least = SHORTEST if field.name == "max_seq_length" else 1
            good = isinstance(value, int) and least <= value < 1 << 20
        if good and (field.name == "pairs" or not isinstance(value, bool)):
            known[field.name] = value
    return Reading(**known)
