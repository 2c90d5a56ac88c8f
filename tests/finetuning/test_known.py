"""The known tasks: their rows, in folders in their own layouts, as data sets of the Hub."""

import json
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.finetuning.known import read_task
from electrify.finetuning.tasks import AVERAGES, GROUPS, TASKS, Example, TaskData, tasks_named
from electrify.text import tables
from golden import UPDATES, measured, processor, read, tasks

DATA = Path(__file__).parents[3] / "shared" / "data"
COLA = 'gj04\t1\t\tThe "book.\ngj04\t0\t*\tBook \'the"\n'
STSB = "index\tsentence1\tsentence2\tscore\n0\tA plane.\tA jet.\t4.500\n1\ta\tb\t0\n"
MNLI = "sentence1\tsentence2\tlabel1\tgold_label\na\tb\t-\tneutral\nc\td\t-\tcontradiction\n"


def task(folder: Path, name: str, *, test: bool = False, **files: str) -> TaskData:
    row = TASKS[name]
    for file, text in files.items():
        path = folder / row.folders[0] / f"{file}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_task(row, str(folder), test=test)


def test_glue_without_header_and_with_quotes(tmp_path: Path) -> None:
    found = task(tmp_path, "cola", train=COLA, dev=COLA)
    assert found.train == (Example('The "book.', None, 1), Example("Book 'the\"", None, 0))
    assert (found.labels, found.metrics[0], found.notes) == (("0", "1"), "matthews", ())


def test_glue_by_header(tmp_path: Path) -> None:
    found = task(
        tmp_path, "stsb", train=STSB, dev="score\tsentence2\tsentence1\n1\tb\ta\n2\td\tc\n"
    )
    assert found.train[0] == Example("A plane.", "A jet.", 4.5)
    assert found.validation == (Example("a", "b", 1.0), Example("c", "d", 2.0))
    assert (found.symmetric, found.value_range) == (True, (0.0, 5.0))


def test_further_sets_subsets_and_test_sets(tmp_path: Path) -> None:
    found = task(tmp_path, "mnli", train_subset=MNLI, dev_matched=MNLI)
    assert [e.label for e in found.train] == [1, 2]  # type: ignore[union-attr]
    assert found.score_names == ("accuracy",)
    assert "train_subset.tsv (2 examples) stands in for the official" in found.notes[0]
    test = "index\tsentence1\tsentence2\n0\ta\tb\n"
    (tmp_path / "diagnostic").mkdir()
    (tmp_path / "diagnostic" / "diagnostic.tsv").write_text(test)
    more = {"train": MNLI, "dev_mismatched": MNLI, "test_matched": test}
    found = task(tmp_path, "mnli", test=True, **more)
    assert found.also == (("mismatched", found.train),)
    assert found.test == (("MNLI-m", (Example("a", "b"),)), ("AX", (Example("a", "b"),)))
    assert read_task(TASKS["mnli"], str(tmp_path)).test == ()


BABYLM: dict[str, tuple[dict[str, Any], Example]] = {
    "boolq": ({"question": "is it", "passage": "It is.", "label": 1},
              Example("is it", "It is.", 1)),
    "multirc": ({"paragraph": "P.", "question": "Q?", "answer": "A", "label": 0},
                Example("Question: Q? Answer: A", "P.", 0)),
    "wsc": ({"text": "Mark told Pete about himself.", "span1_text": "Mark",
             "span2_text": "himself", "label": 1},
            Example('Does "himself" refer to "Mark" in this passage?',
                    "Mark told Pete about himself.", 1)),
    "mnli": ({"premise": "a", "hypothesis": "b", "label": 2}, Example("a", "b", 2)),
}  # fmt: skip


PLACES = ("", "glue_filtered", "full_eval/glue_filtered", "babylm")


@pytest.mark.parametrize(("name", "place"), [*zip(BABYLM, PLACES, strict=True)])
def test_babylm(tmp_path: Path, name: str, place: str) -> None:
    row, wanted = BABYLM[name]
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid"):
        (tmp_path / place / f"{name}.{part}.jsonl").write_text(json.dumps(row) + "\n")
    found = read_task(TASKS[f"babylm_{name}"], str(tmp_path))
    assert found.train == found.validation == (wanted,)
    (tmp_path / place / f"{name}.valid.jsonl").write_text(json.dumps(row | {"label": 3}) + "\n")
    with pytest.raises(UserError, match=r"valid.jsonl, line 1: label '3' is not one of \w+, "):
        read_task(TASKS[f"babylm_{name}"], str(tmp_path))


def test_squad(tmp_path: Path) -> None:
    answers = ([{"text": "Paris", "answer_start": 0}], [])
    qas = [{"id": str(k), "question": "?", "answers": a} for k, a in enumerate(answers)]
    data = {"data": [{"paragraphs": [{"context": "Paris lies", "qas": qas}]}]}
    for name in ("train-v2.0-subset.json", "dev-v2.0-half.json"):
        (tmp_path / name).write_text(json.dumps(data))
    found = read_task(TASKS["squad2"], str(tmp_path))
    assert found.metrics == TASKS["squad2"].metrics
    assert found.notes[1].startswith("dev-v2.0-half.json (2 questions) stands in for the official")
    assert found.notes[2].startswith("2 of 2 validation contexts of questions also occur in")


