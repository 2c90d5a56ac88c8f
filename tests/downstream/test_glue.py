"""All nine tasks in one command, on files in GLUE's own layouts: rows, averages, notes, and a resumed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from electrify.config.finetune import FinetuneConfig, FinetuneSettings
from electrify.downstream.finetune import finetune
from electrify.downstream.tasks import AVERAGED, TASKS

HEADERS = {
    "cola": None,
    "sst2": "sentence\tlabel",
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "stsb": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
    "qnli": "index\tquestion\tsentence\tlabel",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
}


def text_of(name: str, rows: int) -> str:
    """Rows whose label is told by one word."""
    task, header = TASKS[name], HEADERS[name]
    labels = task.labels or ("1.0", "4.5")
    lines = [] if header is None else [header]
    for k in range(rows):
        words = ("good film", "bad plot", "fine one")[k % len(labels)]
        if header is None:
            lines.append(f"gj04\t{labels[k % 2]}\t\tthe {words}")
            continue
        cells = {column.removeprefix("\ufeff"): "-" for column in header.split("\t")}
        cells |= {str(task.text): f"the {words}", str(task.label): labels[k % len(labels)]} | ({str(task.pair): "it was"} if task.pair else {})
        lines.append("\t".join(cells.values()))
    return "\n".join(lines) + "\n"


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    root = tmp_path / "glue"
    for name, task in TASKS.items():
        (root / task.folder).mkdir(parents=True)
        for file in (task.train, task.validation, *task.also.values()):
            (root / task.folder / file).write_text(text_of(name, 12))
    return root


def run(zoo: Path, glue: Path, out: Path, *tasks: str):
    settings = FinetuneSettings(num_train_epochs=1, max_seq_length=16, bf16="false", per_device_train_batch_size=8)
    return finetune(FinetuneConfig(models=(str(zoo / "electra"),), output_dir=str(out), task=tasks, data_dir=str(glue), seeds=1, settings=settings))


def test_all_nine(zoo: Path, glue: Path, tmp_path: Path):
    report = run(zoo, glue, tmp_path / "out", "glue")
    assert [r.task for r in report.rows if r.metric == TASKS[r.task].metrics[0]] == list(TASKS)
    assert {(r.task, r.metric) for r in report.rows} == {(n, m) for n, t in TASKS.items() for m in t.metrics} | {("mnli", "accuracy_mismatched")}
    (average,) = report.glue_averages().values()
    medians = [report.median(task=name, model=report.rows[0].model) for name in AVERAGED]
    assert average == pytest.approx(sum(medians) / 8)
    assert f"GLUE average of {report.rows[0].model}: {100 * average:.1f}" in report.table()
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Published: ELECTRA-Small 79.9" in text
    assert not report.notes()


def test_eight_tasks_without_one_have_no_average_and_subsets_are_told(zoo: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (glue / "QNLI" / "train.tsv").rename(glue / "QNLI" / "train_subset.tsv")
    (glue / "MNLI" / "dev_mismatched.tsv").unlink()
    report = run(zoo, glue, tmp_path / "out", "qnli", "mnli", "wnli")
    assert report.glue_averages() == {}
    told = [
        "qnli: train_subset.tsv (12 examples) stands in for the official train.tsv",
        "mnli: dev_mismatched.tsv is not there: mismatched is not scored",
    ]
    assert report.notes() == told
    assert all(f"- {note}" in (tmp_path / "out" / "report.md").read_text() for note in told)
    assert all(f"note: {note}" in report.table() for note in told)
    assert "GLUE average" not in report.markdown()
    before = (tmp_path / "out" / "scores.jsonl").read_bytes()
    assert run(zoo, glue, tmp_path / "out", "qnli", "mnli", "wnli").notes() == told, "also where nothing is left to run"
    assert (tmp_path / "out" / "scores.jsonl").read_bytes() == before
    assert json.loads(before.splitlines()[0])["notes"]
