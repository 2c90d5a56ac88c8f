"""Files of new texts: every layout, the columns that stay, what is written where, mistakes, and
memory that does not grow with the file."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from electrify import PredictConfig, UserError, predict_files
from electrify.downstream.read import files
from electrify.downstream.read.own import read_own
from electrify.downstream.reading import noted
from electrify.downstream.tasks import Kind
from electrify.inference import source
from electrify.inference.sentences import split, untagged
from electrify.inference.source import Files
from electrify.text.small_files import lines_of
from small import Process, mistake, run

ROWS = [("1", "the film was good"), ("2", 'a "very, very" bad\nplot'), ("3", "")]


def classifier(folder: Path, model: Path, cls: Any = AutoModelForSequenceClassification) -> Path:
    cls.from_pretrained(model, num_labels=2).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    tagger = classifier(root / "tagger", zoo / "bert", AutoModelForTokenClassification)
    return {"classes": str(classifier(root / "classes", zoo / "bert")), "tags": str(tagger)}


def table(path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as f:
        csv.writer(f).writerows([("id", "text"), *ROWS])
    return path


def predicted(model: str, path: Path, ending: str, **more: Any) -> str:
    out = path.parent / f"out{ending}"
    predict_files(PredictConfig(model=model, files=(str(path),), output_file=str(out), **more))
    assert not list(path.parent.glob(".out*"))
    return out.read_text("utf-8")


def test_columns_stay_in_every_format(models: dict[str, str], tmp_path: Path) -> None:
    path = table(tmp_path / "new.csv")
    found = list(csv.reader(predicted(models["classes"], path, ".csv").splitlines(keepends=True)))
    assert found[0] == ["id", "text", "predicted_label", "probability"]
    assert [tuple(row[:2]) for row in found[1:]] == ROWS
    rows = [json.loads(x) for x in predicted(models["classes"], path, ".jsonl").splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == ROWS
    assert [row["predicted_label"] for row in rows] == [row[2] for row in found[1:]]
    tabs = [
        line.split("\t")
        for line in predicted(models["classes"], path, ".tsv", probabilities=True).splitlines()
    ]
    assert tabs[0][4:] == ["probability_LABEL_0", "probability_LABEL_1"]
    assert {len(row) for row in tabs} == {6}
    assert tabs[2][1] == 'a "very, very" bad plot'  # its line break is a blank
    assert sum(map(float, tabs[1][4:])) == pytest.approx(1, abs=1e-6)


def test_a_device_without_numbers(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = mistake(capsys, "predict", models["classes"], table(tmp_path / "a.csv"), "--device=meta")
    assert "device 'meta' is not here" in said


def test_columns_are_looked_up_and_not_searched(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of 20,000 columns took seconds a row."""
    path = tmp_path / "wide.csv"
    head = ["text", *(f"c{k}" for k in range(300))]
    path.write_text(",".join(head) + "\n" + ",".join(["a film"] * len(head)) + "\n")
    asked = 0

    class Counted(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal asked
            asked += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    real = Files.check
    heads = lambda self: replace(h := real(self), columns=tuple(map(Counted, h.columns)))  # noqa: E731
    monkeypatch.setattr(Files, "check", heads)
    assert len(predicted(models["classes"], path, ".csv").splitlines()) == 2
    assert asked < 10 * len(head)


def test_a_tagger_takes_columns_words_and_texts(models: dict[str, str], tmp_path: Path) -> None:
    columns = tmp_path / "new.txt"
    columns.write_text("the DT\nfilm NN\n\nbad JJ\n\n", encoding="utf-8")
    rows = predicted(models["tags"], columns, ".tsv").splitlines()
    assert [row.split("\t")[:2] for row in rows] == [
        ["the", "DT"], ["film", "NN"], [""], ["bad", "JJ"], [""],
    ]  # fmt: skip
    said = list(csv.reader(predicted(models["tags"], columns, ".csv").splitlines()))
    assert [row[:2] for row in said[1:]] == [["1", "the"], ["1", "film"], ["2", "bad"]]
    assert [row[3:] for row in said] == [["1"], ["DT"], ["NN"], ["JJ"]]
    (first, _) = map(json.loads, predicted(models["tags"], columns, ".jsonl").splitlines())
    assert (first["words"], first["1"]) == (["the", "film"], ["DT", "NN"])
    words = tmp_path / "words.jsonl"
    words.write_text('{"tokens": ["the", "film"], "n": 1}\n', encoding="utf-8")
    (row,) = map(
        json.loads, predicted(models["tags"], words, ".jsonl", overwrite=True).splitlines()
    )
    assert (row["n"], row["predicted_tags"]) == (1, [r.split("\t")[2] for r in rows[:2]])
    plain = tmp_path / "plain.txt"
    plain.write_text("The film isn't good.\n\nwas it?\n", encoding="utf-8")
    found = predicted(models["tags"], plain, ".jsonl", overwrite=True).splitlines()
    assert [json.loads(x)["words"] for x in found] == [
        ["The", "film", "isn't", "good", "."], [], ["was", "it", "?"],
    ]  # fmt: skip


def test_every_column_of_a_treebank_stays(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words are in the second; files of another width fit into a .tsv beside it, whose lines
    are those of the input."""
    lines = [f"{k}\t{word}\t" + "\t".join("abcdefgh") for k, word in ((1, "the"), (2, "film"))]
    path = tmp_path / "a.conllu"
    path.write_text("# text = the film\n" + "\n".join(lines) + "\n\n")
    head, *rows = csv.reader(predicted(models["tags"], path, ".csv").splitlines())
    assert head == ["sentence", "word", "predicted_tag", "0", *map(str, range(2, 10))]
    assert [row[1:2] + row[3:] for row in rows] == [
        ["the", "1", *"abcdefgh"], ["film", "2", *"abcdefgh"],
    ]  # fmt: skip
    (found,) = map(json.loads, predicted(models["tags"], path, ".jsonl").splitlines())
    assert (found["words"], found["0"], found["9"]) == (["the", "film"], ["1", "2"], ["h", "h"])
    other = tmp_path / "b.conll"
    other.write_text("the D\nfilm N\n")
    capsys.readouterr()
    assert run("predict", models["tags"], str(path), str(other)) == 0
    said = capsys.readouterr()
    assert [x.rpartition("\t")[0] for x in said.out.splitlines()][:2] == lines
    assert "leave no place" not in said.err
    out = str(tmp_path / "both.csv")
    told = mistake(capsys, "predict", models["tags"], path, other, "--output-file", out)
    assert "b.conll has other columns than" in told


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("the D\nchef N\n\na D\n", True),
        ("-DOCSTART- -X-\n\nthe D\nchef N\n", True),
        ("The chef cooked the meal .\n\n", False),
        ("\n\nthe chef\n", False),
        ("the chef\na bird\n\n", False),
        ("The chef cooked.\n\nA bird sings.\n", False),
    ],
)
def test_a_blank_line_alone_does_not_make_columns(
    models: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    columns: bool,
) -> None:
    """Of texts that were taken for columns, all but the first word of each line stayed untagged."""
    path = tmp_path / "new.txt"
    path.write_text(text, encoding="utf-8")
    rows = [json.loads(x) for x in predicted(models["tags"], path, ".jsonl").splitlines()]
    assert ("text" not in rows[0]) == columns
    if not columns:
        assert [row["words"] for row in rows] == [list(split(x)) for x in text.splitlines()]
    assert ("new.txt is read as columns" in capsys.readouterr().err) == columns


TABLE = (("1", "the cat runs"), ("2", "a big dog"))


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ((("id", "text"),), {}),
        ((("id", "text"),), {"text_column": "1"}),
        ((("id", "note"),), {"text_column": "note"}),
        ((), {"text_column": "1", "header": False}),
    ],
)
def test_a_tsv_of_texts_is_tagged_like_the_csv(
    models: dict[str, str], tmp_path: Path, head: tuple[tuple[str, str], ...], more: dict[str, Any]
) -> None:
    """Its header and its rows were tagged as single words."""
    found = []
    for ending, sign in ((".tsv", "\t"), (".csv", ",")):
        path = tmp_path / f"new{ending}"
        path.write_text("".join(sign.join(row) + "\n" for row in (*head, *TABLE)))
        found.append(predicted(models["tags"], path, ".jsonl", **more, overwrite=True))
    assert found[0] == found[1]
    rows = [json.loads(line) for line in found[0].splitlines()]
    assert [row["words"] for row in rows] == [text.split(" ") for _, text in TABLE]


def test_a_tsv_that_is_taken_for_columns_is_told(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("x\tthe\ny\tfilm\n\nx\tgood\n")
    for column, place in ((None, "the first"), ("1", "number 1")):
        predicted(models["tags"], path, ".jsonl", text_column=column, overwrite=True)
        said = f"new.tsv is read as columns, the words in {place}; if it holds texts, give them"
        assert said in capsys.readouterr().err


def test_words_beside_the_text_that_is_tagged(models: dict[str, str], tmp_path: Path) -> None:
    """The tags stood beside the row's own words, of which there may be others."""
    path = tmp_path / "new.jsonl"
    row = {"tokens": ["good"], "text": "the film was bad"}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"text": "good"}) + "\n")
    found = predicted(models["tags"], path, ".jsonl", text_column="text").splitlines()
    one, two = map(json.loads, found)
    assert one["words"] == ["the", "film", "was", "bad"]
    assert len(one["predicted_tags"]) == 4
    assert one["tokens"] == two["tokens"] == two["words"] == ["good"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.fa", ">p1 the first\nMKV LAA\nGIV\n;old\n>p2\n>\nSTOP*", [
            {"name": "p1 the first", "sequence": "MKVLAAGIV"},
            {"name": "p2", "sequence": ""},
            {"name": "", "sequence": "STOP*"},
        ]),
        ("a.smi", "SMILES\tID\nCCO\tethanol\n\nc1ccccc1 a ring\n[Na+]", [
            {"smiles": "CCO", "name": "ethanol"},
            {"smiles": "c1ccccc1", "name": "a ring"},
            {"smiles": "[Na+]", "name": ""},
        ]),
    ],
)  # fmt: skip
def test_sequences_and_molecules_keep_their_names(
    models: dict[str, str], tmp_path: Path, name: str, text: str, expected: list[dict[str, str]]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    rows = [json.loads(x) for x in predicted(models["classes"], path, ".jsonl").splitlines()]
    assert [
        {k: v for k, v in row.items() if "pre" not in k and "prob" not in k} for row in rows
    ] == expected
    assert all(row["predicted_label"] in ("LABEL_0", "LABEL_1") for row in rows)


@pytest.mark.parametrize("name", ["a.smi", "a.fa", "a.txt"])
def test_a_line_end_of_another_kind_inside(
    models: dict[str, str], tmp_path: Path, name: str
) -> None:
    """A record was lost, and its text taken for a name."""
    path = tmp_path / name
    path.write_bytes(b">x\r\nCCO a\r\nCC b\rCCC c\nC d\n")
    with pytest.raises(UserError, match=r"line 3: a carriage return inside the line"):
        predicted(models["classes"], path, ".csv")


def test_lines_before_the_first_name(models: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.fasta"
    path.write_text("\nACGT\n>x\nACGT\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.fasta, line 2 comes before the first '>'"):
        predicted(models["classes"], path, ".csv")


@given(st.text())
@settings(max_examples=50)
def test_splitting_loses_no_character_but_blanks(text: str) -> None:
    assert "".join(split(text)) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा।", ("हिन्दी", "भाषा", "।")),
        ("தமிழ் สวัสดี", ("தமிழ்", "สวัสดี")),
        ("re\u0301sume\u0301-ku, n'e\u0301", ("re\u0301sume\u0301-ku", ",", "n'e\u0301")),
        ("می\u200cخواهم", ("می\u200cخواهم",)),
        ("\u2764\ufe0f 1\ufe0f\u20e3", ("\u2764\ufe0f", "1\ufe0f\u20e3")),
        ("\u0301a\u200bb", ("\u0301", "a", "\u200b", "b")),
    ],
)
def test_marks_belong_to_the_character_before_them(text: str, words: tuple[str, ...]) -> None:
    assert split(text) == words


