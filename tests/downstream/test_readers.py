from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.downstream.examples import Example, Sentence
from electrify.downstream.glue_tasks import GLUE
from electrify.downstream.known_tasks import AVERAGES, TASKS, task_named
from electrify.downstream.read.columns import Columns
from electrify.downstream.read.glue import read_glue
from electrify.downstream.read.own import read_own
from electrify.downstream.read.task import read_task
from electrify.downstream.read.where import folder_of
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError
from electrify.text import small_files

DATA = Path(__file__).parents[3] / "shared" / "data" / "glue"
COLA = 'gj04\t1\t\tThe "book.\ngj04\t0\t*\tBook \'the"\n'
STSB = (
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    "0\tm\tx\t2012\t1\tn\tn\tA plane.\tA jet.\t4.500\n"
)


def glue(tmp_path: Path, task: str, train: str, dev: str | None = None) -> TaskData:
    folder = tmp_path / TASKS[task].folder
    folder.mkdir(exist_ok=True)
    (folder / "train.tsv").write_bytes(train.encode())
    (folder / "dev.tsv").write_bytes((train if dev is None else dev).encode())
    return read_glue(TASKS[task], tmp_path)


def own(tmp_path: Path, text: str | bytes, *, name: str = "train.csv", **given: str) -> TaskData:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    kind = given.pop("problem_type", "auto")
    named = {name.removesuffix("_column"): value for name, value in given.items()}
    return read_own(str(path), str(path), columns=Columns(**named), problem_type=kind)  # type: ignore[arg-type]


def test_cola_has_no_header_and_quotes_are_letters(tmp_path: Path):
    data = glue(tmp_path, "cola", COLA)
    assert data.train == (Example('The "book.', None, 1), Example("Book 'the\"", None, 0))
    assert data.labels == ("0", "1")
    assert data.metrics[0] == "matthews"


def test_sts_b_is_read_by_header(tmp_path: Path):
    assert glue(tmp_path, "stsb", STSB).train == (Example("A plane.", "A jet.", 4.5),)
    shuffled = "score\tsentence2\tsentence1\n1.5\tb\ta\n"
    assert glue(tmp_path, "stsb", shuffled).train == (Example("a", "b", 1.5),)


def test_windows_line_ends_and_odd_separators_in_texts(tmp_path: Path):
    data = glue(tmp_path, "sst2", "sentence\tlabel\r\na\u2028b\x0bc\t1\r\nd\t0\r\n")
    assert [e.text for e in data.train] == ["a\u2028b\x0bc", "d"]


@pytest.mark.parametrize(
    ("task", "text", "said"),
    [
        ("cola", "gj04\t1\t\tfine\ngj04\t1\tcut", r"CoLA/train.tsv, line 2: 3 columns, expected 4"),
        (
            "cola",
            "gj04\t1\t\tfine\ngj04\t*\t1\tmoved\n",
            r"line 2: label '\*' is none of the classes 0, 1",
        ),
        (
            "cola",
            "source\tlabel\tstar\tsentence\n",
            r"line 1: label 'label' is none of the classes",
        ),
        ("cola", "", r"CoLA/train.tsv: no examples"),
        ("cola", "gj04\t1\t\tfine\n\ngj04\t1\t\tfine\n", r"line 2: 1 columns, expected 4"),
        (
            "sst2",
            "sentence\nfine\n",
            r"SST-2/train.tsv, line 1: no column 'label' in the header; found: sentence",
        ),
        ("sst2", "sentence\tlabel\nfine\t1\nmore\t2\n", r"line 3: label '2' is none"),
        ("sst2", "sentence\tlabel\nfine\t1\t0\n", r"line 2: 3 columns, expected 2"),
        ("sst2", "sentence\tlabel\n", r"no examples"),
        (
            "sst2",
            "sentence\tlabel\tsentence\na\t1\tb\n",
            r"line 1: the column 'sentence' occurs twice in the header",
        ),
        ("sst2", "", r"line 1: no column 'sentence' in the header; found: nothing"),
        ("stsb", STSB.replace("4.500", "nan"), r"line 2: label 'nan' is not a number"),
        ("stsb", STSB.replace("4.500", "much"), r"line 2: label 'much' is not a number"),
        ("stsb", STSB.replace("sentence2", "sentenceB"), r"line 1: no column 'sentence2'"),
    ],
)
def test_bad_glue_files_name_file_and_line(tmp_path: Path, task: str, text: str, said: str):
    with pytest.raises(UserError, match=said):
        glue(tmp_path, task, text)


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def qqp(*cut: int, lines: int = 400) -> str:
    """Some lines have three columns, as 97,931 of the official file has: a line feed within a
    question."""
    return QQP + "".join(
        "9\tand so?\t0\n" if k in cut else f"{k}\t1\t2\twhy {k}\tand so?\t{k % 2}\n"
        for k in range(2, lines + 2)
    )


