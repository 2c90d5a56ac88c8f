"""Columns by number, files without a header, and cells that say nothing."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from electrify.downstream.baselines import TFIDF, baseline_one
from electrify.downstream.examples import Example, Partly
from electrify.downstream.metrics import score
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.read.columns import Columns
from electrify.downstream.read.own import read_own
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError
from electrify.inference.options import PredictConfig
from electrify.inference.source import Files

BARE = "good film,1\nbad film,0\n"
PLAIN = Columns(header=False)


def own(folder: Path, text: str, columns: Columns, *, name: str = "t.csv") -> TaskData:
    path = folder / name
    path.write_text(text)
    return read_own(str(path), str(path), columns=columns)


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("t.csv", BARE, PLAIN),
        ("t.csv", "1,good film\n0,bad film\n", PLAIN),
        ("t.tsv", BARE.replace(",", "\t"), PLAIN),
        ("t.csv", "x,good film,1\ny,bad film,0\n", Columns(text="1", label="2", header=False)),
        ("t.csv", f"molecule,p_np\n{BARE}", Columns(text="0", label="1")),
        ("t.csv", f"molecule,label\n{BARE}", Columns(text="molecule")),
    ],
)
def test_the_same_examples(tmp_path: Path, name: str, text: str, columns: Columns) -> None:
    found = own(tmp_path, text, columns, name=name)
    assert found.train == (Example("good film", None, 1), Example("bad film", None, 0))


def test_labels_that_are_longer_than_the_texts(tmp_path: Path) -> None:
    """The longer column was taken for the text, and the names for classes."""
    found = own(tmp_path, "Li,Chinese\nMeier,German\nWang,Chinese\nHuber,German\n", PLAIN)
    assert found.labels == ("Chinese", "German")
    assert [one.text for one in found.train] == ["Li", "Meier", "Wang", "Huber"]  # type: ignore[union-attr]
    assert "column 0 is read as the text, and column 1 as the label" in found.notes
    found = own(tmp_path, "3.5,a film\n1.25,one plot\n", PLAIN)  # no value repeats
    assert found.kind == "regression"
    named = own(tmp_path, BARE, Columns(text="0", label="1", header=False))
    assert not any("is read as" in note for note in named.notes)


@pytest.mark.parametrize("columns", [Columns(), Columns(text="text")])
def test_another_sign_between_the_columns(tmp_path: Path, columns: Columns) -> None:
    for text in ("text;label\ngood film;1\n", "text;label\ngood, film;1\n"):
        with pytest.raises(UserError, match="to be separated by ';': save it with commas"):
            own(tmp_path, text, columns)
    with pytest.raises(UserError, match="to be separated by tabs: name the file"):
        own(tmp_path, "text\tlabel\ngood film\t1\n", columns)


def test_a_column_may_be_called_like_a_number(tmp_path: Path) -> None:
    found = own(tmp_path, "1,0\na,x\nb,y\n", Columns(text="1", label="0"))
    assert [one.text for one in found.train] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "columns", "says"),
    [
        ("a,b,c\nd,e,f\n", PLAIN, r"columns \(0: 'a', 'd'; 1: 'b', 'e'; .*name it with --text"),
        (BARE, Columns(), "name it with --text-column, and with --no-header if the first line is"),
        (BARE, Columns(text="7", header=False), "no column 7; there are 2, counted from 0"),
        (BARE, Columns(text="1", label="1", header=False), "are both '1'"),
        ("a,1\nb\n", PLAIN, "line 2: 1 columns, expected 2"),
        ("a,x\nb,y\n", PLAIN, r"neither of its columns \(0: 'a', 'b'; 1: .* with --text-column"),
        ("a,1.5\na,2.5\n", PLAIN, "is clearly that of the labels; name both with --text-column"),
        (BARE, Columns(pair="7", header=False), "name it with --text-column"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, columns: Columns, says: str) -> None:
    with pytest.raises(UserError, match=says):
        own(tmp_path, text, columns)


@pytest.mark.parametrize(
    ("name", "text"), [("t.jsonl", '{"text": "a", "label": 1}\n'), ("t.conll", "a N\n")]
)
def test_only_tables_lack_a_header(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UserError, match="--no-header is"):
        own(tmp_path, text, PLAIN, name=name)


def test_it_is_for_own_files() -> None:
    with pytest.raises(UserError, match="header is for your own files"):
        FinetuneConfig(models=("m",), output_dir="o", task=("cola",), header=False)
    with pytest.raises(UserError, match="metrics is for your own files"):
        FinetuneConfig(models=("m",), output_dir="o", task=("cola",), metrics=("f1",))


def test_new_texts_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text('1,"good, film"\n2,bad film\n')
    options = PredictConfig(model="m", files=(str(path),), header=False, text_column="1")
    items = list(Files(options, "classification"))
    assert [item.example.text for item in items] == ["good, film", "bad film"]  # type: ignore[union-attr]
    assert items[0].columns == {"0": "1", "1": "good, film"}
    path.write_text("CCO\nCCN\n")
    options = PredictConfig(model="m", files=(str(path),), header=False)
    assert len(list(Files(options, "classification"))) == 2
    with pytest.raises(UserError, match=r"--no-header is for \.csv and \.tsv"):
        Files(PredictConfig(model="m", files=("new.txt",), header=False), "classification")


BLANKS = "text,x,y\na,1,\nb,0,1\nc,,0\nd,nan,\ne,1.0,0\n"


def test_empty_cells_are_not_known(tmp_path: Path) -> None:
    found = own(tmp_path, BLANKS, Columns(label="x,y"))
    assert found.train == (
        Partly("a", None, (0,), (1,)),
        Example("b", None, (1,)),
        Partly("c", None, (), (0,)),
        Example("e", None, (0,)),
    )
    assert found.notes[-1] == "2 examples have no label at all and are left out"


def test_a_class_of_which_no_validation_example_says_anything() -> None:
    rows = np.array([[1, -1], [0, -1]])
    found = score(["macro_f1", "micro_f1", "accuracy"], rows, np.array([[1, 0], [0, 1]]))
    assert found == {"macro_f1": 1.0, "micro_f1": 1.0, "accuracy": 1.0}
    nothing = score(["macro_f1", "micro_f1"], np.full((2, 2), -1), np.zeros((2, 2)))
    assert all(map(math.isnan, nothing.values()))


def test_a_model_learns_from_what_is_known(zoo: Path, tmp_path: Path) -> None:
    """Half of the cells are empty. What they would have said is never seen, and never scored."""
    rows = [
        (f"{opening} {thing} {word}", str(int(thing == "film")), str(int(word == "good")))
        for opening in ("it is the", "not a", "one", "the very")
        for thing in ("film", "plot")
        for word in ("good", "bad", "was")
    ]
    blank = [
        (t, "" if k % 4 == 1 else x, "" if k % 4 == 2 else y) for k, (t, x, y) in enumerate(rows)
    ]
    text = "text,film,good\n" + "".join(",".join(row) + "\n" for row in blank)
    task = own(tmp_path, text, Columns(label="film,good"))
    # Until it has learnt them: after 60 epochs, a rounding decides whether accuracy is above 0.8.
    settings = FinetuneSettings(
        num_train_epochs=180,
        max_seq_length=16,
        bf16="false",
        learning_rate=5e-3,
        layerwise_lr_decay=1.0,
        per_device_train_batch_size=8,
        dropout=0.0,
        class_weights="balanced",
    )
    found = finetune_one(str(zoo / "electra"), task, seed=0, settings=settings)
    assert found.scores["roc_auc"] > 0.9
    assert found.scores["accuracy"] > 0.8
    table = list(csv.DictReader(io.StringIO(found.files["t-validation.csv"])))
    assert [row["text"] for row in table] == [row[0] for row in rows]
    assert table[1]["label"] == "?film"
    assert table[0]["label"] == "film|good"
    right = [
        (float(row["probability of film"]) > 0.5) == ("film" in row["prediction"]) for row in table
    ]
    assert all(right)
    assert baseline_one(TFIDF, task, seed=0, settings=settings).scores["roc_auc"] == 1.0


def test_a_file_whose_name_says_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "bbbp"
    folder.mkdir()
    assert own(folder, BARE, PLAIN, name="train.csv").name == "bbbp"
    assert own(folder, BARE, PLAIN, name="molecules.v2.csv").name == "molecules"