@pytest.mark.parametrize(
    ("content", "column", "header", "found"),
    [
        ("EU rejects German,x\nPeter Blackburn calls,y\n", "0", False, None),
        ("id,note\n7,EU rejects German\n8,Peter Blackburn calls\n", "1", True, None),
        ("EU rejects German\nPeter Blackburn calls\n", None, False, None),
        ("note\nEU rejects German\nPeter Blackburn calls\n", None, True, None),
        ("id,note\n7,EU\n", "2", True, "there are 2, counted from 0"),
    ],
)
def test_a_numbered_column_of_a_csv_holds_texts(
    tmp_path: Path, content: str, column: str | None, header: bool, found: str | None
) -> None:
    """It is a table, and not a file with a word on each line."""
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8")

    def words() -> list[tuple[str, ...]]:
        return [s.words for s in untagged(str(path), column, lambda n: None, header=header)]

    if found is None:
        assert words() == [("EU", "rejects", "German"), ("Peter", "Blackburn", "calls")]
    else:
        with pytest.raises(UserError, match=found):
            words()


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=6))
@settings(max_examples=50)
def test_lines_are_those_of_the_whole_text(parts: list[str]) -> None:
    """Whatever the line ends, and wherever a piece ends."""
    text = "\n".join(parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(text.encode())
        assert read(lambda: list(files.bare(files.lines(path)))) == read(
            lambda: lines_of(files.whole(path))
        )


def read(call: Callable[[], list[str]]) -> list[str] | str:
    """The lines, or what is wrong with them."""
    try:
        return call()
    except UserError as e:
        return str(e)


def test_line_ends_that_change(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_bytes(b"good \r" * 300_000 + b"\nbad\n")
    with pytest.raises(UserError, match="carriage returns at first and with line feeds later"):
        list(files.lines(path))


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".tsv"])
def test_a_cell_that_cannot_be_written_again(
    models: dict[str, str], tmp_path: Path, ending: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "good", "x": "\\ud800"}\n')
    with pytest.raises(UserError, match="line 1: 'x' holds half a surrogate pair"):
        predicted(models["classes"], path, ending)
    path.write_text('{"text": "good", "x": ["\\ud800"]}\n')
    with pytest.raises(UserError, match="line 1: 'x' holds half a surrogate pair"):
        predicted(models["tags"], path, ending)


