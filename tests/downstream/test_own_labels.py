"""Columns, labels and tags of one's own files that were read as something else than they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from electrify.downstream.read.columns import Columns
from electrify.downstream.read.conll import read_sentences
from electrify.downstream.read.own import read_own
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError


def own(
    folder: Path, train: str, validation: str | None = None, *, ending: str = ".tsv", **given: Any
) -> TaskData:
    files = []
    for name, text in (("train", train), ("validation", validation or train)):
        path = folder / f"{name}{ending}"
        path.write_bytes(text.encode())
        files.append(str(path))
    kind = given.pop("problem_type", "auto")
    named = {name.removesuffix("_column"): value for name, value in given.items()}
    return read_own(*files, columns=Columns(**named), problem_type=kind)


def table(*rows: str) -> str:
    return "".join(row + "\n" for row in rows)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ("1_1 1_2 2_1", "classification"),
        ("1.0 2_1", "classification"),
        ("1.5 2 -3e-1 +.5", "regression"),
        ("1 2 3", "classification"),
    ],
)
def test_a_number_is_written_as_one(tmp_path: Path, labels: str, kind: str) -> None:
    rows = [f"text {i}\t{label}" for i, label in enumerate(labels.split())]
    found = own(tmp_path, table("text\tlabel", *rows))
    assert found.kind == kind
    if kind == "classification":
        assert set(found.labels) == set(labels.split())


@pytest.mark.parametrize(
    "labels",
    ["1700000000.5 1700000050.7 1700000100.9", "1e-300 2e-300 3.5e-300", "1e300 2e300 3.5"],
)
def test_values_that_a_model_cannot_tell_apart(tmp_path: Path, labels: str) -> None:
    rows = [f"text {i}\t{label}" for i, label in enumerate(labels.split())]
    with pytest.raises(UserError, match=r"cannot tell apart; subtract their mean"):
        own(tmp_path, table("text\tlabel", *rows))


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ('"\\ud800a"', "holds half a surrogate pair"),
        ('["a|b", "c"]', "the label 'a|b' holds a bar, which stands between labels"),
    ],
)
def test_labels_that_cannot_be_written(tmp_path: Path, label: str, says: str) -> None:
    rows = [f'{{"text": "x {k}", "label": {label}}}' for k in range(3)]
    with pytest.raises(UserError, match=re.escape(says)):
        own(tmp_path, table(*rows), ending=".jsonl")


def test_a_label_of_regression_with_an_underscore(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 3: label '1_1' is not a number"):
        own(tmp_path, table("text\tlabel", "a\t1.5", "b\t1_1"), problem_type="regression")


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ("n/a", "line 7: label 'n/a' is not a number, and 19 of 20 are; correct it, or give"),
        ("0,5", "line 7: label '0,5' is not a number; write a decimal with a point"),
        ("10.5 %", "label '10.5 %' is not a number; write it with a point and without the sign"),
    ],
)
def test_a_label_that_is_not_a_number_among_numbers(tmp_path: Path, odd: str, says: str) -> None:
    """It made a class of each number, in silence."""
    labels = [f"{k / 4}" for k in range(20)]
    rows = [f"text {k}\t{label}" for k, label in enumerate(labels)]
    assert own(tmp_path, table("text\tlabel", *rows)).kind == "regression"
    rows[5] = f"text 5\t{odd}"
    with pytest.raises(UserError, match=re.escape(says)):
        own(tmp_path, table("text\tlabel", *rows))
    found = own(tmp_path, table("text\tlabel", *rows), problem_type="classification")
    assert (found.kind, len(found.labels)) == ("classification", 20)
    assert not any("the labels are read as" in note for note in found.notes)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("0,{}", "line 2: label '0,0' is not a number; write a decimal"),
        ("{}.5%", "line 2: label '0.5%' is not a number; write it with a point"),
        ("{},5%", "line 2: label '0,5%' is not a number; write it with a point"),
    ],
)
def test_a_column_of_decimals_written_for_people(tmp_path: Path, label: str, says: str) -> None:
    rows = [f"text {k}\t{label.format(k)}" for k in range(20)]
    with pytest.raises(UserError, match=re.escape(says)):
        own(tmp_path, table("text\tlabel", *rows))


def test_whole_percents_are_names_of_classes(tmp_path: Path) -> None:
    """As whole numbers are."""
    found = own(tmp_path, table("text\tlabel", *(f"text {k}\t{k % 4}0%" for k in range(20))))
    assert (found.kind, found.labels) == ("classification", ("00%", "10%", "20%", "30%"))


def test_names_beside_numbers_are_classes(tmp_path: Path) -> None:
    """Fewer than four fifths are numbers, or hardly any is a decimal one."""
    few = ["1"] * 14 + ["nan"] * 4 + ["1.5", "other"]
    for labels in (["1.5"] * 15 + ["other"] * 5, ["1"] * 18 + ["1.5", "other"], few):
        rows = [f"text {k}\t{label}" for k, label in enumerate(labels)]
        found = own(tmp_path, table("text\tlabel", *rows))
        assert found.kind == "classification"
        assert found.notes[-1] == f"the labels are read as names of {len(set(labels))} classes"


def test_the_f1_of_one_class_among_several(tmp_path: Path) -> None:
    """It was that of the class with number 1 alone, whichever that is."""
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb,y\nc,z\n")
    with pytest.raises(
        UserError, match=r"f1 is for two classes, and .*a\.csv has 3; take macro_f1"
    ):
        read_own(str(path), str(path), metrics=("accuracy", "f1"))
    path.write_text("text,label\na,x\nb,y\n")
    assert read_own(str(path), str(path), metrics=("f1",)).metrics == ("f1",)


def test_the_second_text_beside_a_column_text(tmp_path: Path) -> None:
    found = own(tmp_path, table("text\tsentence2\tlabel", "a\tb\tx", "c\td\ty"))
    assert [(e.text, e.pair) for e in found.train] == [("a", "b"), ("c", "d")]
    alone = own(tmp_path, table("sentence2\tlabel", "a\tx", "c\ty"), text_column="sentence2")
    assert [(e.text, e.pair) for e in alone.train] == [("a", None), ("c", None)]


@pytest.mark.parametrize(
    ("rows", "given", "says"),
    [
        (("text\tlabel", "\ta", " \tb"), {}, r"train.tsv: every text \('text'\) is empty"),
        (
            ("text\tsentence2\tlabel", "\t\ta", "\t \tb"),
            {},
            r"every text \('text', 'sentence2'\) is empty",
        ),
        (("text\ta\tb", "x\t0\t1"), {"label_column": "a,a"}, "--label-column names 'a' twice"),
        (
            ("text\tlabel", "x\ta", "y\tb"),
            {"text_column": "label"},
            "--text-column and --label-column are both 'label'",
        ),
        (
            ("text\tlabel", "x\t1", "y\t0"),
            {"label_column": "label,text"},
            "--text-column and --label-column are both 'text'",
        ),
        (
            ("text\tlabel", "x\ta", "y\tb"),
            {"pair_column": "text"},
            "--text-column and --pair-column are both 'text'",
        ),
        (
            ("text\tlabel", "x\ta", "y\tb"),
            {"pair_column": "label"},
            "--pair-column and --label-column are both 'label'",
        ),
    ],
)
def test_columns_that_teach_nothing(
    tmp_path: Path, rows: tuple[str, ...], given: dict[str, str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        own(tmp_path, table(*rows), **given)


def test_one_empty_text_among_others_is_read(tmp_path: Path) -> None:
    assert len(own(tmp_path, table("text\tlabel", "\ta", "x\tb")).train) == 2


def test_the_files_may_have_their_tags_in_different_schemes(tmp_path: Path) -> None:
    """They were refused, although the tags of a task are in one scheme."""
    valid = "a O\nfilm B-X\nplot I-X\n"
    for train in ("a O\nfilm I-X\nplot I-X\n", "a O\nfilm B-X\nplot E-X\n\none S-X\n"):
        task = own(tmp_path, train, valid, ending=".conll")
        assert task.labels == ("B-X", "I-X", "O")
        assert task.validation[0].tags == ("O", "B-X", "I-X")  # type: ignore[union-attr]
    one = own(tmp_path, "a O\nfilm I-X\n", "a O\nfilm B-X\n", ending=".conll")
    assert one.labels == ("B-X", "O")
    with pytest.raises(UserError, match=r"none of its tags \(B-Y\) is one of I-X, O"):
        own(tmp_path, "a O\nfilm I-X\n", "a O\nfilm B-Y\n", ending=".conll")


def test_tags_that_only_the_validation_file_has(tmp_path: Path) -> None:
    train = "the D\nchef N\n\nate V\n"
    found = own(tmp_path, train, "the D\ncooks X\nbig Y\n", ending=".conll")
    assert found.notes == (
        "2 validation words have tags that no training word has (X, Y), and count as wrong",
    )
    with pytest.raises(UserError, match=r"validation.conll: none of its tags \(X, Y\) is one of "):
        own(tmp_path, train, "the X\ncooks Y\n", ending=".conll")


def test_a_word_that_begins_like_a_docstart(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART-s N\nare V\n\n-DOCSTART-\n\n-DOCSTART- O\nb N\n")
    assert [s.words for s in read_sentences(path)] == [("-DOCSTART-s", "are"), ("b",)]


def test_comments_before_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("# id 1\nthe D\n# N\n\n# id 5-f\tdomain=en\n# text = # a\n# D\nb N\n")
    assert [s.words for s in read_sentences(path)] == [("the", "#"), ("#", "b")]


def test_line_ends_of_old_machines(tmp_path: Path) -> None:
    found = own(tmp_path, "text\tlabel\rone\ta\rtwo\tb\r")
    assert [e.text for e in found.train] == ["one", "two"]
