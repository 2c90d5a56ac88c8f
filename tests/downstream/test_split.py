"""A file of examples is split into two parts: each class keeps its share, nothing is on both
sides."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.downstream.examples import Answer, Example, Question
from electrify.downstream.options import FinetuneConfig
from electrify.downstream.read.asked import read_asked
from electrify.downstream.read.split import parted, split
from electrify.downstream.tasks import Examples, Kind, TaskData
from electrify.errors import UserError


def task(train: Examples, kind: Kind = "classification", labels: int = 3) -> TaskData:
    names = tuple(map(str, range(labels))) if kind in ("classification", "multilabel") else ()
    return TaskData("t", kind, names, ("accuracy",), 1, train, train)


def test_each_class_keeps_its_share() -> None:
    rows = tuple(Example(f"text {k}", None, 0 if k < 80 else 1 + k % 2) for k in range(100))
    found = split(task(rows), 0.2, seed=0)
    assert Counter(e.label for e in found.validation) == {0: 16, 1: 2, 2: 2}  # type: ignore[union-attr]
    assert sorted([*found.train, *found.validation], key=rows.index) == list(rows)
    assert found == split(task(rows), 0.2, seed=0)
    assert found.validation != split(task(rows), 0.2, seed=1).validation


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=2, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 99),
)
def test_equal_texts_stay_on_one_side(
    rows: list[tuple[int, int]], fraction: float, seed: int
) -> None:
    examples = tuple(Example(str(text), None, label) for text, label in rows)
    try:
        found = split(task(examples), fraction, seed=seed)
    except UserError:
        return  # nothing is left for one side
    sides = [{e.text for e in part} for part in (found.train, found.validation)]  # type: ignore[union-attr]
    assert not sides[0] & sides[1]
    assert len(found.train) + len(found.validation) == len(rows)


def test_classes_of_one_example_do_not_take_from_the_others() -> None:
    """They cannot be cut; the others give no more than their share."""
    rows = tuple(Example(f"text {k}", None, min(k, 40)) for k in range(80))
    found = split(task(rows, labels=41), 0.5, seed=0)
    assert Counter(e.label for e in found.validation) == {40: 20}  # type: ignore[union-attr]


def test_questions_about_a_context_stay_together() -> None:
    rows = tuple(
        Question(f"{c}-{q}", "who?", f"context {c}", (Answer("context", 0),))
        for c in range(10)
        for q in range(5)
    )
    found = split(task(rows, "answering"), 0.3, seed=0)
    contexts = Counter(q.context for q in found.validation)  # type: ignore[union-attr]
    assert sorted(contexts.values()) == [5, 5, 5]


def test_what_cannot_be_divided_by_any_share() -> None:
    """The advice is not to give another one."""
    asked = tuple(Question(str(k), "who?", "a", (Answer("a", 0),)) for k in range(9))
    with pytest.raises(UserError, match=r"about one context.*; cut it into .*--validation-file"):
        split(task(asked, "answering"), 0.5, seed=0)
    with pytest.raises(UserError, match="or leave --load-best-model-at-end out"):
        parted("answering", asked, 0.5, seed=0, flag="--selection-fraction")
    two = (*asked, Question("9", "who?", "b", (Answer("b", 0),)))
    with pytest.raises(UserError, match="give another share"):
        split(task(two, "answering"), 0.1, seed=0)
    same = tuple(Example("equal", None, k % 3) for k in range(9))
    with pytest.raises(UserError, match="no two different ones of one class; add examples"):
        split(task(same), 0.5, seed=0)
    with pytest.raises(UserError, match=r"equal texts stay in one part, and .* ones; add examples"):
        split(task(same, "regression"), 0.5, seed=0)


def test_values_keep_their_distribution() -> None:
    rows = tuple(Example(f"t{k}", None, float(k)) for k in range(100))
    found = split(task(rows, "regression"), 0.2, seed=3)
    tenths = Counter(int(e.label) // 10 for e in found.validation)  # type: ignore[union-attr,arg-type]
    assert tenths == dict.fromkeys(range(10), 2)


def test_sets_of_labels_that_occur_once_are_cut_too() -> None:
    """Together, by their rarest label: one of 20 examples does not stay in training for being the
    only one with its labels."""
    chosen = itertools.islice(itertools.combinations(range(12), 3), 200)
    rows = tuple(Example(f"text {k}", None, labels) for k, labels in enumerate(chosen))
    several = task(rows, "multilabel", labels=12)
    for fraction in (0.1, 0.2, 0.9):
        found = split(several, fraction, seed=0)
        assert abs(len(found.validation) - 200 * fraction) <= 2
    rare = sum(11 in e.label for e in rows)  # type: ignore[operator]
    held = sum(11 in e.label for e in split(several, 0.2, seed=0).validation)  # type: ignore[union-attr,operator]
    assert abs(held - 0.2 * rare) <= 1


def test_every_label_stays_in_training() -> None:
    """Also one that a single example has: nothing could be learnt of it."""
    often = [(0,), (1,), (0, 1)] * 19
    rows = tuple(Example(f"t{k}", None, labels) for k, labels in enumerate([*often, (2,), (3, 0)]))
    for fraction, seed in itertools.product((0.2, 0.5, 0.9), range(5)):
        found = split(task(rows, "multilabel", labels=4), fraction, seed=seed)
        shown = {label for e in found.train for label in e.label}  # type: ignore[union-attr]
        assert shown == {0, 1, 2, 3}


def test_sets_of_labels_that_occur_often_keep_their_share() -> None:
    rows = tuple(Example(f"text {k}", None, ((0, 1), (2,), ())[k % 3]) for k in range(60))
    found = split(task(rows, "multilabel"), 0.2, seed=0)
    assert Counter(e.label for e in found.validation) == {(0, 1): 4, (2,): 4, (): 4}  # type: ignore[union-attr]


def test_few_values_can_be_cut() -> None:
    """A tenth of them need not hold one that stays."""
    rows = tuple(Example(f"t{k}", None, k + 0.5) for k in range(10))
    held = {f: len(split(task(rows, "regression"), f, seed=0).validation) for f in (0.1, 0.3, 0.9)}
    assert held == {0.1: 1, 0.3: 3, 0.9: 9}


def test_from_one_file(tmp_path: Path) -> None:
    path = tmp_path / "molecules.csv"
    path.write_text("smiles,category\n" + "".join(f"C{k},{'ab'[k % 2]}\n" for k in range(40)))
    given_ = {"models": ("m",), "output_dir": "out", "train_file": str(path)}
    (found,) = read_asked(FinetuneConfig(**given_, validation_fraction=0.25))
    assert (len(found.train), len(found.validation)) == (30, 10)
    assert found.notes == ("the labels are read as names of 2 classes",)
    assert found.labels == ("a", "b")
    for more, says in (
        ({"validation_fraction": 1.5}, "validation_fraction "),
        ({"validation_fraction": 0.5, "validation_file": str(path)}, "exclude each other"),
        ({}, "or give train_file and validation_fraction"),
    ):
        with pytest.raises(UserError, match=says):
            FinetuneConfig(**given_ | more)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="validation_fraction needs train_file"):
        FinetuneConfig(models=("m",), output_dir="o", task=("cola",), validation_fraction=0.5)
    with pytest.raises(UserError, match="leaves a part empty"):
        read_asked(FinetuneConfig(**given_, validation_fraction=0.001))


def test_a_refusal_shows_the_columns_and_two_values(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("words,p_np\nfirst one,1\nsecond one,0\nthird,1\n")
    config = FinetuneConfig(
        models=("m",), output_dir="out", train_file=str(path), validation_fraction=0.3
    )
    says = r"words: 'first one', 'second one'; p_np: '1', '0'\).*name it with --text-column"
    with pytest.raises(UserError, match=says):
        read_asked(config)


def test_what_a_file_leaves_out_is_told_when_it_is_split(tmp_path: Path) -> None:
    """Counted once; a file that shares its texts with itself is not news."""
    path = tmp_path / "tox.csv"
    rows = "".join(f"t{k},{k % 2},\n" for k in range(20)) + "u,,\nv,,\n"
    path.write_text("text,a,b\n" + rows)
    given_ = {"models": ("m",), "output_dir": "out", "train_file": str(path), "label_column": "a,b"}
    (found,) = read_asked(FinetuneConfig(**given_, validation_fraction=0.25))  # type: ignore[arg-type]
    assert found.notes == ("2 examples have no label at all and are left out",)
    (found,) = read_asked(FinetuneConfig(**given_, validation_file=str(path)))  # type: ignore[arg-type]
    assert found.notes[1] == "4 examples have no label at all and are left out"
    words = tmp_path / "tags.conll"
    words.write_text("".join(f"w{k} {'B-rare' if k == 9 else 'O'}\nx B-x\n\n" for k in range(10)))
    given_ = {"models": ("m",), "output_dir": "out", "train_file": str(words)}
    told = set()
    for seed in range(8):
        (found,) = read_asked(FinetuneConfig(**given_, validation_fraction=0.3, seed=seed))  # type: ignore[arg-type]
        rare = any("B-rare" in s.tags for s in found.validation)  # type: ignore[union-attr]
        told.add(rare)
        assert bool(found.notes) == rare
    assert told == {True, False}
