"""Files as rows, as sentences, and as new texts: every layout, compressed or not."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from electrify.finetuning.new_texts import Files
from electrify.finetuning.read import has_chunks, read_sentences, to_iob2
from electrify.finetuning.tasks import Question, Sentence
from electrify.text.tables import rows

UD = """# newdoc id = a
# text = He can't.
1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tca\tcan\tAUX\tMD\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\t10 000\t10000\tNUM\tCD\t_\t0\troot\t_\t_
"""


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def sentences(folder: Path, content: str | bytes, name: str = "t.txt", **given: Any) -> Any:
    return read_sentences(written(folder, name, content), **given)


def sentence(*pairs: str) -> Sentence:
    words, tags = zip(*(pair.split("/") for pair in pairs), strict=True)
    return Sentence(words, tags)


@pytest.mark.parametrize(
    ("name", "text", "cells"),
    [
        ("t.csv", '\ufefftext,n\n"a ""b"", c\nd",1\n\ne,2\n',
         [(3, {"text": 'a "b", c\nd', "n": "1"}), (5, {"text": "e", "n": "2"})]),
        ("t.tsv", 'text\tn\r\n"a\t1\r\n\u2028b\x0b\t2\r\n',
         [(2, {"text": '"a', "n": "1"}), (3, {"text": "\u2028b\x0b", "n": "2"})]),
        ("t.ndjson", '{"text": "a", "n": [1]}\n\n{"n": null}\n',
         [(1, {"text": "a", "n": [1]}), (3, {"n": None})]),
        ("t.fa", ">p1 the first\nMKV LAA\nGIV\n;old\n>p2\n>\nSTOP*",
         [(1, {"name": "p1 the first", "sequence": "MKVLAAGIV"}),
          (5, {"name": "p2", "sequence": ""}), (6, {"name": "", "sequence": "STOP*"})]),
        ("t.smi", "SMILES\tID\nCCO\tethanol\n\nc1ccccc1 a ring\n[Na+]",
         [(2, {"smiles": "CCO", "name": "ethanol"}), (4, {"smiles": "c1ccccc1", "name": "a ring"}),
          (5, {"smiles": "[Na+]", "name": ""})]),
    ],
)  # fmt: skip
def test_rows(tmp_path: Path, name: str, text: str, cells: list[Any]) -> None:
    path = written(tmp_path, name, text)
    found = list(rows(path))
    assert [(row.number, row.cells) for row in found] == cells
    assert found[0].where == f"{path}, line {cells[0][0]}"


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        ("a X\nb Y\n\nc Z", {}, [sentence("a/X", "b/Y"), sentence("c/Z")]),
        ("\n\na X\n\n \t \n\n", {}, [sentence("a/X")]),
        ("a  N   X \n b V Y\n", {}, [sentence("a/X", "b/Y")]),
        ("a N X\nb V Y\n", {"word": "2", "tag": "0"}, [sentence("X/a", "Y/b")]),
        ("-DOCSTART- -X- O\n\na N X\n-DOCSTART- O\nb N Y\n", {},
         [sentence("a/X"), sentence("b/Y")]),
        ("# id 1\nthe D\n# N\n\n# text = # a\n# D\n", {}, [sentence("the/D", "#/N"),
                                                          sentence("#/D")]),
        ("a\u00a0b X\n\x85\x0b W\n", {}, [sentence("a\u00a0b/X", "\x85\x0b/W")]),
        ("en:a B-X\nen:en: O\n", {}, [sentence("en:a/B-X", "en:en:/O")]),
    ],
)  # fmt: skip
def test_column_files(tmp_path, text, given, found):
    assert list(sentences(tmp_path, text, **given)) == found


def test_conllu(tmp_path: Path) -> None:
    upos = (sentence("He/PRON", "ca/AUX", "n't/PART", "./PUNCT"), sentence("10 000/NUM"))
    for more in ({}, {"tag": "3"}):
        assert sentences(tmp_path, UD, "t.conllu", **more) == upos
    assert sentences(tmp_path, gzip.compress(UD.encode()), "t.conllu.gz") == upos
    xpos = sentences(tmp_path, UD, "t.CONLLU", tag="4")
    assert [s.tags for s in xpos] == [("PRP", "MD", "RB", "."), ("CD",)]
    assert sentences(tmp_path, UD, "t.conllu", word="2")[0].words == ("he", "can", "not", ".")


@pytest.mark.parametrize(
    ("scheme", "tags", "iob2"),
    [
        ("plain", "NOUN VERB . O", "NOUN VERB . O"),
        ("plain", "N O S E U L", None),
        ("iob2", "B-X I-X O B-X B-X B-Y I-Y", "B-X I-X O B-X B-X B-Y I-Y"),
        ("iob1", "I-X I-X B-X O I-Y I-X", "B-X I-X B-X O B-Y B-X"),
        ("iob1", "I I O I B", "B I O B B"),
        ("iobes", "S-X B-X I-X E-X O E-Y", "B-X B-X I-X I-X O B-Y"),
        ("iobes", "U-A-B B-X L-X", "B-A-B B-X I-X"),
    ],
)
def test_schemes(scheme: str, tags: str, iob2: str | None) -> None:
    assert has_chunks([tags.split()]) == (scheme != "plain")
    assert iob2 is None or to_iob2(tags.split()) == tuple(iob2.split())


def files(folder: Path, name: str, text: str, kind: Any = "classification", **more: Any) -> Files:
    return Files((written(folder, name, text),), kind, **more)


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
def test_new_texts(tmp_path, name, text, more, found):
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
        ("a.jsonl", '{"tokens": ["a"], "n": ["b"]}\n', {"text_column": "n"}, [("b",)]),
        ("a.tsv", "Review\tO\nwas\tO\n\nbad\tO\n", {}, [("Review", "was"), ("bad",)]),
    ],
)  # fmt: skip
def test_new_sentences(tmp_path, name, text, more, words):
    found = [item.example for item in files(tmp_path, name, text, "tagging", **more)]
    assert found == [Sentence(each, ()) for each in words]


def test_new_questions(tmp_path: Path) -> None:
    (item,) = files(tmp_path, "a.csv", "question,context,n\nwho?,Ada,7\n", "answering")
    assert item.example == Question("2", "who?", "Ada", ())
    assert item.columns["n"] == "7"
    squad = (
        '{"data": [{"paragraphs": [{"context": "Ada", "qas": [{"id": "x", "question": "q"}]}]}]}'
    )
    read = files(tmp_path, "a.json", squad, "answering")
    assert [item.example for item in read] == [Question("x", "q", "Ada", ())]
    assert read.bytes_read == read.size
    squad = json.dumps([{"context": c, "qas": [{"question": "q"}]} for c in ("Ada", "Bo")])
    found: list[Any] = [item.example for item in files(tmp_path, "a.json", squad, "answering")]
    assert [question.id for question in found] == ["1", "2"]  # each its own, without any