def test_a_few_malformed_lines_of_an_official_file_are_left_out_and_told(tmp_path: Path):
    (tmp_path / "QQP").mkdir()
    (tmp_path / "QQP" / "train.tsv").write_text(qqp(98, 99, 300))
    (tmp_path / "QQP" / "dev_subset.tsv").write_text(qqp(7))
    data = read_glue(GLUE["qqp"], tmp_path)
    assert [e.text for e in data.train] == [
        f"why {k}" for k in range(2, 402) if k not in (98, 99, 300)
    ]
    assert len(data.validation) == 399
    assert data.notes == (
        "train.tsv: 3 malformed lines left out (line 98 has 3 of 6 columns)",
        "dev_subset.tsv (399 examples) stands in for the official dev.tsv",
        "dev_subset.tsv: 1 malformed line left out (line 7 has 3 of 6 columns)",
    )


def test_an_official_file_is_not_a_small_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MNLI's train.tsv is larger than any text that is judged in one piece."""
    (tmp_path / "QQP").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "QQP" / name).write_text(qqp(), encoding="utf-8")
    monkeypatch.setattr(small_files, "MAX_TEXT_BYTES", 100)
    assert len(read_glue(GLUE["qqp"], tmp_path).train) == 400


def test_many_malformed_lines_or_a_cut_end_are_a_broken_file(tmp_path: Path):
    (tmp_path / "QQP").mkdir()
    (tmp_path / "QQP" / "dev.tsv").write_text(qqp())
    for cut, said in (
        ((5, 9, 20, 30, 50), r"line 5: 3 columns, expected 6, as 5 of 400 lines have not"),
        ((401,), "the last line is cut off"),
    ):
        (tmp_path / "QQP" / "train.tsv").write_text(qqp(*cut))
        with pytest.raises(UserError, match=said):
            read_glue(GLUE["qqp"], tmp_path)


