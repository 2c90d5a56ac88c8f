"""Files of new texts: every layout, in order, in blocks of bounded size."""

from pathlib import Path
from typing import Any

import pytest

from electrify.finetuning.new_texts import Files
from electrify.finetuning.tasks import Question, Sentence


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
        ("a.csv", "premise,hypothesis\na,b\n", {}, [("a", "b")]),
        ("a.csv", "sentence1,sentence2\na,b\n", {"pairs": False}, [("a", None)]),
        ("a.tsv", "x\ty\na\tb\n", {"text_column": "y", "pair_column": "x"}, [("b", "a")]),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', {}, [("a", None), ("", None)]),
    ],
)
def test_texts(tmp_path, name, text, more, found):
    read = files(tmp_path, name, text, **more)
    read.check()
    examples: list[Any] = [item.example for item in read]
    assert [(e.text, e.pair) for e in examples] == found


@pytest.mark.parametrize(
    ("name", "text", "more", "words"),
    [
        ("a.conll", "the DT\nfilm NN\n\nbad JJ\n", {}, [("the", "film"), ("bad",)]),
        ("a.txt", "the DT\nfilm NN\n\nbad JJ\n", {}, [("the", "film"), ("bad",)]),
        ("a.txt", "The film isn't good.\n\nwas it?\n", {},
         [("The", "film", "isn't", "good", "."), (), ("was", "it", "?")]),
        ("a.tsv", "id\ttext\n1\tthe film\n", {}, [("the", "film")]),
        ("a.csv", "the film,x\n", {"header": False, "text_column": "0"}, [("the", "film")]),
        ("a.jsonl", '{"tokens": ["New York"], "n": 1}\n', {}, [("New York",)]),
    ],
)  # fmt: skip
def test_sentences(tmp_path, name, text, more, words):
    found = [item.example for item in files(tmp_path, name, text, "tagging", **more)]
    assert found == [Sentence(each, ()) for each in words]


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