def test_a_treebank_without_a_development_set(tmp_path: Path) -> None:
    """It is scored on its test set."""
    word = "".join(
        f"{k}\t{word}\t_\t{tag}\t_\t_\t0\t_\t_\t_\n"
        for k, (word, tag) in enumerate((("dogs", "NOUN"), ("bark", "VERB")), 1)
    )
    for part in ("train", "test"):
        (tmp_path / "UD_X").mkdir(exist_ok=True)
        (tmp_path / "UD_X" / f"en_x-ud-{part}.conllu").write_text(word)
    found = read_task(TASKS["ud"], str(tmp_path))
    assert (len(found.validation), found.also) == (1, ())
    assert any(note.startswith("no development set: scored on") for note in found.notes)


def test_words_that_begin_with_their_language(tmp_path: Path) -> None:
    """As in WikiANN's own files."""
    (tmp_path / "wikiann").mkdir()
    for part in ("train", "dev", "test"):
        (tmp_path / "wikiann" / part).write_text("en:a B-PER\nen:en: O\n\nen:c O\n")
    found = read_task(TASKS["wikiann"], str(tmp_path))
    assert [one.words for one in found.train] == [("a", "en:"), ("c",)]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "must_be_reachable", lambda *_: None)
    return datasets


def test_glue_of_the_hub(tmp_path: Path, hub: Any) -> None:
    """Cloned into a folder."""
    rows = [{"premise": f"p{k}", "hypothesis": "h", "label": k % 3} for k in range(4)]
    lines = ["---", "configs:", "- config_name: mnli", "  data_files:"]
    for split in (
        "train",
        *(f"{s}_{m}matched" for s in ("validation", "test") for m in ("", "mis")),
    ):
        lines += [f"  - split: {split}", f"    path: mnli/{split}-*"]
        path = tmp_path / "glue" / "mnli" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        hub.Dataset.from_list(rows).to_parquet(str(path))
    (tmp_path / "glue" / "README.md").write_text("\n".join([*lines, "---", ""]))
    found = read_task(TASKS["mnli"], str(tmp_path / "glue"), test=True)
    assert found.train == tuple(Example(f"p{k}", "h", k % 3) for k in range(4))
    assert found.also == (("mismatched", found.train),)
    assert [name for name, _ in found.test] == ["MNLI-m", "MNLI-mm"]


COUNTS = {
    "cola": (8551, 1043), "sst2": (67349, 872), "mrpc": (3668, 408), "stsb": (5749, 1500),
    "qqp": (8999, 1000), "mnli": (9999, 9815), "qnli": (9999, 5463), "rte": (2490, 277),
    "wnli": (635, 71), "conll2000": (8936, 2012), "conll2003": (14041, 3250),
    "wnut17": (3394, 1009), "wikiann": (20000, 10000), "ud": (12544, 2001),
    "squad1": (11877, 2910), "squad2": (15853, 2102),
}  # fmt: skip


LARGE = ("conll2000", "conll2003", "wikiann", "ud", "sst2", "squad1")
EACH = [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in COUNTS]


@pytest.mark.parametrize("name", EACH)
def test_the_official_files(name: str) -> None:
    if not DATA.is_dir():
        pytest.skip("no ../shared/data")
    found = read_task(TASKS[name], str(DATA))
    assert (len(found.train), len(found.validation)) == COUNTS[name]
    if name in GROUPS["glue"]:
        labels = {e.label for e in (*found.train, *found.validation)}  # type: ignore[union-attr]
        assert (min(labels), max(labels)) == (0, len(found.labels) - 1 if found.labels else 5)


def test_groups_and_the_published_average_are_those_of_the_rows() -> None:
    found = [row.name for row in tasks_named(["SST-2", "GLUE", "babylm-rte"])]
    assert found == ["sst2", *(n for n in GROUPS["glue"] if n != "sst2"), "babylm_rte"]
    assert set(AVERAGES["GLUE"].tasks) == set(GROUPS["glue"]) - {"wnli"}
    assert set(AVERAGES["BabyLM"].tasks) == set(GROUPS["babylm"])
    of_base = [TASKS[name].published["BERT-Base"] for name in AVERAGES["GLUE"].tasks]
    assert sum(of_base) / 8 == pytest.approx(82.2, abs=0.1)


BEFORE, GOLDEN = read()
# Between processors, losses and sums of weights differ by more.
TOLERANCE = 1e-6 if processor() == BEFORE else 2e-4


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_updates(zoo: Path, name: str) -> None:
    found = measured(str(zoo / "electra"), tasks()[name])
    assert found == pytest.approx(GOLDEN[name], abs=TOLERANCE, rel=TOLERANCE)
    losses = found[:UPDATES]
    assert sum(losses[-5:]) < 0.98 * sum(losses[:5])


def test_malformed_lines(tmp_path: Path) -> None:
    """97,931 of the official QQP has three columns: a line feed within a question."""

    def qqp(*cut: int) -> str:
        rows = (
            "9\tand so?\t0" if k in cut else f"{k}\twhy {k}\tso?\t{k % 2}" for k in range(2, 402)
        )
        return "\n".join(["id\tquestion1\tquestion2\tis_duplicate", *rows])

    found = task(tmp_path, "qqp", train=qqp(98, 99, 300), dev=qqp())
    assert len(found.train) == 397
    assert found.notes == (
        "train.tsv: 3 malformed lines left out (line 98: 3 columns, expected 4)",
    )
    with pytest.raises(UserError, match=r"line 5: 3 columns, expected 4 \(5 of 401 lines"):
        task(tmp_path, "qqp", train=qqp(5, 9, 20, 30, 50))
    with pytest.raises(UserError, match=r"line 401: 3 columns, .* the file is cut"):
        task(tmp_path, "qqp", train=qqp(401))