def test_malformed_lines_of_ones_own_files_are_told(tmp_path: Path):
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text(
            "text\tlabel\n" + "good\t1\nbad\t0\n" * 200 + "cut\n" + "good\t1\n"
        )
    with pytest.raises(UserError, match=r"a\.tsv, line 402: 1 columns, expected 2"):
        read_own(str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv"))


def test_missing_files_and_folders(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"CoLA: no such folder; --data-dir must hold GLUE's folder CoLA"
    ):
        read_glue(TASKS["cola"], tmp_path)
    (tmp_path / "CoLA").mkdir()
    with pytest.raises(UserError, match=r"CoLA/train.tsv: no such file"):
        read_glue(TASKS["cola"], tmp_path)


def test_tasks_by_name():
    assert task_named("SST-2").name == "sst2"
    with pytest.raises(UserError, match=r"no task 'colla'; did you mean 'cola'"):
        task_named("colla")


def test_all_of_glue():
    assert len(GLUE) == 9
    assert set(AVERAGES["GLUE"].tasks) == set(GLUE) - {"wnli"}
    assert [name for name, task in GLUE.items() if task.symmetric] == ["mrpc", "stsb"]
    assert {name: task.epochs for name, task in GLUE.items() if task.epochs != 3} == {
        "stsb": 10,
        "rte": 10,
    }


def test_mrpc_with_a_byte_order_mark(tmp_path: Path):
    text = (
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA "plane .\tA jet '
        ".\n0\t7\t9\tA\tB\n"
    )
    data = glue(tmp_path, "mrpc", text)
    assert data.train == (Example('A "plane .', "A jet .", 1), Example("A", "B", 0))
    assert data.symmetric


MNLI = (
    "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\ta\tb\tneutral\tneutral\n"
    "1\tc\td\tneutral\tcontradiction\n"
)


def mnli(tmp_path: Path, **files: str) -> TaskData:
    folder = tmp_path / "MNLI"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.tsv").write_text(text)
    return read_glue(TASKS["mnli"], tmp_path)


def test_mnli_has_two_development_sets_of_other_columns(tmp_path: Path):
    wide = "gold_label\tsentence2\tx\tsentence1\nentailment\tB\t-\tA\n"
    data = mnli(tmp_path, train=MNLI, dev_matched=wide, dev_mismatched=MNLI)
    assert [e.label for e in data.train] == [1, 2]
    assert data.validation == (Example("A", "B", 0),)
    assert data.also == (("mismatched", data.train),)
    assert data.score_names == ("accuracy", "accuracy_mismatched")
    assert data.notes == ()


def test_subsets_are_named(tmp_path: Path):
    data = mnli(tmp_path, train_subset=MNLI, dev_matched=MNLI)
    assert data.score_names == ("accuracy",)
    assert data.notes == (
        "train_subset.tsv (2 examples) stands in for the official train.tsv",
        "dev_mismatched.tsv is not there: mismatched is not scored",
    )


def test_the_official_file_comes_before_a_subset(tmp_path: Path):
    data = mnli(tmp_path, train=MNLI, train_subset="broken", dev_matched=MNLI, dev_mismatched=MNLI)
    assert len(data.train) == 2
    assert data.notes == ()


OFFICIAL = [
    ("cola", 8551, 1043), ("sst2", 67349, 872), ("mrpc", 3668, 408), ("stsb", 5749, 1500),
    ("qqp", 8999, 1000),
    ("mnli", 9999, 9815), ("qnli", 9999, 5463), ("rte", 2490, 277), ("wnli", 635, 71),
]  # fmt: skip


@pytest.mark.parametrize(("task", "train", "dev"), OFFICIAL)
def test_the_official_files(task: str, train: int, dev: int):
    if not DATA.is_dir():
        pytest.skip("no ../shared/data/glue")
    data = read_glue(TASKS[task], DATA)
    assert (len(data.train), len(data.validation)) == (train, dev)
    if data.labels:
        assert {e.label for e in data.train} == set(range(len(data.labels)))
    assert bool(data.notes) == (task in ("qqp", "mnli", "qnli"))
    if data.labels:
        assert {e.label for e in data.validation} == set(range(len(data.labels)))
    else:
        assert (min(e.label for e in data.train), max(e.label for e in data.train)) == (0.0, 5.0)


def test_own_csv_with_quotes_and_line_breaks(tmp_path: Path):
    data = own(tmp_path, b'\xef\xbb\xbflabel,text\nyes,"a, ""b""\nc"\nno,d\n')
    assert data.train == (Example('a, "b"\nc', None, 1), Example("d", None, 0))
    assert data.labels == ("no", "yes")
    assert data.metrics[:2] == ("accuracy", "macro_f1")
    assert data.name == tmp_path.name, "a file called train says nothing"


def test_own_tsv_is_read_without_quoting(tmp_path: Path):
    assert own(tmp_path, 'sentence\tlabel\n"a\t1\nb"\t0\n', name="x.tsv").train[0].text == '"a'


def test_own_pairs_and_decimal_labels_are_regression(tmp_path: Path):
    data = own(tmp_path, "sentence1,sentence2,label\na,b,1.0\nc,d,2\n")
    assert (data.kind, data.labels) == ("regression", ())
    assert data.train == (Example("a", "b", 1.0), Example("c", "d", 2.0))


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        ([3, 10, 2], "classification", ("2", "3", "10")),
        ([True, False], "classification", ("false", "true")),
        (["a", "1", "0.5"], "classification", ("0.5", "1", "a")),
        ([1.0, 2.5], "regression", ()),
        ([-1, 1], "classification", ("-1", "1")),
        ([1, 2.5], "regression", ()),
    ],
)
def test_kinds_of_labels(tmp_path: Path, labels: list[object], kind: str, names: tuple[str, ...]):
    data = own(
        tmp_path,
        "".join(json.dumps({"text": "t", "label": x}) + "\n" for x in labels),
        name="x.jsonl",
    )
    assert (data.kind, set(data.labels)) == (kind, set(names))
    if all(isinstance(x, int) for x in labels):
        assert data.labels == names


