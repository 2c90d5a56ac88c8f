"""One's own files: columns, kinds of labels, notes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.finetuning.columns import Columns
from electrify.finetuning.known import read_asked
from electrify.finetuning.own import read_own
from electrify.finetuning.tasks import Example, Sentence, TaskData

BARE = "good film,1\nbad film,0\n"
PLAIN = Columns(header=False)


def own(
    folder: Path,
    train: str,
    validation: str | None = None,
    *,
    name: str = "t.csv",
    columns: Columns | None = None,
    **more: Any,
) -> TaskData:
    files: list[str | None] = [None, None]
    for k, text in enumerate((train, validation)):
        if text is not None:
            path = folder / f"{'tv'[k]}{name[1:]}"
            path.write_text(text, encoding="utf-8")
            files[k] = str(path)
    return read_own(str(files[0]), files[1], columns=columns or Columns(), **more)


def jsonl(*labels: Any) -> str:
    rows = ({"text": f"t{k}", "label": label} for k, label in enumerate(labels))
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("t.csv", BARE, PLAIN),
        ("t.csv", "1,good film\n0,bad film\n", PLAIN),
        ("t.tsv", BARE.replace(",", "\t"), PLAIN),
        ("t.csv", "x,good film,1\ny,bad film,0\n", Columns(text="1", label="2", header=False)),
        ("t.csv", f"molecule,p_np\n{BARE}", Columns(text="0", label="1")),
        ("t.csv", f"TEXT,Sentiment\n{BARE}", Columns()),
        ("t.csv", f"1,0\n{BARE}", Columns(text="1", label="0")),
    ],
)
def test_columns_by_name_number_and_value(
    tmp_path: Path, name: str, text: str, columns: Columns
) -> None:
    found = own(tmp_path, text, name=name, columns=columns)
    assert found.train == (Example("good film", None, 1), Example("bad film", None, 0))


@pytest.mark.parametrize(
    ("header", "columns", "pair"),
    [
        ("question,sentence", Columns(), ("a", "b")),
        ("premise,hypothesis", Columns(), ("a", "b")),
        ("body,title", Columns(), ("b", "a")),
        ("text,text_pair", Columns(), ("a", "b")),
        ("text_a,text_b", Columns(), ("a", "b")),
        ("text,sentence2", Columns(), ("a", "b")),
        ("sentence2,text_pair", Columns(text="sentence2"), ("a", None)),
        ("body,title", Columns(text="body"), ("a", None)),
        ("x,y", Columns(text="y", pair="x"), ("b", "a")),
    ],
)
def test_pairs(tmp_path: Path, header: str, columns: Columns, pair: tuple[str, str | None]) -> None:
    found = own(tmp_path, f"{header},label\na,b,1\nc,d,0\n", columns=columns)
    example: Any = found.train[0]
    assert (example.text, example.pair) == pair


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        ([3, 10, 2], "classification", ("2", "3", "10")),
        ([-1, 1], "classification", ("-1", "1")),
        (["1_1", "1_2"], "classification", ("1_1", "1_2")),
        (["007", "12"], "classification", ("007", "12")),
        ([0.0, 1.0, 1.0], "classification", ("0", "1")),
        (["1.0", "2.0"], "classification", ("1", "2")),
        ([1.0, 2.0, 3.0], "regression", ()),
        ([1, 2.5], "regression", ()),
        (["-3e-1", "+.5", "2"], "regression", ()),
        (["1.5"] * 15 + ["other"] * 5, "classification", ("1.5", "other")),
        (["none", "None", "x"], "classification", ("None", "none", "x")),
        ([[0, 1, 1], [1, 0, 0]], "multilabel", ("label_0", "label_1", "label_2")),
        ([[False, True], [True, True]], "multilabel", ("label_0", "label_1")),
        (["[1, 0]", "[0, 0]", ""], "multilabel", ("label_0", "label_1")),
        (["['joy', 'fear']", "['joy']"], "multilabel", ("fear", "joy")),
        ([[0, 1, 1], [1, 0]], "multilabel", ("0", "1")),
        ([[0], [1]], "multilabel", ("0", "1")),
        ([["a", "b"], []], "multilabel", ("a", "b")),
        (["x|y", "y"], "classification", ("x|y", "y")),
    ],
)
def test_kinds_of_labels(
    tmp_path: Path, labels: list[Any], kind: str, names: tuple[str, ...]
) -> None:
    found = own(tmp_path, jsonl(*labels), name="t.jsonl")
    assert (found.kind, found.labels) == (kind, names)


def test_a_vector_has_a_place_for_each_class_also_in_validation(tmp_path: Path) -> None:
    found = own(tmp_path, jsonl([0, 1, 0], [0, 0, 0]), jsonl([1, 0, 1]), name="t.jsonl")
    assert [e.label for e in (*found.train, *found.validation)] == [(1,), (), (0, 2)]  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"v.jsonl, line 1: label \[1, 0\] must hold 3 numbers 0"):
        own(tmp_path, jsonl([0, 1, 0], [0, 0, 0]), jsonl([1, 0]), name="t.jsonl")
    with pytest.raises(
        UserError, match=r"v.jsonl, line 1: label 'x' is none of the classes label_"
    ):
        own(tmp_path, jsonl("[0, 1, 0]", "[0, 0, 0]"), jsonl("x"), name="t.jsonl")


def test_a_column_for_each_class(tmp_path: Path) -> None:
    text = "text,x,y\na,1,\nb,0,1\nc,,0\nd,nan,\ne,1.0,false\n"
    found = own(tmp_path, text, columns=Columns(label="x,y"))
    assert found.train == (
        Example("a", None, (0,), (1,)),
        Example("b", None, (1,)),
        Example("c", None, (), (0,)),
        Example("e", None, (0,)),
    )
    assert found.notes[1] == "1 examples without a label are left out"


def test_several_labels_between_bars(tmp_path: Path) -> None:
    found = own(tmp_path, "text,label\na,x|y\nb,\nc,nan\n", problem_type="multilabel")
    assert [e.label for e in found.train] == [(0, 1), ()]  # type: ignore[union-attr]


def test_missing_labels_are_left_out_and_empty_texts_counted(tmp_path: Path) -> None:
    for rows in ("a,1.5\nb,\nc,NaN\nd,2\n", "a,x\nb,\nc,nan\nd,y\n"):
        found = own(
            tmp_path, "text,label\n" + rows, "text,label\n,x\ne,y\n" if "x" in rows else None
        )
        assert [e.text for e in found.train] == ["a", "d"]  # type: ignore[union-attr]
        assert "2 examples without a label are left out" in found.notes
    assert f"{tmp_path / 'v.csv'}: 1 of 2 texts are empty" in found.notes
    found = own(tmp_path, jsonl(1, None, 0), name="t.jsonl")
    assert len(found.train) == 2


def test_whole_numbers_of_one_file_and_floats_of_the_other(tmp_path: Path) -> None:
    """pandas writes 1.0 where another cell is empty."""
    found = own(tmp_path, "text,label\na,1\nb,0\n", "text,label\nc,1.0\nd,\n")
    assert found.validation == (Example("c", None, 1),)


@pytest.mark.parametrize(
    ("name", "text", "given", "says"),
    [
        ("t.csv", "a,b,c\nd,e,f\n", {"columns": PLAIN}, r"columns \(0: 'a', 'd'; 1: .*name it"),
        ("t.csv", BARE, {}, "--text-column, and with --no-header if the first line is an example"),
        ("t.csv", BARE, {"columns": Columns(text="7")}, "no column 7; there are 2, counted from 0"),
        ("t.csv", "text,label\na,1\n", {"columns": Columns(text="texd")}, "did you mean 'text'"),
        ("t.csv", "a,x\nb,y\n", {"columns": PLAIN}, r"neither of its columns \(0: 'a', 'b'; 1: "),
        ("t.csv", "text;label\na, b;1\n", {}, "by ';': save it with commas"),
        ("t.csv", "text,label\na,1\n", {"columns": Columns(label="text")}, "and 'text' is two"),
        ("t.csv", "text,a\nx,0\n", {"columns": Columns(label="a,a")}, "and 'a' is two"),
        ("t.csv", "text,x,y\na,1,2\n", {"columns": Columns(label="x,y")}, "'y' must be 0, 1 or em"),
        ("t.csv", "text,label\n,x\n ,y\n", {}, r"every text \('text'\) is empty"),
        ("t.csv", "text,label\na,\nb,nan\n", {}, "t.csv: no example has a label"),
        ("t.csv", "text,label\na,x\nb,x\n", {}, "only the label 'x': nothing to learn"),
        ("t.csv", "text,label\na,0.5\nb,inf\n", {}, "line 3: label 'inf' is not a number"),
        ("t.csv", "text,label\n", {}, "no examples"),
        ("t.csv", "text,label\na,x\nb,y\nc,z\n", {"metrics": ("f1",)}, "f1 is for two classes"),
        ("t.csv", "text,label\na,x\nb,y\n", {"metrics": ("spearman",)}, "has no metric 'spearman'"),
        ("t.jsonl", '{"text": 5, "label": 1}', {}, "line 1: 'text' must be a text, not 5"),
        ("t.jsonl", '{"text": "a", "label": {"x": 1}}', {}, "line 1: 'label' must be a text or"),
        ("t.jsonl", '{"text": "a", "label": []}', {}, "no example has a label"),
        ("t.jsonl", jsonl(["x"]), {"problem_type": "classification"}, "several labels; give --pro"),
        ("t.jsonl", '{"tokens": ["a"], "tags": ["D"]}', {"columns": Columns(text="w")},
         "--text-column is not for this kind of file"),
        ("t.conll", "the D\n", {"columns": Columns(text="w")}, "is a number from 0, not 'w'"),
        ("t.conll", "the D\n", {"columns": PLAIN}, "--no-header is not for this kind of file"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, name: str, text: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        own(tmp_path, text, name=name, **given)


@pytest.mark.parametrize("odd", ["n/a", "0,5", "10.5 %"])
def test_a_label_that_is_not_a_number_among_numbers(tmp_path: Path, odd: str) -> None:
    """It would make a class of each number."""
    labels = [f"{k / 4}" for k in range(20)]
    labels[5] = odd
    with pytest.raises(UserError, match=f"line 6: label '{odd}' is not a number, and most others"):
        own(tmp_path, jsonl(*labels), name="t.jsonl")
    found = own(tmp_path, jsonl(*labels), name="t.jsonl", problem_type="classification")
    assert len(found.labels) == 20
    people = [f"{k},5" for k in range(20)]
    with pytest.raises(UserError, match="line 1: label '0,5' is not a number"):
        own(tmp_path, jsonl(*people), name="t.jsonl")


def test_notes_on_the_two_files(tmp_path: Path) -> None:
    train = "text,label\none,a\ntwo,b\nthree,c\n"
    found = own(tmp_path, train, "text,label\ntwo,b\nfour,a\n")
    assert found.notes == (
        "1 of 2 validation examples also occur in the training set. Scores are optimistic.",
        "columns: text 'text', label 'label'",
        "task: classification, 3 classes (a, b, c)",
        "no validation example has the class c: no score shows how it is learnt",
    )
    with pytest.raises(UserError, match=r"v.csv, line 2: label 'z' is none of the classes a, b, c"):
        own(tmp_path, train, "text,label\ntwo,z\n")


def test_tags_of_two_files(tmp_path: Path) -> None:
    """They may be in different schemes, and some may be in one file only."""
    found = own(tmp_path, "a O\nfilm I-X\nplot I-X\n", "a O\nfilm B-X\nbig B-Y\n", name="t.conll")
    assert found.train == (Sentence(("a", "film", "plot"), ("O", "B-X", "I-X")),)
    assert found.notes == (
        "1 validation words have tags that no training word has (B-Y). They count as wrong.",
    )
    with pytest.raises(UserError, match=r"none of the validation tags \(X, Y\) is a training tag"):
        own(tmp_path, "the D\nchef N\n", "the X\ncooks Y\n", name="t.conll")


def test_the_name_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "bbbp").mkdir()
    for name, wanted in (("train.csv", "bbbp"), ("cola.csv", "own-cola"), ("m.v2.csv", "m")):
        (tmp_path / "bbbp" / name).write_text("text,label\na,1\nb,0\n")
        path = str(tmp_path / "bbbp" / name)
        assert read_own(path, None, columns=Columns()).name == wanted


def test_from_one_file(tmp_path: Path) -> None:
    path = tmp_path / "molecules.csv"
    path.write_text("smiles,category\n" + "".join(f"C{k},{'ab'[k % 2]}\n" for k in range(40)))
    asked = dict.fromkeys(("task", "text_column", "pair_column", "label_column", "validation_file"))
    asked |= {"train_file": str(path), "validation_fraction": 0.25, "header": True}
    options: Any = SimpleNamespace(**asked, problem_type="auto", metrics=(), seed=0)
    (found,) = read_asked(options)
    assert (len(found.train), len(found.validation), found.labels) == (30, 10, ("a", "b"))
    assert len(found.notes) == 2
