"""Files of tasks: whatever bytes they hold, a reader gives examples or one sentence that names the
file. Broken rows of every kind have their tests in tests/downstream (test_readers.py,
test_conll_reader.py, test_squad_reader.py); here are files cut and changed anywhere, and what is no
file.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.downstream.glue_tasks import GLUE
from electrify.downstream.read.glue import read_glue
from electrify.downstream.read.own import read_own
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError
from electrify.scoring.blimp import read_blimp
from small import mistake

CONTEXT = "Paris is the capital of France."
ANSWER = {"text": "Paris", "answer_start": 0}
QUESTION = {"id": "q", "question": "Which?", "answers": [ANSWER], "is_impossible": False}
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "A",
            "paragraphs": [{"context": CONTEXT, "qas": [QUESTION, QUESTION | {"id": "r"}]}],
        }
    ],
}
UD = (
    "".join(
        f"{i}\t{w}\t{w}\t{t}\t_\t_\t0\t_\t_\t_\n"
        for i, (w, t) in enumerate((("the", "DET"), ("chef", "NOUN"), ("ate", "VERB")), 1)
    )
    + "\n"
)
FILES = {
    "a.csv": 'text,label\n"one, two",0\nthree,1\n',
    "a.tsv": "sentence1\tsentence2\tlabel\none\ttwo\t0\nthree\tfour\t1\n",
    "a.jsonl": '{"text": "one", "label": 0.5}\n{"text": "two", "label": 1.5}\n',
    "many.jsonl": '{"text": "one", "label": ["x", "y"]}\n{"text": "two", "label": ["z"]}\n',
    "tags.jsonl": (
        '{"tokens": ["the", "chef"], "tags": ["O", "B-P"]}\n{"tokens": ["ate"], "tags": ["O"]}\n'
    ),
    "questions.jsonl": json.dumps({"context": CONTEXT, "question": "Which?", "answers": "Paris"})
    + "\n",
    "a.conll": "the D\nchef N\n\nate V\n",
    "a.conllu": UD + UD,
    "a.json": json.dumps(SQUAD),
}


def own(path: Path) -> TaskData:
    return read_own(str(path), str(path))


@pytest.mark.parametrize("name", FILES)
def test_the_sound_files_are_read(tmp_path: Path, name: str) -> None:
    """Or the refusals below would say nothing."""
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    assert own(path).train


JUNK = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            b'"',
            b"\t",
            b"\n\n",
            b"\r",
            b"{",
            b"[" * 20_000,
            b"NaN",
            b"1e999",
            b"9" * 5000,
            b"\xef\xbb\xbf",
            b"\xff",
            b"\0",
            b"\xe2\x80\xa8",
            b'\\ud800"',
        ]
    ),
)


@st.composite
def spoilt(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with some junk somewhere, then cut somewhere."""
    for junk in draw(st.lists(JUNK, max_size=2)):
        place = draw(st.integers(0, len(whole)))
        whole = whole[:place] + junk + whole[place + draw(st.integers(0, 3)) :]
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_a_spoilt_file_is_examples_or_one_sentence(
    tmp_path: Path, name: str, packed: bool, data: st.DataObject
) -> None:
    raw = data.draw(spoilt(FILES[name].encode()))
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(raw)[: data.draw(st.integers(15, 200))] if packed else raw)
    said, found = "", None
    try:
        found = own(path)
    except UserError as e:
        said = str(e)
    assert (found is None) == bool(said)
    assert "\n" not in said
    assert (
        not said
        or path.name in said
        or "task 'a" in said
        or "task 'many" in said
        or "task 'tags" in said
        or "task 'questions" in said
    )


@pytest.mark.parametrize("task", ["cola", "stsb", "mnli"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(data=st.data())
def test_a_spoilt_folder_of_glue(tmp_path: Path, task: str, data: st.DataObject) -> None:
    row = GLUE[task]
    header = {
        "cola": "",
        "stsb": "sentence1\tsentence2\tscore\n",
        "mnli": "sentence1\tsentence2\tgold_label\n",
    }[task]
    line = {
        "cola": "x\t1\t*\tthe chef\n",
        "stsb": "one\ttwo\t3.5\n",
        "mnli": "one\ttwo\tneutral\n",
    }[task]
    folder = tmp_path / row.folder
    folder.mkdir(exist_ok=True)
    for name in (row.train, row.validation, *row.also.values()):
        (folder / name).write_bytes(data.draw(spoilt((header + line * 2).encode())))
    said, found = "", None
    try:
        found = read_glue(row, str(tmp_path))
    except UserError as e:
        said = str(e)
    assert (found is None) == bool(said)
    assert "\n" not in said


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_a_spoilt_file_of_minimal_pairs(tmp_path: Path, data: st.DataObject) -> None:
    pair = (
        '{"sentence_good": "the chef ate", "sentence_bad": "chef the ate", "field": "syntax", '
        '"linguistics_term": "order"}\n'
    )
    (tmp_path / "one.jsonl").write_bytes(data.draw(spoilt((pair * 2).encode())))
    said, found = "", []
    try:
        found = read_blimp(tmp_path)
    except UserError as e:
        said = str(e)
    assert bool(found) != bool(said)
    assert not said or "one.jsonl" in said


# ------------------------------------------------------------------ through the verb


def finetune(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, train: Path, held: Path | None = None
) -> str:
    words = [
        "finetune",
        str(tmp_path / "no-model"),
        "--train-file",
        str(train),
        "--validation-file",
        str(held or train),
    ]
    sentence = mistake(capsys, *words, "--output-dir", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    return sentence


def test_what_is_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name, says in (
        ("none", "no such file"),
        ("folder", "is a folder; give the files in it"),
    ):
        assert says in finetune(capsys, tmp_path, tmp_path / f"{name}.csv")


@pytest.mark.parametrize(
    ("train", "held", "says"),
    [
        ("text,label\none,x\ntwo,x\n", None, "only the label 'x': nothing to learn"),
        (
            "text,label\none,x\ntwo,y\n",
            "text,label\nthree,z\n",
            "line 2: label 'z' is none of the classes x, y",
        ),
        ("text,label\none,0.5\ntwo,nan\n", None, "label 'nan' is not a number"),
        ("text,label\none,0.5\ntwo,inf\n", None, "label 'inf' is not a number"),
        ("text,label\n", None, "no examples"),
        ("text,label\none,0\ntwo,1\n", "", "no examples"),
        (
            "text,label\none,\x1b[31m\ntwo,y\n",
            "text,label\nthree,\x1b[2J\n",
            "label '\\x1b[2J' is none of the classes",
        ),
        ('text,label\n"never closes,1\n' + "a,1\n" * 3, None, "broken CSV"),
    ],
    ids=["one class", "unseen", "NaN", "inf", "only a header", "empty", "escapes", "open quote"],
)
def test_tables_that_teach_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, train: str, held: str | None, says: str
) -> None:
    (tmp_path / "a.csv").write_text(train, encoding="utf-8")
    (tmp_path / "b.csv").write_text(train if held is None else held, encoding="utf-8")
    sentence = finetune(capsys, tmp_path, tmp_path / "a.csv", tmp_path / "b.csv")
    assert says in sentence
    assert "\x1b" not in sentence