def test_problem_type_and_columns_can_be_said(tmp_path: Path):
    rows = "q,body,title,stars\n1,b,a,1\n2,d,c,5\n"
    data = own(
        tmp_path,
        rows,
        text_column="title",
        pair_column="body",
        label_column="stars",
        problem_type="regression",
    )
    assert (data.kind, data.train[1]) == ("regression", Example("c", "d", 5.0))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "text,label\na,1\nb\n", r"t.csv, line 3: 1 columns, expected 2"),
        ("t.csv", 'text,label\n"a,1\n', r"t.csv, line 2: broken CSV"),
        (
            "t.csv",
            "words,label\na,1\n",
            (
                r"none of its columns \(words: 'a'; label: '1'\) is called text, sentence, .*; "
                r"name it with --text-column"
            ),
        ),
        ("t.csv", "text,text\na,1\n", r"line 1: a column name occurs twice"),
        ("t.csv", "text,label\na,1\nb,\n", r"line 3: 'label' must be a text or a number"),
        ("t.csv", "text,label\na,x\nb,x\n", r"only the label 'x'"),
        ("t.csv", "", r"no examples"),
        ("t.csv", b"text,label\na,1\n\xff,1\n", r"line 3: not UTF-8 \(byte 0xff\)"),
        ("t.csv", b"text,label\na\0,1\n", r"line 2: a zero byte; this is a binary file"),
        ("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b"\n', r"t.jsonl, line 2: broken JSON"),
        ("t.jsonl", "[" * 100_000, r"line 1: broken JSON"),
        (
            "t.jsonl",
            '{"text": "a", "label": 1}\n{"label": 1}\n',
            r"line 2: no column 'text'; found: label",
        ),
        (
            "t.jsonl",
            '{"text": "a", "label": 1}\n{"text": null, "label": 1}\n',
            r"line 2: 'text' must be a text, not null",
        ),
        (
            "t.jsonl",
            '{"text": "a", "label": 1}\n\n{"text": "b", "label": null}\n',
            r"line 3: 'label' must be a text or a number, or a list of them",
        ),
        (
            "t.jsonl",
            '{"text": "a", "label": 0.5}\n{"text": "b", "label": NaN}\n',
            r"line 2: label 'nan' is not a number",
        ),
        ("t.jsonl", "3\n", r"line 1: not a JSON object"),
        ("t.xlsx", "x", r"ending '.xlsx' is not known"),
    ],
)
def test_bad_own_files(tmp_path: Path, name: str, text: str | bytes, said: str):
    with pytest.raises(UserError, match=said):
        own(tmp_path, text, name=name)


def test_an_unknown_class_in_the_validation_file(tmp_path: Path):
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,0\n")
    (tmp_path / "b.csv").write_text("text,label\na,1\nb,7\n")
    with pytest.raises(UserError, match=r"b.csv, line 3: label '7' is none of the classes 0, 1"):
        read_own(str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
    path = str(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"no column 'texd'; did you mean 'text'"):
        read_own(path, path, columns=Columns(text="texd"))


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\t\n\0", exclude_categories=["Cs"]), min_size=1),
        min_size=1,
        max_size=8,
    )
)
def test_any_text_survives_a_tsv(tmp_path_factory: pytest.TempPathFactory, texts: list[str]):
    texts = [t for t in texts if not t.endswith("\r")] or ["a"]
    path = tmp_path_factory.mktemp("any")
    data = glue(path, "sst2", "sentence\tlabel\n" + "".join(f"{t}\t1\n" for t in texts))
    assert [e.text for e in data.train] == texts


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("cola", 1063),
        ("sst2", 1821),
        ("mrpc", 1725),
        ("stsb", 1379),
        ("qnli", 5463),
        ("rte", 3000),
        ("wnli", 146),
    ],
)
def test_the_official_test_sets(task: str, rows: int):
    if not DATA.is_dir():
        pytest.skip("no ../shared/data/glue")
    ((name, examples),) = read_glue(TASKS[task], DATA, test=True).test
    assert name == TASKS[task].folder
    assert len(examples) == rows
    assert all(bool(e.pair) == (TASKS[task].pair is not None) for e in examples)


