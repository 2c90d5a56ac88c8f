"""A file of examples is split into two parts: each class keeps its share, nothing is in both."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.finetuning.split import split
from electrify.finetuning.tasks import Answer, Example, Kind, Question, TaskData


def task(train: Sequence[Any], kind: Kind = "classification", labels: int = 3) -> TaskData:
    names = tuple(map(str, range(labels))) if kind in ("classification", "multilabel") else ()
    both: Any = tuple(train)
    return TaskData(
        name="t", kind=kind, labels=names, metrics=("accuracy",), epochs=1,
        train=both, validation=both,
    )  # fmt: skip


def texts(labels: Sequence[Any]) -> list[Example]:
    return [Example(f"text {k}", None, label) for k, label in enumerate(labels)]


def held(found: TaskData) -> Counter[Any]:
    return Counter(e.label for e in found.validation)  # type: ignore[union-attr]


def test_each_class_keeps_its_share() -> None:
    rows = texts([0 if k < 80 else 1 + k % 2 for k in range(100)])
    found = split(task(rows), 0.2, seed=0)
    assert held(found) == {0: 16, 1: 2, 2: 2}
    assert sorted([*found.train, *found.validation], key=rows.index) == rows  # type: ignore[arg-type]
    assert found.validation != split(task(rows), 0.2, seed=1).validation
    assert [rows.index(e) for e in found.validation][:4] == FIRST  # type: ignore[arg-type]


FIRST = [5, 12, 17, 27]
"""The choice of seed 0 must stay what it is, or results cannot be compared with earlier ones."""


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=2, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 99),
)
def test_equal_texts_stay_in_one_part(
    rows: list[tuple[int, int]], fraction: float, seed: int
) -> None:
    examples = [Example(str(text), None, label) for text, label in rows]
    try:
        found = split(task(examples), fraction, seed=seed)
    except UserError:
        return  # nothing is left for one part
    parts = [{e.text for e in part} for part in (found.train, found.validation)]  # type: ignore[union-attr]
    assert not parts[0] & parts[1]
    assert len(found.train) + len(found.validation) == len(rows)


def test_questions_about_a_context_stay_together() -> None:
    answers = (Answer("context", 0),)
    rows = [
        Question(f"{c}-{q}", "who?", f"context {c}", answers) for c in range(10) for q in range(5)
    ]
    found = split(task(rows, "answering"), 0.3, seed=0)
    assert sorted(Counter(q.context for q in found.validation).values()) == [5, 5, 5]  # type: ignore[union-attr]


def test_values_keep_their_distribution() -> None:
    rows = texts([float(k) for k in range(100)])
    found = split(task(rows, "regression"), 0.2, seed=3)
    tenths = Counter(int(e.label) // 10 for e in found.validation)  # type: ignore[union-attr,arg-type]
    assert tenths == dict.fromkeys(range(10), 2)


def test_sets_of_labels() -> None:
    """Those that occur often keep their share, those that occur once are cut by their rarest
    label, and every label stays in training."""
    often = task(texts([((0, 1), (2,), ())[k % 3] for k in range(60)]), "multilabel")
    assert held(split(often, 0.2, seed=0)) == {(0, 1): 4, (2,): 4, (): 4}
    once = list(itertools.islice(itertools.combinations(range(12), 3), 200))
    for fraction in (0.1, 0.9):
        found = split(task(texts(once), "multilabel", labels=12), fraction, seed=0)
        assert abs(len(found.validation) - 200 * fraction) <= 2
    rare = texts([(0,), (1,), (0, 1)] * 19 + [(2,), (3, 0)])
    for seed in range(5):
        found = split(task(rare, "multilabel", labels=4), 0.5, seed=seed)
        assert {label for e in found.train for label in e.label} == {0, 1, 2, 3}  # type: ignore[union-attr]