def test_a_carriage_return_within_a_text(models: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "good\\rbad"}\n{"text": "bad"}\n')
    found = predicted_rows(models["classes"], path)
    assert [row["text"] for row in found] == ["good\rbad", "bad"]


def predicted_rows(model: str, path: Path) -> list[dict[str, str]]:
    out = path.parent / "rows.csv"
    predict_files(PredictConfig(model=model, files=(str(path),), output_file=str(out)))
    with out.open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "does not give each of 2 outputs a name"),
        ({"id2label": {"-1": "a", "0": "b"}}, "does not give each of 2 outputs a name"),
        ({"id2label": {"0": None, "1": "b"}}, "does not give each of 2 outputs a name"),
        ({"problem_type": "regression"}, "regression, which has one value, and 2 outputs"),
    ],
)
def test_names_of_outputs_that_are_missing(
    models: dict[str, str], tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models["classes"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    path = tmp_path / "in.txt"
    path.write_text("good\n")
    with pytest.raises(UserError, match=says):
        predicted(str(folder), path, ".csv")


def test_a_forged_length_is_not_believed(models: dict[str, str], tmp_path: Path) -> None:
    assert noted(SimpleNamespace(electrify={"max_seq_length": 3})).max_seq_length is None
    assert noted(SimpleNamespace(electrify={"max_seq_length": 16})).max_seq_length == 16


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (10**400, None),
        (-(10**400), None),
        (1e31, None),
        (float("inf"), None),
        (float("nan"), None),
        (True, None),
        ("1", None),
        (-1e30, -1e30),
        (3, 3),
    ],
)
def test_a_threshold_that_is_not_a_score_is_not_believed(
    given: object, taken: float | None
) -> None:
    found = noted(SimpleNamespace(electrify={"no_answer_threshold": given}))
    assert found.no_answer_threshold == taken