MULTI = [
    (
        "t.jsonl",
        (
            '{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": []}\n{"text": "c", '
            '"label": ["y"]}\n'
        ),
        None,
    ),
    ("t.csv", "text,x,y\na,1,1\nb,0,0\nc,false,True\n", "x,y"),
]


@pytest.mark.parametrize(("name", "text", "column"), MULTI)
def test_several_labels_at_once(tmp_path: Path, name: str, text: str, column: str | None):
    data = own(tmp_path, text, name=name, **({"label_column": column} if column else {}))
    assert (data.kind, data.labels, data.metrics) == (
        "multilabel",
        ("x", "y"),
        ("micro_f1", "macro_f1", "accuracy", "roc_auc", "pr_auc"),
    )
    assert [e.label for e in data.train] == [(0, 1), (), (1,)]


def test_labels_between_bars_on_request(tmp_path: Path):
    data = own(tmp_path, "text,label\na,x|y\nb,y\n", problem_type="multilabel")
    assert [e.label for e in data.train] == [(0, 1), (1,)]
    assert own(tmp_path, "text,label\na,x|y\nb,y\n").labels == ("x|y", "y"), (
        "and classes as they are written else"
    )


def test_own_sentences_and_questions(tmp_path: Path):
    tagged = own(tmp_path, "the\tD\nfilm\tN\n\nit\tP\n", name="t.conll")
    assert (tagged.kind, tagged.labels, tagged.metrics) == (
        "tagging",
        ("D", "N", "P"),
        ("accuracy",),
    )
    chunked = own(
        tmp_path,
        '{"tokens": ["good", "film"], "tags": ["I-X", "I-X"]}\n{"tokens": ["it"], "tags": ["O"]}\n',
        name="t.jsonl",
    )
    assert (chunked.labels, chunked.metrics[0]) == (("B-X", "I-X", "O"), "f1")
    columns = own(tmp_path, "D the x\nN film y\n", name="t.txt", text_column="1", label_column="0")
    assert columns.train[0] == Sentence(("the", "film"), ("D", "N"))
    asked = own(
        tmp_path,
        '{"context": "it was good", "question": "what", "answers": "good"}\n',
        name="q.jsonl",
    )
    assert (asked.kind, asked.metrics) == ("answering", ("exact", "f1"))
    assert (
        "1 contexts of the validation questions are among the training contexts" in asked.notes[0]
    )


@pytest.mark.parametrize(
    ("name", "text", "given", "said"),
    [
        (
            "t.csv",
            "text,x,y\na,1,2\n",
            {"label_column": "x,y"},
            r"line 2: 'y' must be 0, 1 or empty",
        ),
        (
            "t.csv",
            "text,x,y\na,1,0\n",
            {"label_column": "x,z"},
            r"t.csv: no column 'z'; known: text, x, y",
        ),
        (
            "t.jsonl",
            '{"text": "a", "label": ["x", null]}\n',
            {},
            r"line 1: 'label' must be a text or a number, or a list of them",
        ),
        ("t.jsonl", '{"text": "a", "label": []}\n', {}, r"no example has a label"),
        (
            "t.jsonl",
            '{"text": "a", "label": ["x"]}\n',
            {"problem_type": "classification"},
            r"its problem type is multilabel, not classification",
        ),
        (
            "t.jsonl",
            '{"tokens": ["a"], "tags": ["D"]}\n',
            {"text_column": "words"},
            r"--text-column is not for this kind of file",
        ),
        (
            "q.jsonl",
            '{"context": "a", "question": "b", "answers": "a"}\n',
            {"label_column": "x"},
            r"--label-column is not for this kind of file",
        ),
        ("t.conll", "the D\nfilm\n", {}, r"line 2"),
        (
            "t.conll",
            "the D\n",
            {"text_column": "word"},
            r"--text-column of a file of columns is a number from 0, not 'word'",
        ),
        ("q.json", "{}", {}, r"data"),
        ("q.jsonl", '{"context": "a", "question": "b", "answers": "z"}\n', {}, r"line 1"),
    ],
)
def test_bad_own_files_of_other_kinds(
    tmp_path: Path, name: str, text: str, given: dict[str, str], said: str
):
    with pytest.raises(UserError, match=said):
        own(tmp_path, text, name=name, **given)


