"""Data sets in the Hub's layout: clones of them with parquet files, read by the code that reads the
Hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from electrify.downstream.examples import Answer, Example, Question
from electrify.downstream.glue_tasks import GLUE
from electrify.downstream.known_tasks import ANSWERING, TAGGING
from electrify.downstream.read import hub
from electrify.downstream.read.task import read_task
from electrify.errors import UserError

datasets = pytest.importorskip("datasets")

COLUMNS = {
    "cola": ("sentence",), "sst2": ("sentence",), "mrpc": ("sentence1", "sentence2"),
    "stsb": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"), "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"), "rte": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
}  # fmt: skip


def clone(folder: Path, sets: dict[str, dict[str, list[dict[str, object]]]]) -> str:
    """configuration -> split -> rows, as a data set's folder."""
    lines = ["---", "configs:"]
    for config, splits in sets.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            lines += [f"  - split: {split}", f"    path: {config}/{split}-*"]
            path = folder / config / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            datasets.Dataset.from_list(rows).to_parquet(str(path))
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return str(folder)


def rows(name: str, n: int, *, labelled: bool = True) -> list[dict[str, object]]:
    classes = len(GLUE[name].labels)
    labels = [(k % classes if classes else k / 2) if labelled else -1 for k in range(n)]
    return [
        {**{c: f"{c} {k}" for c in COLUMNS[name]}, "label": label, "idx": k}
        for k, label in enumerate(labels)
    ]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True, raising=False)


@pytest.mark.parametrize("name", list(GLUE))
def test_all_nine(tmp_path: Path, name: str):
    ends = ("_matched", "_mismatched") if name == "mnli" else ("",)
    splits = {
        s: rows(name, 6, labelled="test" not in s)
        for s in ("train", *("validation" + e for e in ends), *("test" + e for e in ends))
    }
    data = read_task(GLUE[name], clone(tmp_path / "glue", {name: splits}), test=True)
    first, second = (*COLUMNS[name], None)[:2]
    classes = len(GLUE[name].labels)
    labels = [k % classes if classes else k / 2 for k in range(6)]
    wanted = tuple(
        Example(f"{first} {k}", None if second is None else f"{second} {k}", label)
        for k, label in enumerate(labels)
    )
    assert data.train == data.validation == wanted
    assert [n for n, _ in data.also] == (["mismatched"] if name == "mnli" else [])
    assert [n for n, _ in data.test] == (
        ["MNLI-m", "MNLI-mm"] if name == "mnli" else [GLUE[name].folder]
    )
    assert len(data.test[0][1]) == 6


def test_squad(tmp_path: Path):
    told = {
        "id": "q1",
        "title": "t",
        "context": "It was good.",
        "question": "What?",
        "answers": {"text": ["good"], "answer_start": [7]},
    }
    none = {
        "id": "q2",
        "title": "t",
        "context": "It was.",
        "question": "What?",
        "answers": {"text": [], "answer_start": []},
    }
    source = clone(
        tmp_path / "squad_v2", {"squad_v2": {"train": [told, none], "validation": [told, none]}}
    )
    data = read_task(ANSWERING["squad2"], source)
    assert data.train == (
        Question("q1", "What?", "It was good.", (Answer("good", 7),)),
        Question("q2", "What?", "It was.", ()),
    )
    assert data.metrics[0] == "best_exact"


def test_what_is_wrong_is_said(tmp_path: Path):
    source = clone(tmp_path / "a", {"rte": {"train": rows("rte", 4)}})
    with pytest.raises(UserError, match=r"rte has no split 'validation'; found: train"):
        read_task(GLUE["rte"], source)
    with pytest.raises(UserError, match=r"data set .*a cola cannot be loaded \(ValueError: .*cola"):
        read_task(GLUE["cola"], source)
    bad = [*rows("rte", 3), {"sentence1": "a", "sentence2": "b", "label": 2, "idx": 3}]
    with pytest.raises(
        UserError, match=r"rte train, row 4: label 2 is none of entailment, not_entailment"
    ):
        read_task(GLUE["rte"], clone(tmp_path / "b", {"rte": {"train": bad, "validation": bad}}))
    with pytest.raises(
        UserError, match=r"row 1: no text in column 'sentence2'; found: sentence1, label"
    ):
        read_task(
            GLUE["rte"], clone(tmp_path / "c", {"rte": {"train": [{"sentence1": "a", "label": 0}]}})
        )


def test_a_place_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(hub, "must_be_reachable", lambda *_: None)
    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(
        UserError,
        match=(
            r"data set nyu-mll/glue cola cannot be loaded \(ConnectionError: no network\); "
            r"--data-dir takes a folder"
        ),
    ):
        read_task(GLUE["cola"], None)
    with pytest.raises(UserError, match="data set rajpurkar/squad cannot be loaded"):
        read_task(ANSWERING["squad1"], None)


def test_a_name_that_nobody_knows_is_asked_for_once(monkeypatch: pytest.MonkeyPatch):
    """`datasets` would ask for half a minute."""

    def unknown(*_: object) -> None:
        raise UserError("'gleu' is neither a folder here nor a data set")

    def loaded(*_: object) -> None:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(hub, "must_be_reachable", unknown)
    monkeypatch.setattr(datasets, "load_dataset", loaded)
    for task in (GLUE["cola"], ANSWERING["squad1"]):
        with pytest.raises(UserError, match="nor a data set; --data-dir takes a folder, too"):
            read_task(task, "gleu")


def test_a_mistyped_folder_is_not_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for wrong in (str(tmp_path / "gleu"), "./gleu", "data/gleu", "a/b/c"):
        with pytest.raises(UserError, match=f"--data-dir {wrong}: no such folder"):
            read_task(GLUE["cola"], wrong)
    with pytest.raises(UserError, match="--data-dir tagging: no such folder"):
        read_task(TAGGING["ud"], "tagging")
