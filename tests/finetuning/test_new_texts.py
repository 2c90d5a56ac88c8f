"""Files of new texts: every layout, in order, in blocks of bounded size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.finetuning import new_texts
from electrify.finetuning.new_texts import Files, words_in
from electrify.finetuning.tasks import Example, Question, Sentence


def files(folder: Path, name: str, text: str, kind: Any = "classification", **more: Any) -> Files:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return Files((str(path),), kind, **more)


@pytest.mark.parametrize(
    ("name", "text", "more", "found"),
    [
        ("a.txt", "good\n\nbad", {}, [("good", None), ("", None), ("bad", None)]),
        ("a.csv", 'id,text\n1,"a\nb"\n', {}, [("a\nb", None)]),
        ("a.csv", "only\na\nb\n", {}, [("a", None), ("b", None)]),
        ("a.csv", '1,"a, b"\n', {"header": False, "text_column": "1"}, [("a, b", None)]),
        ("a.csv", "premise,hypothesis\na,b\n", {}, [("a", "b")]),
        ("a.csv", "sentence1,sentence2\na,b\n", {"pairs": False}, [("a", None)]),
        ("a.tsv", "x\ty\na\tb\n", {"text_column": "y", "pair_column": "x"}, [("b", "a")]),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', {}, [("a", None), ("", None)]),
        ("a.fa", ">p1\nMKV\nLAA\n>p2\nG\n", {}, [("MKVLAA", None), ("G", None)]),
        ("a.smi", "CCO ethanol\n", {}, [("CCO", None)]),
    ],
)
def test_texts(
    tmp_path: Path, name: str, text: str, more: dict[str, Any], found: list[Any]
) -> None:
    read = files(tmp_path, name, text, **more)
    read.check()
    examples: list[Any] = [item.example for item in read]
    assert [(e.text, e.pair) for e in examples] == found


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": list(range(1000)), "text": [f"t{k}" for k in range(1000)]})
    parquet.write_table(table, tmp_path / "a.parquet")
    read = Files((str(tmp_path / "a.parquet"),), "classification")
    items = list(read)
    assert [item.columns for item in items] == table.to_pylist()
    assert items[-1].example == Example("t999")
    assert 0 < read.bytes_read <= read.size


def test_heads(tmp_path: Path) -> None:
    pair = files(tmp_path, "a.csv", "id,text,sentence2\n1,a,b\n")
    head = pair.check()
    assert (head.columns, head.pair, head.unread) == (("id", "text", "sentence2"), True, None)
    single = Files(pair.paths, "classification", pairs=False).check()
    assert (single.pair, single.unread) == (False, "sentence2")
    other = files(tmp_path, "b.csv", "text\na\n").paths
    with pytest.raises(UserError, match=r"only one of .*a.csv and .*b.csv has a column for a sec"):
        Files((*pair.paths, *other), "classification").check()
    assert [h.path for h in Files(other * 2, "classification").check().others] == list(other)


def test_blocks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files(tmp_path, "a.csv", "text,more\n" + f"{'a' * 9},{'b' * 90}\n" * 10)
    assert [len(block) for block in read.blocks()] == [10]
    assert [len(block) for block in read.blocks(most=4)] == [4, 4, 2]
    monkeypatch.setattr(new_texts, "BLOCK_CHARACTERS", 500)
    assert [len(block) for block in read.blocks()] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("name", "text", "more", "words"),
    [
        ("a.conll", "the DT\nfilm NN\n\nbad JJ\n", {}, [("the", "film"), ("bad",)]),
        ("a.txt", "the DT\nfilm NN\n\nbad JJ\n", {}, [("the", "film"), ("bad",)]),
        ("a.txt", "the\nfilm\n\nbad\n", {"text_column": "0"}, [("the", "film"), ("bad",)]),
        ("a.txt", "The film isn't good.\n\nwas it?\n", {},
         [("The", "film", "isn't", "good", "."), (), ("was", "it", "?")]),
        ("a.tsv", "x\tthe\ny\tfilm\n", {"text_column": "1"}, [("the", "film")]),
        ("a.tsv", "id\ttext\n1\tthe film\n", {}, [("the", "film")]),
        ("a.csv", "the film,x\n", {"header": False, "text_column": "0"}, [("the", "film")]),
        ("a.jsonl", '{"tokens": ["New York"], "n": 1}\n', {}, [("New York",)]),
        ("a.jsonl", '{"tokens": ["a"], "text": "b c"}\n', {"text_column": "text"}, [("b", "c")]),
    ],
)  # fmt: skip
def test_sentences(
    tmp_path: Path, name: str, text: str, more: dict[str, Any], words: list[Any]
) -> None:
    found = [item.example for item in files(tmp_path, name, text, "tagging", **more)]
    assert found == [Sentence(each, ()) for each in words]


def test_what_stands_beside_the_words(tmp_path: Path) -> None:
    lines = [f"{k}\t{word}\t" + "\t".join("abcdefgh") for k, word in ((1, "the"), (2, "film"))]
    read = files(tmp_path, "a.conllu", "# text = the film\n" + "\n".join(lines), "tagging")
    (item,) = read
    assert item.columns["words"] == ["the", "film"]
    assert (item.columns["0"], item.columns["9"]) == (["1", "2"], ["h", "h"])
    assert item.beside == ("0", *map(str, range(2, 10)))
    assert item.cells[1] == ("2", "film", *"abcdefgh")
    assert (read.check().lines, read.check().guessed) == (True, False)
    assert files(tmp_path, "a.txt", "a D\nb N\n\nc D\n", "tagging").check().guessed
    (row,) = files(tmp_path, "a.jsonl", '{"tokens": ["a"], "n": 1}', "tagging")
    assert (row.beside, row.cells) == (("n",), ())


def test_questions(tmp_path: Path) -> None:
    (item,) = files(tmp_path, "a.csv", "question,context,n\nwho?,Ada,7\n", "answering")
    assert item.example == Question("2", "who?", "Ada", ())
    assert item.columns["n"] == "7"
    squad = (
        '{"data": [{"paragraphs": [{"context": "Ada", "qas": [{"id": "x", "question": "q"}]}]}]}'
    )
    read = files(tmp_path, "a.json", squad, "answering")
    assert [item.example for item in read] == [Question("x", "q", "Ada", ())]
    assert read.bytes_read == read.size


@pytest.mark.parametrize(
    ("name", "text", "kind", "more", "says"),
    [
        ("a.txt", "", "classification", {}, "a.txt: no texts"),
        ("a.txt", "a\n", "classification", {"text_column": "x"}, "no column 'x'; known: text"),
        ("a.txt", "a\n", "classification", {"header": False}, "--no-header is for .csv and .tsv"),
        ("a.csv", "x;text\n1;2\n", "classification", {}, "by ';': save it with commas"),
        ("a.csv", "x,y\n1,2\n", "classification", {}, r"none of its columns \(x: '1'; y: '2'\)"),
        ("a.txt", "a\n", "answering", {}, "line 1: no column 'question'; found: text"),
        ("a.csv", "question\nq\n", "answering", {}, "line 2: no column 'context'; found: quest"),
        ("a.conll", "a D\n", "tagging", {"text_column": "x"}, "no column 'x'; known: 0, 1"),
        (
            "a.conll",
            "a D\n",
            "tagging",
            {"pair_column": "x"},
            "column x: a model for tagging reads no such column",
        ),
    ],
)
def test_mistakes(
    tmp_path: Path, name: str, text: str, kind: str, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        files(tmp_path, name, text, kind, **more).check()


@given(st.text())
def test_splitting_loses_no_character_but_blanks(text: str) -> None:
    assert "".join(words_in(text)) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा।", ("हिन्दी", "भाषा", "।")),
        ("re\u0301sume\u0301-ku, n'e\u0301", ("re\u0301sume\u0301-ku", ",", "n'e\u0301")),
        ("می\u200cخواهم", ("می\u200cخواهم",)),
    ],
)
def test_marks_belong_to_the_character_before_them(text: str, words: tuple[str, ...]) -> None:
    assert words_in(text) == words


def test_a_text_in_the_place_of_a_file() -> None:
    with pytest.raises(UserError, match="no such file: a text; to give a text itself, put it into"):
        Files(("a text",), "classification").check()