def test_compressed_files_of_every_layout(tmp_path: Path):
    asked = json.dumps(
        {
            "data": [
                {
                    "paragraphs": [
                        {
                            "context": "a b",
                            "qas": [
                                {
                                    "id": "1",
                                    "question": "c",
                                    "answers": [{"text": "a", "answer_start": 0}],
                                }
                            ],
                        }
                    ]
                }
            ]
        }
    )
    layouts = {
        "t.csv": "text,label\na,1\nb,0\n", "t.tsv": "text\tlabel\na\t1\nb\t0\n",
        "t.jsonl": '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n',
        "t.conll": "a D\nb N\n", "s.jsonl": '{"tokens": ["a", "b"], "tags": ["D", "N"]}\n',
        "q.json": asked,
        "q.jsonl": '{"context": "a b", "question": "c", "answers": "a"}\n',
    }  # fmt: skip
    for name, text in layouts.items():
        plain, packed = (
            own(tmp_path, text, name=name),
            own(tmp_path, gzip.compress(text.encode()), name=name + ".gz"),
        )
        assert (plain.train, plain.kind) == (packed.train, packed.kind)


def test_wikiann_with_its_prefixes(tmp_path: Path):
    (tmp_path / "wikiann-en").mkdir()
    for name in ("train", "dev", "test"):
        with gzip.open(tmp_path / "wikiann-en" / f"{name}.gz", "wt") as stream:
            stream.write("en:Sioux B-ORG\nen:Falls I-ORG\n\nen:it O\n")
    assert read_task(TASKS["wikiann"], str(tmp_path)).train[0] == Sentence(
        ("Sioux", "Falls"), ("B-ORG", "I-ORG")
    )


def test_one_folder_for_the_tasks_of_all_groups(tmp_path: Path):
    """Tasks in glue/ and tagging/, unless the folder holds the task itself."""
    for group, folder in (("glue", "CoLA"), ("tagging", "wikiann-en"), ("squad", "squad")):
        (tmp_path / group / folder).mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "glue" / "CoLA" / name).write_text(COLA)
    for name in ("train", "dev", "test"):
        (tmp_path / "tagging" / "wikiann-en" / name).write_text("en:Sioux B-ORG\nen:Falls O\n")
    assert len(read_task(TASKS["cola"], str(tmp_path)).train) == 2
    assert len(read_task(TASKS["wikiann"], str(tmp_path)).train) == 1
    for name, inside in (("cola", "glue"), ("wikiann", "tagging"), ("rte", "glue")):
        assert folder_of(TASKS[name], str(tmp_path)) == str(tmp_path / inside)
    # squad/ may be the task's own folder, or that of its group; others beside it do not matter.
    (tmp_path / "squad-tools").mkdir()
    assert folder_of(TASKS["squad1"], str(tmp_path)) == str(tmp_path / "squad")
    (tmp_path / "train-v1.1-subset.json").write_text("{}")
    assert folder_of(TASKS["squad1"], str(tmp_path)) == str(tmp_path)
    assert folder_of(TASKS["squad2"], str(tmp_path)) == str(tmp_path / "squad")
    # A task's folder may be given itself, whatever lies in it.
    own = tmp_path / "tagging" / "wikiann-en"
    (own / "tagging").mkdir()
    assert len(read_task(TASKS["wikiann"], str(own)).train) == 1
    (tmp_path / "CoLA").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "CoLA" / name).write_text(COLA * 2)
    assert len(read_task(TASKS["cola"], str(tmp_path)).train) == 4
    with pytest.raises(UserError, match=r"glue.RTE"):
        read_task(TASKS["rte"], str(tmp_path))


def test_own_files_do_not_take_the_name_of_a_benchmark(tmp_path: Path):
    assert own(tmp_path, "text,label\na,1\nb,0\n", name="cola.csv").name == "own-cola"
    assert own(tmp_path, "text,label\na,1\nb,0\n", name="mine.csv").name == "mine"


def test_an_empty_cell_is_no_label_where_there_may_be_several(tmp_path: Path):
    assert [
        e.label for e in own(tmp_path, "text,label\na,x|y\nb,\n", problem_type="multilabel").train
    ] == [(0, 1), ()]