def test_what_was_cut_is_said(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.txt"
    path.write_text("very " * 18 + "\ngood\n" + "very " * 70 + "\nbad\n", encoding="utf-8")
    predicted(models["classes"], path, ".csv", max_seq_length=16)
    assert (
        "50.0 % of the texts (2 of 4) were cut to 16 tokens; --max-seq-length 40 is the most "
        in (capsys.readouterr().err)
    )
    path.write_text("very " * 18 + "\ngood\n", encoding="utf-8")
    assert run("predict", models["classes"], str(path), "--json", "--max-seq-length", "16") == 0
    said = capsys.readouterr()
    assert [json.loads(line)["text"] for line in said.out.splitlines()] == ["very " * 18, "good"]
    assert "(1 of 2) were cut to 16 tokens; --max-seq-length 20 holds all of them" in said.err


def test_the_folder_of_a_fine_tuning_stands_for_its_model(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it holds one; of several the user names one, as before."""
    path = table(tmp_path / "new.csv")
    scores = tmp_path / "scores"
    (scores / "models").mkdir(parents=True)
    (scores / "scores.jsonl").touch()
    assert "holds scores and no model" in mistake(capsys, "predict", str(scores), str(path))
    shutil.copytree(models["classes"], scores / "models" / "one")
    alone = predicted(models["classes"], path, ".csv")
    (tmp_path / "out.csv").unlink()
    assert predicted(str(scores), path, ".csv") == alone
    assert run("predict", str(scores), str(path)) == 0
    shutil.copytree(models["tags"], scores / "models" / "two")
    said = mistake(capsys, "predict", str(scores), str(path))
    assert f"holds 2 models; name one of {scores / 'models' / 'one'}, " in said
    assert run("predict", str(scores / "models" / "one"), str(path)) == 0


def test_a_second_text_that_is_not_read_is_not_looked_at(
    models: dict[str, str], tmp_path: Path
) -> None:
    """A model that was trained on single texts: neither that one file has such a column and
    another has none, nor what is in it, is a mistake."""
    model = tmp_path / "model"
    shutil.copytree(models["classes"], model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"electrify": {"pairs": False}}))
    (tmp_path / "a.csv").write_text("text,sentence2\na film,b\n")
    (tmp_path / "b.csv").write_text("text\na film\n")
    (tmp_path / "c.jsonl").write_text('{"text": "a film", "sentence2": null}\n')
    for name, status in ((str(model), 0), (models["classes"], 2)):
        assert run("predict", name, str(tmp_path / "c.jsonl")) == status
        files = (str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
        assert run("predict", name, *files, "--json") == status


@pytest.mark.parametrize("name", ["folder", "folder.csv", "folder.json"])
def test_a_folder_is_not_a_file_of_texts(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    says = f"{folder} is a folder; give the files in it"
    assert says in mistake(capsys, "predict", models["classes"], str(folder))
    for kind in get_args(Kind):
        with pytest.raises(UserError, match=re.escape(says)):
            Files(PredictConfig(model="m", files=(str(folder),)), kind)
    with pytest.raises(UserError, match=re.escape(says)):
        read_own(str(folder), str(folder))


MISTAKES = [
    (["new.csv", "missing.csv"], "missing.csv: no such file"),
    (["new.csv", "--text-column", "txet"], "no column 'txet'; did you mean 'text'?"),
    (["new.csv", "other.csv", "--output-file", "out.csv"], "other.csv has other columns than"),
    (["new.csv", "--output-file", "there.csv"], "there.csv is there already; choose another"),
    (["new.csv", "--output-file", "new.csv", "--overwrite"], "new.csv is read and cannot be"),
    (["new.csv", "--output-file", "out.txt"], "--output-file must end in .csv"),
    (["new.csv", "--output-file", "no/out.csv"], "no: no such folder; make it first"),
    (["new.csv", "--threshold", ".4"], "--threshold is for several labels"),
    (["new.csv", "--max-seq-length", "400"], "reads 40 tokens at most"),
    (["taken.csv"], "the input has a column 'probability' already"),
    (["empty.txt"], "empty.txt: no texts"),
    (["half.csv", "--output-file", "out.csv"], "half.csv, line 3: 1 columns, expected 2"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_leave_nothing(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], words: list[str], says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "new.csv")
    (tmp_path / "other.csv").write_text("text\na\n", encoding="utf-8")
    (tmp_path / "there.csv").write_text("mine", encoding="utf-8")
    (tmp_path / "taken.csv").write_text("text,probability\na,1\n", encoding="utf-8")
    (tmp_path / "half.csv").write_text("text,n\na,1\nb\n", encoding="utf-8")
    (tmp_path / "empty.txt").touch()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert says in mistake(capsys, "predict", models["classes"], *words)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["q.txt", "q.fa", "q.docx"])
def test_files_that_hold_no_questions(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(">a\nb\n")
    options = PredictConfig(model="m", files=(str(path),))
    says = rf"{name}: questions are read from .json, .csv, .tsv and .jsonl files, not '\.\w+'"
    with pytest.raises(UserError, match=says):
        Files(options, "answering").check()


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_another_separator_than_the_ending_says(tmp_path: Path, kind: Any) -> None:
    """Text and label together were taken for the text."""
    cases = (("a.csv", ";"), ("b.csv", "\t"), ("c.tsv", ";"), ("d.tsv", ","))
    for name, sign in cases if kind == "classification" else cases[:2]:
        path = tmp_path / name
        path.write_text(f"note{sign}label\na nice film{sign}1\n")
        options = PredictConfig(model="m", files=(str(path),))
        says = (
            rf"{name}: its only column is called 'note.*label'; the columns seem to be separated by"
        )
        with pytest.raises(UserError, match=says):
            Files(options, kind).check()
        Files(replace(options, text_column="0"), kind).check()
        Files(replace(options, header=False), kind).check()
    path = tmp_path / "one.csv"
    path.write_text("a note\nbad; not good\n")
    (item,) = Files(PredictConfig(model="m", files=(str(path),)), kind)
    assert item.columns == {"a note": "bad; not good"}
    path.write_text('"a note, in full"\n"bad, not good"\n')
    (item,) = Files(PredictConfig(model="m", files=(str(path),)), kind)
    assert item.columns == {"a note, in full": "bad, not good"}


@pytest.mark.slow
def test_a_stopped_command_leaves_no_half_file(models: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("the film was very very good\n" * 400_000, encoding="utf-8")
    out = tmp_path / "out.csv"
    words = ["predict", models["classes"], str(path), "--output-file", str(out)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = Process(words, tmp_path / "stderr.txt")
        assert process.wait_for(lambda: any(tmp_path.glob(".out.csv.*.part")))
        process.signal(number)
        assert process.end().status == (143 if number == signal.SIGTERM else -9)
        assert not out.exists()
        assert bool(list(tmp_path.glob(".out.csv.*.part"))) == (number == signal.SIGKILL)


MEMORY = """
import resource, sys
from electrify import PredictConfig, predict_files
model, path = sys.argv[1:]
predict_files(PredictConfig(model=model, files=(path,), output_file=path + ".out.jsonl"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(models: dict[str, str], tmp_path: Path) -> None:
    """20 times the file, the same memory up to 60 MB: for 2 GB it would be the same again, but
    take an hour."""
    peaks = []
    for megabytes in (4, 80):
        path = tmp_path / f"{megabytes}.txt"
        with path.open("w", encoding="utf-8") as f:
            for k in range(megabytes * 250):
                f.write("the film was very very good " * 142 + f"{k}\n")
        process = Process([models["classes"], str(path)], tmp_path / "e", ("-c", MEMORY))
        done = process.end(seconds=1500)
        assert done.status == 0, done.err
        peaks.append(int(done.out) // 1024)
        with open(f"{path}.out.jsonl", encoding="utf-8") as f:
            assert sum(1 for _ in f) == megabytes * 250
    assert peaks[1] - peaks[0] < 60, peaks


def test_reading_holds_one_block(tmp_path: Path, models: dict[str, str]) -> None:
    """Blocks are bounded by items and by characters, whatever the texts are."""
    path = tmp_path / "texts.jsonl"
    with path.open("w", encoding="utf-8") as f:
        for k in range(30):
            f.write(json.dumps({"text": "x" * 300_000, "k": k}) + "\n")
    options = PredictConfig(model="m", files=(str(path),))
    blocks = list(Files(options, "classification").blocks())
    assert [len(block) for block in blocks] == [7, 7, 7, 7, 2]
    assert [item.columns["k"] for block in blocks for item in block] == list(range(30))
    assert os.path.getsize(path) > 9_000_000
    assert sys.getsizeof(blocks[0][0].columns["text"]) > 300_000


def test_blocks_are_bounded_by_lists_of_json_too(tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    line = json.dumps({"text": "a text", "notes": ["x" * (1 << 20)] * 4}) + "\n"
    path.write_text(line * 20)
    options = PredictConfig(model="m", files=(str(path),))
    sizes = [len(block) for block in Files(options, "classification").blocks()]
    assert sizes == [8, 8, 4]


def test_blocks_are_bounded_by_what_is_carried_through(tmp_path: Path) -> None:
    """Short texts beside a column of 2 MB: a block of as many items as otherwise would hold 16
    GB."""
    path = tmp_path / "wide.csv"
    wide = "x" * (1 << 21)
    with path.open("w", encoding="utf-8", newline="") as f:
        csv.writer(f).writerows([("text", "note"), *((f"text {k}", wide) for k in range(40))])
    options = PredictConfig(model="m", files=(str(path),))
    sizes = [len(block) for block in Files(options, "classification").blocks()]
    assert sizes == [16, 16, 8]


def test_tags_of_a_table(
    models: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Sentences keep their number, and their row's other columns, over all blocks; what a line of
    a word and its tag has no place for is refused, or told."""
    monkeypatch.setattr(source, "BLOCK_ITEMS", 2)
    path = tmp_path / "new.csv"
    path.write_text("id,text\n" + "".join(f"n{k},the film {k}\n" for k in range(5)))
    rows = list(csv.DictReader(predicted(models["tags"], path, ".csv").splitlines()))
    assert list(rows[0]) == ["sentence", "word", "predicted_tag", "id"]
    assert [(r["sentence"], r["word"], r["id"]) for r in rows] == [
        (str(k + 1), word, f"n{k}") for k in range(5) for word in ("the", "film", str(k))
    ]
    out = str(tmp_path / "tags.tsv")
    for more, way in ((["--output-file", out], ".csv and .jsonl have one"), ([], "--json has one")):
        assert run("predict", models["tags"], str(path), *more) == 0
        said = capsys.readouterr()
        assert f"leave no place for the column 'id'; {way}" in said.out + said.err
    words = tmp_path / "words.jsonl"
    words.write_text('{"tokens": ["the", "film"], "n": 1}\n{"tokens": ["good"], "m": 2}\n')
    says = "a row has a column 'm' that the first row does not have"
    assert says in mistake(
        capsys, "predict", models["tags"], words, "--output-file", out[:-3] + "csv"
    )
    taken = tmp_path / "taken.csv"
    taken.write_text("text,word\nthe film,x\n")
    said = mistake(capsys, "predict", models["tags"], taken, "--output-file", out[:-3] + "csv")
    assert "has a column 'word' already" in said
