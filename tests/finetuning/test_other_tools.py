"""Files that users of other tools have in a folder, and what they mean here.

| File | Tool | Meaning here |
|---|---|---|
| text,labels with whole numbers (csv) | simpletransformers | classes named by the numbers |
| text,labels with "[1, 0, 1]" (csv) | simpletransformers | multilabel, label_0 ... (multi-hot) |
| sentence_id,words,labels (csv) | simpletransformers, NER | a question: write .conll or .jsonl |
| [{"context", "qas"}] (json) | simpletransformers, QA | questions |
| sentence1,sentence2,label (csv) | run_glue.py | pairs, classes by name |
| idx,premise,hypothesis,label (csv) | run_glue.py, MNLI of the Hub | pairs, idx is not read |
| id,tokens,pos_tags,ner_tags as numbers (jsonl) | run_ner.py | a question: names, not numbers |
| id,tokens,ner_tags as names (jsonl) | run_ner.py | sentences with tags |
| text,label,label_text (jsonl) | SetFit | classes named by label_text |
| text,labels of 28 times 0 or 1 (jsonl) | go_emotions, multi-hot | multilabel, label_0 ... |
| text,labels [2, 15] (jsonl) | go_emotions of the Hub | multilabel, classes named by the numbers |
| {"data": [...]} with is_impossible (json) | SQuAD 2.0 | questions, some without an answer |
| a word, its tags and a blank line (iob) | spaCy convert | sentences, the last column is the tag |
| "",text,label and "Unnamed: 0" (csv) | pandas | the index is not read |
| review,sentiment with quotes (csv) | Kaggle, IMDB | classes positive and negative |
| quotes in a .tsv | GLUE | letters, and not quotes |
| sentence1,sentence2,score of 4.5 (csv) | STS benchmark | a question for the label; regression |
| text,label with true and false (jsonl) | pandas | classes false and true |
| label 0.0 and 1.0 and empty (csv) | pandas | classes 0 and 1; empty is left out |
| "0","id","date",... without header (csv) | Sentiment140 | a question: name the columns |
| text,label (parquet) | datasets, pandas | as the csv |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.finetuning.columns import Columns
from electrify.finetuning.own import read_own
from electrify.finetuning.tasks import Answer, Example, Question, Sentence, TaskData


def read(folder: Path, name: str, content: str, kind: str = "auto", **columns: Any) -> TaskData:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return read_own(str(path), None, columns=Columns(**columns), problem_type=kind)


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


MULTI_HOT = '"[1, 0, 1]"', '"[0, 0, 1]"', '"[0, 0, 0]"'
SENTIMENT140 = (
    '"0","1","Mon Apr 06","NO_QUERY","me","so sad"\n"4","2","Mon Apr 07","NO_QUERY","me","fine"\n'
)


@pytest.mark.parametrize(
    ("name", "text", "kind", "labels", "train"),
    [
        ("simple.csv", "text,labels\ngood,1\nbad,0\n", "classification", ("0", "1"),
         (Example("good", None, 1), Example("bad", None, 0))),
        ("hot.csv", "text,labels\n" + "".join(f"t,{v}\n" for v in MULTI_HOT), "multilabel",
         ("label_0", "label_1", "label_2"),
         (Example("t", None, (0, 2)), Example("t", None, (2,)), Example("t", None, ()))),
        ("glue.csv", "sentence1,sentence2,label\na,b,not_entailment\nc,d,entailment\n",
         "classification", ("entailment", "not_entailment"),
         (Example("a", "b", 1), Example("c", "d", 0))),
        ("mnli.csv", "idx,premise,hypothesis,label\n0,a,b,2\n1,c,d,0\n2,e,f,1\n",
         "classification", ("0", "1", "2"),
         (Example("a", "b", 2), Example("c", "d", 0), Example("e", "f", 1))),
        ("setfit.jsonl",
         jsonl({"text": "a", "label": 1, "label_text": "positive"},
               {"text": "b", "label": 0, "label_text": "negative"}),
         "classification", ("negative", "positive"),
         (Example("a", None, 1), Example("b", None, 0))),
        ("emotions.jsonl",
         jsonl({"text": "a", "labels": [0.0, 1.0] + [0.0] * 26},
               {"text": "b", "labels": [1.0] * 28}),
         "multilabel", tuple(f"label_{k}" for k in range(28)),
         (Example("a", None, (1,)), Example("b", None, tuple(range(28))))),
        ("hub.jsonl", jsonl({"text": "a", "labels": [2, 15]}, {"text": "b", "labels": [2]}),
         "multilabel", ("2", "15"), (Example("a", None, (0, 1)), Example("b", None, (0,)))),
        ("pandas.csv", ",text,label\n0,good,x\n1,bad,y\n", "classification", ("x", "y"),
         (Example("good", None, 0), Example("bad", None, 1))),
        ("again.csv", "Unnamed: 0,Text,Label\n0,good,x\n1,bad,y\n", "classification", ("x", "y"),
         (Example("good", None, 0), Example("bad", None, 1))),
        ("imdb.csv", 'review,sentiment\n"A ""good"", long\nfilm",positive\nbad,negative\n',
         "classification", ("negative", "positive"),
         (Example('A "good", long\nfilm', None, 1), Example("bad", None, 0))),
        ("quotes.tsv", 'sentence\tlabel\n"a\t1\nb"\t0\n', "classification", ("0", "1"),
         (Example('"a', None, 1), Example('b"', None, 0))),
        ("bools.jsonl", jsonl({"text": "a", "label": True}, {"text": "b", "label": False}),
         "classification", ("false", "true"), (Example("a", None, 1), Example("b", None, 0))),
        ("gaps.csv", "text,label\na,1.0\nb,0.0\nc,\nd,nan\n", "classification", ("0", "1"),
         (Example("a", None, 1), Example("b", None, 0))),
    ],
)  # fmt: skip
def test_texts(
    tmp_path: Path, name: str, text: str, kind: str, labels: tuple[str, ...], train: tuple[Any, ...]
) -> None:
    found = read(tmp_path, name, text)
    assert (found.kind, found.labels, found.train) == (kind, labels, train)


def test_notes_on_the_columns(tmp_path: Path) -> None:
    found = read(tmp_path, "a.csv", ",text,label,id\n0,a,x,7\n1,b,y,8\n2,c,,9\n")
    assert found.notes == (
        "columns: text 'text', label 'label'; not read: '', 'id'",
        "1 examples without a label are left out",
        "task: classification, 2 classes (x, y)",
    )
    rows = (
        {"query": "a", "document": "b", "label": 0.5},
        {"query": "c", "document": "d", "label": 2},
    )
    found = read(tmp_path, "b.jsonl", jsonl(*rows))
    assert found.notes == (
        "columns: text 'query', second text 'document', label 'label'",
        "task: regression, labels from 0.5 to 2",
    )


def test_scores_of_pairs(tmp_path: Path) -> None:
    text = "sentence1,sentence2,score\na,b,4.5\nc,d,1.25\n"
    with pytest.raises(UserError, match=r"score: '4.5', '1.25'\) is called .*--label-column"):
        read(tmp_path, "sts.csv", text)
    found = read(tmp_path, "sts.csv", text, label="score")
    assert (found.kind, found.train) == (
        "regression",
        (Example("a", "b", 4.5), Example("c", "d", 1.25)),
    )


def test_tags(tmp_path: Path) -> None:
    iob = "Ada NNP B-PER\nsleeps VBZ O\n\nLovelace NNP I-PER\n"
    assert read(tmp_path, "spacy.iob", iob).train == (
        Sentence(("Ada", "sleeps"), ("B-PER", "O")),
        Sentence(("Lovelace",), ("B-PER",)),
    )
    row = {"id": "0", "tokens": ["Ada", "sleeps"], "pos_tags": [22, 42], "ner_tags": [1, 0]}
    with pytest.raises(UserError, match=r"line 1: 'ner_tags' .* names of the tags, not their numb"):
        read(tmp_path, "hub.jsonl", jsonl(row))
    found = read(tmp_path, "named.jsonl", jsonl(row | {"ner_tags": ["B-PER", "O"]}))
    assert (found.kind, found.labels) == ("tagging", ("B-PER", "O"))
    frame = "sentence_id,words,labels\n0,Ada,B-PER\n0,sleeps,O\n"
    with pytest.raises(UserError, match=r"frame.csv: a word in each row; write .*\.conll"):
        read(tmp_path, "frame.csv", frame)


def test_questions(tmp_path: Path) -> None:
    qas = [
        {"id": "1", "question": "who?", "is_impossible": False,
         "answers": [{"text": "Ada", "answer_start": 0}]},
        {"id": "2", "question": "why?", "is_impossible": True, "answers": []},
    ]  # fmt: skip
    paragraphs = [{"context": "Ada sleeps", "qas": qas}]
    wanted = (
        Question("1", "who?", "Ada sleeps", (Answer("Ada", 0),)),
        Question("2", "why?", "Ada sleeps", ()),
    )
    for name, layout in (
        ("squad.json", {"data": [{"title": "x", "paragraphs": paragraphs}]}),
        ("simple.json", paragraphs),
    ):
        found = read(tmp_path, name, json.dumps(layout))
        assert (found.kind, found.train, found.metrics[0]) == ("answering", wanted, "best_exact")
    lines = jsonl({"sentence1": "a", "sentence2": "b", "label": 1}) * 2
    with pytest.raises(UserError, match=r"run_glue.json: broken JSON .*each line end in .jsonl"):
        read(tmp_path, "run_glue.json", lines)


def test_no_header(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--no-header if the first line is an example"):
        read(tmp_path, "s.csv", SENTIMENT140)
    found = read(tmp_path, "s.csv", SENTIMENT140, header=False, text="5", label="0")
    assert (found.labels, found.train[0]) == (("0", "4"), Example("so sad", None, 0))


def test_two_columns_with_labels_are_a_question(tmp_path: Path) -> None:
    text = "text,label,category\na,1,x\nb,0,y\n"
    with pytest.raises(UserError, match=r"'label' and 'category' may both .*--label-column"):
        read(tmp_path, "two.csv", text)
    assert read(tmp_path, "two.csv", text, label="category").labels == ("x", "y")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"text": ["a", "b", None], "label": [1, 0, None], "vector": [[0.5], [1.5], None]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    found = read_own(str(tmp_path / "t.parquet"), None, columns=Columns())
    assert found.train == (Example("a", None, 1), Example("b", None, 0))
    words = {"tokens": [["Ada", "sleeps"]], "ner_tags": [["B-PER", "O"]]}
    parquet.write_table(pyarrow.table(words), tmp_path / "w.parquet")
    found = read_own(str(tmp_path / "w.parquet"), None, columns=Columns())
    assert found.train == (Sentence(("Ada", "sleeps"), ("B-PER", "O")),)
    asked = {"id": ["1"], "context": ["Ada sleeps"], "question": ["who?"],
             "answers": [{"text": ["Ada"], "answer_start": [0]}]}  # fmt: skip
    parquet.write_table(pyarrow.table(asked), tmp_path / "q.parquet")
    found = read_own(str(tmp_path / "q.parquet"), None, columns=Columns())
    assert found.train == (Question("1", "who?", "Ada sleeps", (Answer("Ada", 0),)),)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(UserError, match=r"bad.parquet cannot be read as a parquet file"):
        read_own(str(tmp_path / "bad.parquet"), None, columns=Columns())
