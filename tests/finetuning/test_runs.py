"""`electrify finetune` as a whole: which runs there are, resuming, selection, search, baselines,
saved models, the report and GLUE's submission."""

import csv
import io
import itertools
import json
import math
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy import QUICK, THOROUGH, reviews_task, task_of

from electrify.errors import UserError
from electrify.exporting.places import model_in
from electrify.finetuning import loop
from electrify.finetuning import run as command
from electrify.finetuning.one_run import finetune_one, shown_examples
from electrify.finetuning.options import FinetuneConfig, FinetuneSettings, search_grid
from electrify.finetuning.problems import Texts
from electrify.finetuning.report import Report, report_of
from electrify.finetuning.run import finetune
from electrify.finetuning.tasks import AVERAGES, TASKS, Example
from small import listing

Files = tuple[str, str]
MEASURED = {"seconds": 0}
"""What differs between two runs of the same numbers."""


def options(zoo: Path, reviews: Files, out: Path, **more: Any) -> FinetuneConfig:
    given: dict[str, Any] = {"models": (str(zoo / "electra"),), "seeds": 1, "settings": QUICK}
    if "task" not in more:
        given |= {"train_file": reviews[0], "validation_file": reviews[1], "baselines": False}
    return FinetuneConfig(**given | {"output_dir": str(out), "threads": "1"} | more)


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]


def test_an_interrupted_command_repeats_nothing(zoo, reviews, tmp_path, monkeypatch, pictures):
    """The records, predictions and saved models are those of a command that was not."""
    more = {"random_baseline": True, "seeds": 2, "save_model": True, "baselines": True}
    whole = finetune(options(zoo, reviews, tmp_path / "whole", **more))
    calls: list[tuple[str, int]] = []
    real, stop = command.finetune_one, True

    def counted(model: str, *args: Any, **named: Any) -> Any:
        if stop and len(calls) == 2:
            raise KeyboardInterrupt
        calls.append((model, named["seed"]))
        return real(model, *args, **named)

    monkeypatch.setattr(command, "finetune_one", counted)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        finetune(options(zoo, reviews, out, **more))
    # Two models, and before them a probe and three baselines with two seeds, of which two fit the
    # task.
    assert len(records(out)) == 6
    left, stop = (out / "scores.jsonl").read_bytes(), False
    resumed = finetune(options(zoo, reviews, out, **more))
    electra = str(zoo / "electra")
    assert calls == list(itertools.product((electra, electra, f"random:{electra}"), (0, 1)))
    assert (out / "scores.jsonl").read_bytes().startswith(left)
    both = [[r | MEASURED for r in records(folder)] for folder in (out, tmp_path / "whole")]
    assert both[0] == both[1]
    assert [replace(r) for r in resumed.rows] == list(whole.rows)
    for folder in ("predictions", "models"):
        assert listing(out / folder) == listing(tmp_path / "whole" / folder)
    finetune(options(zoo, reviews, out, **more))
    assert len(calls) == 6
    # Models for comparison are not saved, and the model of the first seed is.
    (saved,) = (out / "models").iterdir()
    shutil.copytree(saved, part := saved.with_name(f".{saved.name}.7.part"))  # of a kill
    (out / "notes").symlink_to(reviews[0])
    assert command.link_model(out) == [out]
    assert model_in(str(out)) == str(saved)
    assert (out / "notes").exists()
    shutil.rmtree(part)
    shutil.rmtree(saved)
    finetune(options(zoo, reviews, out, **more))
    assert calls[6:] == [(str(zoo / "electra"), 0)]
    assert listing(out / "models") == listing(tmp_path / "whole" / "models")
    assert (out / "report.png").stat().st_size > 5000
    check_report(whole, tmp_path / "whole")


