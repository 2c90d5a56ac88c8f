"""One's own examples that can be read and that teach or measure nothing: said, or refused, before
anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from electrify.downstream.read.own import read_own
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

CLASSES = "text,label\none,a\ntwo,b\nthree,a\n"


def own(folder: Path, train: str, validation: str, *, ending: str = ".csv") -> TaskData:
    for name, text in (("train", train), ("validation", validation)):
        (folder / f"{name}{ending}").write_text(text, encoding="utf-8")
    files = (str(folder / f"{name}{ending}") for name in ("train", "validation"))
    return read_own(*files)


def test_training_examples_that_are_scored_are_said(tmp_path: Path) -> None:
    assert own(tmp_path, CLASSES, CLASSES).notes == (
        "3 of 3 validation examples are among the training examples: the scores flatter",
        "the labels are read as names of 2 classes",
    )
    assert (
        own(tmp_path, CLASSES, "text,label\ntwo,b\nfour,a\n")
        .notes[0]
        .startswith("1 of 2 validation examples")
    )
    (note,) = own(tmp_path, CLASSES, "text,label\nfour,b\n").notes
    assert note == "the labels are read as names of 2 classes"
    columns = "one A\ntwo B\n\nthree A\n"
    assert (
        own(tmp_path, columns, columns, ending=".conll")
        .notes[0]
        .startswith("2 of 2 validation examples")
    )


@pytest.mark.parametrize(
    ("train", "validation", "split"),
    [("1.5,1.5", "1.0,2.5", "train"), ("1.0,2.5", "3.5,3.5", "validation")],
)
def test_values_that_are_all_the_same_are_refused(
    tmp_path: Path, train: str, validation: str, split: str
) -> None:
    parts = [
        "text,label\n" + "".join(f"text {i},{x}\n" for i, x in enumerate(values.split(",")))
        for values in (train, validation)
    ]
    with pytest.raises(
        UserError,
        match=f"every {split} label is [13].5, so there is nothing to learn or to compare",
    ):
        own(tmp_path, *parts)
