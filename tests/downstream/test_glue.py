"""All nine tasks in one command, on files in GLUE's own layouts: rows, averages, notes, and a
resumed run."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from electrify.downstream.finetune import finetune
from electrify.downstream.glue_tasks import GLUE
from electrify.downstream.known_tasks import AVERAGES
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.page import markdown
from electrify.errors import UserError

HEADERS = {
    "cola": None,
    "sst2": "sentence\tlabel",
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    ),
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
    "qnli": "index\tquestion\tsentence\tlabel",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
}

MEASURED = {
    "seconds": 0,
    "peak_memory_bytes": 0,
}  # what differs between two runs of the same numbers


def text_of(name: str, rows: int) -> str:
    """Rows whose label is told by one word."""
    task, header = GLUE[name], HEADERS[name]
    labels = task.labels or ("1.0", "4.5")
    lines = [] if header is None else [header]
    for k in range(rows):
        words = ("good film", "bad plot", "fine one")[k % len(labels)]
        if header is None:
            lines.append(f"gj04\t{labels[k % 2]}\t\tthe {words}")
            continue
        cells = {column.removeprefix("\ufeff"): "-" for column in header.split("\t")}
        cells |= {str(task.text): f"the {words}", str(task.label): labels[k % len(labels)]} | (
            {str(task.pair): "it was"} if task.pair else {}
        )
        lines.append("\t".join(cells.values()))
    return "\n".join(lines) + "\n"


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    root = tmp_path / "glue"
    for name, task in GLUE.items():
        (root / task.folder).mkdir(parents=True)
        for file in (task.train, task.validation, *task.also.values()):
            (root / task.folder / file).write_text(text_of(name, 12))
    return root


def run(zoo: Path, glue: Path, out: Path, *tasks: str, **more: Any):
    settings = FinetuneSettings(
        num_train_epochs=1, max_seq_length=16, bf16="false", per_device_train_batch_size=8
    )
    return finetune(
        FinetuneConfig(
            output_dir=str(out),
            task=tasks,
            data_dir=str(glue),
            settings=settings,
            **{"seeds": 1, "models": (str(zoo / "electra"),)} | more,
        )
    )


def test_all_nine(zoo: Path, glue: Path, tmp_path: Path):
    report = run(zoo, glue, tmp_path / "out", "glue")
    assert [r.task for r in report.rows if r.metric == GLUE[r.task].metrics[0]] == list(GLUE)
    assert {(r.task, r.metric) for r in report.rows} == {
        (n, m) for n, t in GLUE.items() for m in t.metrics
    } | {("mnli", "accuracy_mismatched")}
    (average,) = report.averages("GLUE").values()
    medians = [
        report.median(task=name, model=report.rows[0].model) for name in AVERAGES["GLUE"].tasks
    ]
    assert average == pytest.approx(sum(medians) / 8)
    assert f"GLUE average of {report.rows[0].model}: {100 * average:.1f}" in report.table()
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Published: ELECTRA-Small 79.9" in text
    assert not report.notes()


def test_eight_tasks_without_one_have_no_average_and_subsets_are_told(
    zoo: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (glue / "QNLI" / "train.tsv").rename(glue / "QNLI" / "train_subset.tsv")
    (glue / "MNLI" / "dev_mismatched.tsv").unlink()
    report = run(zoo, glue, tmp_path / "out", "qnli", "mnli", "wnli")
    assert report.averages("GLUE") == {}
    told = [
        "qnli: train_subset.tsv (12 examples) stands in for the official train.tsv",
        "mnli: dev_mismatched.tsv is not there: mismatched is not scored",
    ]
    assert report.notes() == told
    assert all(f"- {note}" in (tmp_path / "out" / "report.md").read_text() for note in told)
    assert all(f"note: {note}" in report.table() for note in told)
    assert "GLUE average" not in markdown(report)
    before = (tmp_path / "out" / "scores.jsonl").read_bytes()
    assert run(zoo, glue, tmp_path / "out", "qnli", "mnli", "wnli").notes() == told, (
        "also where nothing is left to run"
    )
    assert (tmp_path / "out" / "scores.jsonl").read_bytes() == before
    assert json.loads(before.splitlines()[0])["notes"]


def write_test_sets(glue: Path) -> None:
    for name, task in GLUE.items():
        header = (
            "index\tsentence"
            if HEADERS[name] is None
            else f"index\t{task.text}" + (f"\t{task.pair}" if task.pair else "")
        )
        rows = "".join(
            f"{k}\tthe good film" + ("\tit was" if task.pair else "") + "\n" for k in range(5)
        )
        for file in (task.test or {"": "test.tsv"}).values():
            path = glue / task.folder / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{header}\n{rows}")


def test_a_submission(zoo: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Eleven files, each with a header and one line an example, labels as the task writes them; the
    best seed of each task; the same bytes again."""
    write_test_sets(glue)
    out = tmp_path / "out"
    report = run(zoo, glue, out, "glue", predict_test=True, seeds=2)
    (archive,) = out.glob("submission-*.zip")
    content = archive.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as z:
        files = {name: z.read(name).decode().splitlines() for name in z.namelist()}
    wanted = {
        "CoLA",
        "SST-2",
        "MRPC",
        "STS-B",
        "QQP",
        "MNLI-m",
        "MNLI-mm",
        "AX",
        "QNLI",
        "RTE",
        "WNLI",
    }
    assert set(files) == {f"{name}.tsv" for name in wanted}
    for lines in files.values():
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
        assert len({line.split("\t")[1] for line in lines[1:]}) == 1, (
            "the same text has the same answer"
        )
    assert files["AX.tsv"][1].split("\t")[1] in GLUE["mnli"].labels
    assert files["RTE.tsv"][1].split("\t")[1] in GLUE["rte"].labels
    assert 0 < float(files["STS-B.tsv"][1].split("\t")[1]) < 6
    for name, task in GLUE.items():
        best = max(
            (r for r in report.records if r["task"] == name),
            key=lambda r: r["scores"][task.metrics[0]],
        )
        test = next(iter(task.test), task.folder)
        (folder,) = (out / "predictions").glob(f"*/{name}-seed{best['seed']}")
        assert (folder / f"{test}.tsv").read_text().splitlines() == files[f"{test}.tsv"]
    assert "11 test sets" in capsys.readouterr().err
    (folder / "WNLI.tsv").unlink()
    before = (out / "scores.jsonl").read_bytes()
    run(zoo, glue, out, "glue", predict_test=True, seeds=2)
    assert (folder / "WNLI.tsv").is_file(), "a run whose predictions are gone is run again"
    assert archive.read_bytes() == content
    assert [json.loads(r) | MEASURED for r in (out / "scores.jsonl").read_bytes().splitlines()] == [
        json.loads(r) | MEASURED for r in before.splitlines()
    ]