def check_report(report: Report, out: Path) -> None:
    """Word overlap is for pairs; the majority has half of the texts."""
    assert len({row.model for row in report.rows}) == 5
    electra, other, majority, *_ = of_accuracy = report.rows[:5]
    assert (other.model, majority.median) == (f"random:{electra.model}", 0.5)
    assert [(r.metric, r.seeds) for r in of_accuracy] == [("accuracy", 2)] * 5
    assert len(report.records) == 10
    rows = list(csv.DictReader((out / "report.csv").read_text().splitlines()))
    assert [float(r["median"]) for r in rows] == [r.median for r in report.rows]
    assert (out / "report.md").read_text().count("| accuracy |") == 5
    found = [r for r in records(out) if not r["model"].startswith(("baseline:", "frozen:"))]
    counts = [(r["seed"], r["train_examples"], r["validation_examples"]) for r in found]
    assert counts == [(0, 24, 18), (1, 24, 18)] * 2


def test_other_settings_examples_or_models_are_refused(zoo, reviews, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(zoo / "electra", model)
    out = tmp_path / "out"
    asked = options(zoo, reviews, out, models=(str(model),))
    finetune(asked)
    before = listing(out)
    with pytest.raises(UserError, match="runs with max_train_samples 24, not its default"):
        finetune(replace(asked, settings=replace(QUICK, max_train_samples=None)))
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes((zoo / "bert" / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match="and the model changed since"):
        finetune(asked)
    (model / "model.safetensors").write_bytes(weights)
    held = Path(reviews[1]).read_text()
    Path(reviews[1]).write_text(Path(reviews[0]).read_text())
    with pytest.raises(UserError, match="and the examples changed since"):
        finetune(asked)
    Path(reviews[1]).write_text(held)
    assert listing(out) == before
    with pytest.raises(UserError, match="no such folder"):  # before the first model is trained
        finetune(options(zoo, reviews, tmp_path / "o", models=(str(model), str(tmp_path / "none"))))
    assert not (tmp_path / "o" / "scores.jsonl").exists()


SELECTING = replace(THOROUGH, num_train_epochs=6.0, load_best_model_at_end=True, eval_steps=4)


def scripted(patch: pytest.MonkeyPatch, *scores: float) -> None:
    """The scores on held-out training examples, one evaluation after the other, the last again."""
    real, left = Texts.score, itertools.chain(scores, itertools.repeat(scores[-1]))

    def score(self: Texts, task: Any, held: Any) -> dict[str, float]:
        if held.examples is task.validation:
            return real(self, task, held)
        return {task.metrics[0]: next(left)}

    patch.setattr(Texts, "score", score)


def test_the_chosen_evaluation_is_scored_and_saved(zoo: Path, tmp_path: Path) -> None:
    """The third is the best. Scores, answers and weights are those of a run that ends there."""
    task, model = reviews_task(), str(zoo / "electra")
    how: dict[str, Any] = {"seed": 0, "settings": SELECTING}
    with pytest.MonkeyPatch.context() as patch:
        scripted(patch, 0.1, 0.2, 0.9, 0.3)
        found = finetune_one(model, task, save_to=tmp_path / "saved", **how)
    assert [p.selection for p in found.curve[:4]] == [0.1, 0.2, 0.9, 0.3]
    assert found.scores == found.curve[2].metrics
    assert found.updates == found.curve[-1].step > 12
    real = loop.train

    def cut(*args: Any, **named: Any) -> Any:
        return itertools.islice(real(*args, **named), 12)

    with pytest.MonkeyPatch.context() as patch:
        scripted(patch, 0.1, 0.2, 0.9)
        patch.setattr(loop, "train", cut)
        ended = finetune_one(model, task, save_to=tmp_path / "cut", **how)
    assert ended.files == found.files
    names = ("saved", "cut")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in names]
    assert weights[0] == weights[1]


def test_early_stopping(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the best evaluation, two others end the run."""
    scripted(monkeypatch, 0.1, 0.5, 0.4, 0.5, 0.9)
    settings = replace(SELECTING, early_stopping_patience=2)
    found = finetune_one(str(zoo / "electra"), reviews_task(), seed=0, settings=settings)
    assert found.updates == found.curve[-1].step == 16
    assert found.scores == found.curve[1].metrics


def test_held_out_examples_are_not_trained_on() -> None:
    task = reviews_task()
    shown, held = shown_examples(task, seed=0, settings=SELECTING)
    assert len(held) == pytest.approx(0.1 * len(task.train), abs=1)
    assert not {e.text for e in shown} & {e.text for e in held}
    assert sorted([*shown, *held], key=task.train.index) == list(task.train)
    assert shown_examples(task, seed=1, settings=SELECTING)[1] != held
    assert shown_examples(task, seed=0, settings=QUICK)[1] == ()
    # 4 of 200: by its share none would be held out, and an area under a curve would not exist.
    for rare, seed in itertools.product((2, 4), range(5)):
        own = [Example(f"t{k}", None, int(k < rare)) for k in range(200)]
        _, held = shown_examples(task_of("classification", own), seed=seed, settings=SELECTING)
        assert [e.label for e in held].count(1) == 1
        assert len(held) == 21


def test_a_search_reports_the_best_and_writes_the_grid(zoo, reviews, tmp_path, monkeypatch):
    out = tmp_path / "out"
    settings = replace(THOROUGH, num_train_epochs=None, learning_rate=None)
    grid = "learning_rate=1e-9,5e-3;num_train_epochs=1,12"
    given = {"models": (str(zoo / "bert"),), "settings": settings, "seeds": 2}
    asked = options(zoo, reviews, out, hyperparameter_search=grid, **given)
    report = finetune(asked)
    assert (len(records(out)), len(report.records)) == (4 * 2, 2)
    best = "learning_rate=0.005,num_train_epochs=12"
    points = {r.point: r.median for r in report.grid}
    (mine,) = (r for r in report.rows if r.metric == "accuracy")
    assert (len(points), mine.point) == (4, best)
    assert mine.median == max(points.values()) == points[best]
    assert mine.median > points["learning_rate=1e-09,num_train_epochs=1"]
    of_runs = [r["scores"]["accuracy"] for r in report.records]
    assert mine.mean == pytest.approx(sum(of_runs) / 2)
    assert any(f"{best} is the best of 4 settings" in note for note in report.notes())
    page = (out / "search.md").read_text().splitlines()
    starred = [line for line in page if "*" in line and line.startswith("| reviews")]
    assert [best in line for line in starred] == [True]
    monkeypatch.setattr(command, "finetune_one", pytest.fail)
    assert finetune(asked).rows == report.rows
    with pytest.raises(UserError, match="runs with"):
        finetune(replace(asked, hyperparameter_search="learning_rate=1e-3"))


def record(model: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    given = {"model": model, "task": "sst2", "seed": seed, "point": "", "notes": []}
    given |= {"scores": {"accuracy": accuracy}, "train_examples": 500, "parameters": 0}
    return given | {"validation_examples": 872} | more


def reported(runs: list[dict[str, Any]]) -> Report:
    return report_of(runs, {"sst2": ("accuracy",)}, settings={})


def test_median_mean_deviation_and_best_by_hand() -> None:
    runs = [record("m", s, x) for s, x in enumerate((0.5, 0.9, 0.7, 0.6, 0.8))]
    row, single = reported([*runs, record("other", 0, 0.4)]).rows
    assert (row.model, row.median, row.best, row.worst, row.seeds) == ("m", 0.7, 0.9, 0.5, 5)
    assert (row.mean, row.std) == (pytest.approx(0.7), pytest.approx(math.sqrt(0.1 / 4)))
    assert single.std is None
    odd = reported([record("m", s, x) for s, x in enumerate((math.nan, 0.5, 0.7))])
    assert math.isnan(odd.rows[0].median)


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """Three tasks whose label is told by one word."""
    three = ("entailment", "neutral", "contradiction")
    for folder, files, column, labels in (
        ("RTE", ("train", "dev"), "label", ("entailment", "not_entailment")),
        ("STS-B", ("train", "dev"), "score", ("1.0", "4.5")),
        ("MNLI", ("train", "dev_matched", "dev_mismatched"), "gold_label", three),
    ):
        words = ("good film", "bad plot", "fine one")
        rows = [f"{k}\tthe {words[k % len(labels)]}\tit was\t{labels[k % len(labels)]}\n"
                for k in range(12)]  # fmt: skip
        (tmp_path / "glue" / folder).mkdir(parents=True)
        for file in files:
            text = f"index\tsentence1\tsentence2\t{column}\n" + "".join(rows)
            (tmp_path / "glue" / folder / f"{file}.tsv").write_text(text)
    return tmp_path / "glue"


SHORT = FinetuneSettings(
    num_train_epochs=1, max_seq_length=16, bf16="false", per_device_train_batch_size=8
)


def test_the_published_average() -> None:
    metrics = {name: TASKS[name].metrics for name in AVERAGES["GLUE"].tasks}
    runs = [
        record("m", 0, 0.0, task=name, scores=dict.fromkeys(metrics[name], 0.5 + k / 100))
        for k, name in enumerate(metrics)
    ]
    report = report_of(runs, metrics, settings={})
    assert report.averages("GLUE") == {"m": pytest.approx(0.5 + 3.5 / 100)}
    assert report_of(runs[1:], metrics, settings={}).averages("GLUE") == {}


def test_a_submission(zoo: Path, glue: Path, tmp_path: Path) -> None:
    """Predictions of the best seed, as GLUE's server takes them; the rows for comparison have
    none."""
    lone: dict[str, Any] = {"task": ("rte",), "data_dir": str(glue), "predict_test": True}
    with pytest.raises(UserError, match="no task has a test set of GLUE"):
        finetune(options(zoo, ("", ""), tmp_path / "out", **lone))
    for file, count in (("RTE/test", 3), ("STS-B/test", 1), ("diagnostic/diagnostic", 1)):
        lines = ["index\tsentence1\tsentence2", *(f"{k}\tthe film\tit was" for k in range(count))]
        path = glue / f"{file}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    more: dict[str, Any] = {"task": ("rte", "stsb", "mnli"), "data_dir": str(glue), "seeds": 2}
    more |= {"settings": SHORT, "predict_test": True, "random_baseline": True, "baselines": True}
    finetune(options(zoo, ("", ""), out, **more))
    (archive,) = out.glob("submission-*.zip")
    assert "random" not in archive.name
    with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as z:
        assert z.namelist() == ["AX.tsv", "RTE.tsv", "STS-B.tsv"]
        lines = z.read("RTE.tsv").decode().splitlines()
        value = z.read("STS-B.tsv").decode().splitlines()[1]
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2"]
    assert {line.split("\t")[1] for line in lines[1:]} <= set(TASKS["rte"].labels)
    assert 1 <= float(value.split("\t")[1]) <= 5
    model = str(zoo / "electra")
    mine = [r for r in records(out) if (r["task"], r["model"]) == ("rte", model)]
    best = max(mine, key=lambda r: r["scores"]["accuracy"])
    folders = out.glob(f"predictions/*/rte-seed{best['seed']}/RTE.tsv")
    (chosen,) = (p for p in folders if not p.parts[-3].startswith(("random", "frozen")))
    assert chosen.read_text().splitlines() == lines
    before = archive.read_bytes()
    chosen.unlink()  # a missing file of predictions is predicted again
    finetune(options(zoo, ("", ""), out, **more))
    assert archive.read_bytes() == before


def test_the_grid_by_hand() -> None:
    grid = search_grid("learning_rate=1e-4, 3e-4;num-train-epochs=2,1", FinetuneSettings())
    assert grid[1][0] == "learning_rate=0.0001,num_train_epochs=1"
    values = [(s.learning_rate, s.num_train_epochs) for _, s in grid]
    assert values == [(1e-4, 2), (1e-4, 1), (3e-4, 2), (3e-4, 1)]
    assert len(search_grid("auto", FinetuneSettings())) == 8
    for text, fault in (
        ("learning_rate", r"is NAME=VALUE,VALUE"),
        ("learning_rat=1", r"no setting 'learning_rat'.*'learning_rate'"),
        ("learning_rate=fast", r"learning_rate .*'fast'"),
        ("layerwise_lr_decay=0.8", r"layerwise_lr_decay is given and searched"),
    ):
        with pytest.raises(UserError, match=fault):
            search_grid(text, FinetuneSettings(layerwise_lr_decay=1.0))


def test_a_model_of_the_hub_counts_with_its_first_commit(reviews, tmp_path, monkeypatch):
    """The commit is known once the configuration is in the cache, which the first start fills."""
    cached: list[str] = []
    monkeypatch.setattr(command, "load_config", lambda name, **_: cached.append(name))
    monkeypatch.setattr(command, "content_of", lambda name: f"{name}@abc" if cached else name)
    asked = options(tmp_path, reviews, tmp_path, models=("org/model",))
    (run,) = command.runs_of(asked, command.read_asked(asked))
    assert run.hashes["weights"] == "org/model@abc"


def test_a_probe_stands_beside_fine_tuned_models_alone(zoo, reviews, tmp_path) -> None:
    """Not beside the published protocol or another probe, which its settings would contradict."""
    for settings, probes in (
        (FinetuneSettings(learning_rate=1e-3, eval_steps=2), 1),
        (FinetuneSettings(protocol="published"), 0),
        (FinetuneSettings(frozen_encoder="all"), 0),
    ):
        asked = options(zoo, reviews, tmp_path, settings=settings, baselines=True)
        runs = list(command.runs_of(asked, command.read_asked(asked)))
        frozen = [run.settings for run in runs if run.model.startswith("frozen:")]
        assert [s.frozen_encoder for s in frozen] == ["last"] * probes
        assert all(s.learning_rate is None for s in frozen)


def test_the_verdict_compares_the_best_model_with_the_best_baseline() -> None:
    def run(task: str, model: str, **scores: float) -> dict[str, Any]:
        return record(model, 0, 0.0, task=task, scores=scores)

    records = [
        run("a", "run", accuracy=0.7, f1=0.1),
        run("a", "other", accuracy=0.8, f1=0.1),
        run("a", "random:run", accuracy=0.5, f1=0.9),
        run("a", "baseline:b", accuracy=0.9, f1=0.1),
        run("b", "run", ece=0.1),
        run("b", "baseline:majority", ece=0.4),
        run("c", "run", accuracy=0.5),
        run("c", "baseline:majority", accuracy=0.5),
        run("c", "frozen:run", accuracy=0.7),
        run("d", "run", accuracy=0.5),
    ]
    metrics = {"a": ("accuracy", "f1"), "b": ("ece",), "c": ("accuracy",), "d": ("accuracy",)}
    report = report_of(records, metrics, settings={})
    assert list(report.verdicts()) == [
        (
            "a: other is 10.0 points (87 of 872 examples) worse than the best baseline in "
            "accuracy: 80.0, baseline:b 90.0"
        ),
        "b: run is 30.0 points better than the best baseline in ece: 10.0, baseline:majority 40.0",
        "c: run is as good as the best baseline in accuracy: 50.0, baseline:majority 50.0",
        (
            "c: a linear layer on the frozen encoder is better (70.0). It is a comparison and not "
            "saved. Try other --num-train-epochs, a lower --learning-rate or "
            "--load-best-model-at-end"
        ),
    ]
    one = report_of([r for r in records if r["task"] == "a"], metrics, settings={})
    assert one.cells() == [
        ["model", "accuracy", "f1"],
        *(["baseline:b", "90.0", "10.0"], ["other", "80.0", "10.0"], ["run", "70.0", "10.0"]),
        ["random:run", "50.0", "90.0"],
    ]