def test_a_submission_of_some_tasks(
    zoo: Path, glue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (glue / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tthe film\tit was\n")
    run(zoo, glue, tmp_path / "out", "rte", "wnli", predict_test=True)
    assert "1 test sets; GLUE's server also wants CoLA, SST-2" in capsys.readouterr().err
    run(zoo, glue, tmp_path / "other", "wnli", predict_test=True)
    assert "there is no test set to predict" in capsys.readouterr().err
    assert not list((tmp_path / "other").glob("submission*"))


def test_a_submission_of_random_weights_alone(zoo: Path, glue: Path, tmp_path: Path):
    (glue / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tthe film\tit was\n")
    for others in ((), (str(zoo / "bert"),)):  # beside others, they are a row for comparison
        out = tmp_path / f"out{len(others)}"
        models = (f"random:{zoo / 'bert'}", *others)
        run(zoo, glue, out, "rte", predict_test=True, models=models)
        (archive,) = out.glob("submission-*.zip")
        assert ("random" in archive.name) == (not others)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("index\tsentence1\n0\ta\n", r"RTE/test.tsv, line 2: no column 'sentence2'"),
        ("index\tsentence1\tsentence2\n", r"RTE/test.tsv: no examples"),
        ("index\tsentence1\tsentence2\n0\ta\n", r"RTE/test.tsv, line 2: 2 columns, expected 3"),
    ],
)
def test_broken_test_sets(zoo: Path, glue: Path, tmp_path: Path, text: str, said: str):
    (glue / "RTE" / "test.tsv").write_text(text)
    with pytest.raises(UserError, match=said):
        run(zoo, glue, tmp_path / "out", "rte", predict_test=True)


def test_answers_to_another_test_set_are_not_packed(zoo: Path, glue: Path, tmp_path: Path):
    """Neither those of a test set that changed since, nor answers that somebody changed."""
    path, out = glue / "RTE" / "test.tsv", tmp_path / "out"
    path.write_text("index\tsentence1\tsentence2\n0\tthe film\tit was\n")
    run(zoo, glue, out, "rte", predict_test=True)
    (archive,) = out.glob("submission-*.zip")
    before = archive.read_bytes()
    (answers,) = out.glob("predictions/*/*/RTE.tsv")
    answers.write_text("index\tprediction\n0\tmine\n")
    run(zoo, glue, out, "rte", predict_test=True)
    assert archive.read_bytes() == before
    path.write_text("index\tsentence1\tsentence2\n0\tthe plot\tit was\n")
    with pytest.raises(UserError, match="holds answers to the test set RTE from before it changed"):
        run(zoo, glue, out, "rte", predict_test=True)
    assert archive.read_bytes() == before


def test_baselines_are_in_no_submission_and_their_scores_stand(
    zoo: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    run(zoo, glue, out, "rte", baselines=True)
    (glue / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tthe film\tit was\n")
    monkeypatch.setattr("electrify.downstream.finetune.baseline_one", None)
    report = run(zoo, glue, out, "rte", baselines=True, predict_test=True)
    assert len(report.records) == 4, "the encoder and three baselines"
    (answers,) = out.glob("predictions/*/*/RTE.tsv")
    assert "electra" in answers.parts[-3]
