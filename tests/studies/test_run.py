"""The processes of a study: one encoder, shared prefix runs, forecast, and the whole command."""

import json
import random
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import psutil
import pytest
from test_study_identity import TINY, blimp, config

from batches import tiny
from electrify import cli
from electrify.errors import UserError
from electrify.finetuning.options import FinetuneConfig, FinetuneSettings
from electrify.finetuning.run import SCORES, finetune
from electrify.flop_counts import recipe_flops
from electrify.methods import DISCRIMINATOR
from electrify.recipe import dump, override
from electrify.studies import one_run
from electrify.studies import run as run_module
from electrify.studies.measures import LAST_ONLY, measure_named, measured
from electrify.studies.one_run import OUTCOME, pretrain_and_measure
from electrify.studies.options import CompareConfig
from electrify.studies.run import LOG, Runner, forecast, result_of
from electrify.studies.study import PRETRAIN, plan_study, read_results
from electrify.train import run as pretraining
from small import Process, electrify, records


def options(data: Path, **fields: Any) -> CompareConfig:
    given: dict[str, Any] = {"data": str(data), "recipes": ("bert-tiny",), "budgets": (1.0,)}
    given |= {"tasks": ("substitution",), "output_dir": "out", "device": "cpu", "task_seeds": 2}
    return CompareConfig(**(given | fields))


def one(data: Path, folder: Path, recipe: str = "bert-tiny", **fields: Any) -> dict[str, Any]:
    """The outcome of one encoder, made in this process. fields: options of the study, and of the
    recipe."""
    asked = {name: fields.pop(name) for name in ("tasks", "max_eval_samples") if name in fields}
    own = override(tiny(recipe), {"max_steps": 1, "warmup_steps": 0, "eval_steps": 0} | fields)
    folder.mkdir(exist_ok=True)
    pretrain_and_measure(folder, config=asdict(options(data, **asked)), recipe=dump(own))
    return json.loads((folder / OUTCOME).read_text())


def test_a_task_that_fails_does_not_lose_the_others(small_data, tmp_path, monkeypatch):
    """The outcome grows with each task: it tells how far an encoder has come."""
    seen = []

    def measure(measure: Any, model: Path, config: Any, out: Path) -> dict[str, Any]:
        outcome = json.loads((tmp_path / OUTCOME).read_text())
        seen.append((sorted(outcome["scores"]), sorted(outcome["failed"])))
        assert model == tmp_path / "run" / DISCRIMINATOR
        if measure.name == "substitution":
            raise UserError("no such column")
        if measure.name == "stsb":
            raise MemoryError("2 GiB")
        return {"metric": "f1", "scores": [0.25 if measure.name == "cola" else float("nan")]}

    monkeypatch.setattr(one_run, "measured", measure)
    monkeypatch.setattr(
        one_run, "measure_named", lambda name, _: SimpleNamespace(name=name, way="")
    )
    found = one(small_data, tmp_path, tasks=("substitution", "stsb", "cola", "rte"))
    assert found["scores"] == {"cola": {"metric": "f1", "scores": [0.25]}}
    assert found["failed"] == {
        "substitution": "no such column",
        "stsb": "MemoryError: 2 GiB",
        "rte": "f1 is not a number",
    }
    failed = ["stsb", "substitution"]
    assert seen == [([], []), ([], ["substitution"]), ([], failed), (["cola"], failed)]


def test_a_first_stage_counts(small_data, tmp_path, monkeypatch):
    """Tokens are those of both stages, as the FLOPs are."""
    monkeypatch.setattr(one_run, "measured", lambda *_: {"metric": "f1", "scores": [0.5]})
    fields = {"max_steps": 3, "generator_steps": 2, "discriminator_start": "random"}
    found = one(small_data, tmp_path, "two-stage-tiny", logging_steps=1, **fields)
    logs = [records(tmp_path / "run" / name, "train") for name in ("generator-stage", ".")]
    assert found["tokens"] == sum(log[-1]["tokens"] for log in logs)
    assert found["flops"] == logs[1][-1]["flops"] > logs[0][-1]["flops"]


def tagger(small_data: Path, out: Path) -> str:
    """A small encoder that is not trained, and sentences of CoNLL-2000's format."""
    folder = out / "conll2000"
    folder.mkdir()
    sentences = {
        "train.txt": "the D B-NP\ncat N I-NP\nsees V B-VP\n\n" * 16,
        "dev.txt": "a D B-NP\ncat N I-NP\n\nthe D B-NP\ndog N I-NP\nsees V B-VP\n\n",
        "test.txt": "the D B-NP\nfilm N I-NP\nsees V B-VP\n\n",
    }
    for name, text in sentences.items():
        (folder / name).write_text(text)
    recipe = override(tiny("bert-tiny"), {"max_steps": 1, "warmup_steps": 0, "eval_steps": 0})
    result = pretraining.pretrain(small_data, output_dir=out / "run", recipe=recipe)
    return str(result.exported[DISCRIMINATOR])


@pytest.mark.parametrize(("way", "layers"), [("", "none"), ("frozen", "last")])
def test_a_task_is_measured_as_the_command_measures_it(way, layers, small_data, tmp_path):
    """But evaluated once: what `finetune` shows on the way costs time and changes nothing."""
    model = tagger(small_data, tmp_path)
    asked = options(small_data, data_dir=str(tmp_path), tasks=("conll2000",), task_seeds=1)
    measure = measure_named(f"conll2000:{way}", str(tmp_path))
    found = measured(measure, Path(model), asked, tmp_path / "study")
    settings = FinetuneSettings(frozen_encoder=layers, device="cpu")
    if way:
        settings = replace(settings, eval_steps=LAST_ONLY)
    theirs = FinetuneConfig(
        models=(model,),
        output_dir=str(tmp_path / "verb"),
        task=("conll2000",),
        data_dir=str(tmp_path),
        seeds=1,
        settings=settings,
    )
    assert found["scores"] == [float(r["scores"]["f1"]) for r in finetune(theirs).records]
    lines = (tmp_path / "study" / SCORES).read_text().splitlines()
    assert [len(json.loads(text)["curve"]) for text in lines] == [1]
    assert not (tmp_path / "study" / "models").exists()


def test_tasks_without_an_encoder(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one line of the results, which is not made again."""
    tagger(small_data, tmp_path)
    blimp(tmp_path / "blimp")
    tasks = ("conll2000:frozen", "conll2000:frozen-all", "blimp")
    study = plan_study(config(small_data, tmp_path, data_dir=str(tmp_path), tasks=tasks))
    study.out.mkdir()
    runner = Runner(study)
    (line,) = runner.baselines()
    # Each word's most frequent tag: both words of "a cat" but not "a"; nothing of "dog".
    assert line.scores.keys() == {"conll2000:frozen", "conll2000:frozen-all"}
    assert 0 < line.median("conll2000:frozen") == line.median("conll2000:frozen-all") < 1
    monkeypatch.setattr(run_module, "without_encoder", None)
    again = Runner(study)
    assert again.results == {line.key: line}
    assert again.baselines() == [line]


def test_an_encoder_that_ends_without_an_outcome(small_data: Path, tmp_path: Path) -> None:
    """The reason is the last line of its log."""
    study = plan_study(config(small_data, tmp_path))
    trial = study.trials[0]
    folder = study.folder(trial)
    folder.mkdir(parents=True)
    (folder / LOG).write_text("train: 310/402 updates\nno room\n\n")
    assert result_of(study, trial, 2).failed == {PRETRAIN: "no room"}
    # Killed between its tasks, it keeps the scores that it has.
    score = {"metric": "f1", "scores": [0.5]}
    outcome = {"steps": 7, "scores": {"a": score}, "failed": {"b": "no such file"}}
    (folder / OUTCOME).write_text(json.dumps(outcome))
    asked = replace(study, measures=[cast("Any", SimpleNamespace(name=name)) for name in "abc"])
    found = result_of(asked, trial, -11)
    assert (found.steps, found.scores) == (7, {"a": score})
    assert found.failed == {"b": "no such file", "c": "killed by signal 11. Its last line: no room"}


ONE = {"recipes": (f"bert-tiny:{TINY}",), "seeds": 1, "baselines": False}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "probed", lambda study, trial: 1e-6)


def test_a_run_waits_for_its_start(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path, **ONE))
    long, short = study.trials
    runner = Runner(study)
    assert [runner.must_wait(t) for t in (long, short)] == [False, True]
    start = study.folder(long) / "run" / f"checkpoint-{short.starts_at}"
    start.mkdir(parents=True)
    assert not runner.must_wait(short)
    start.rmdir()
    runner.waiting.remove(long)  # its results came from elsewhere
    assert not runner.must_wait(short)


def test_minutes_go_by_flops(small_data, tmp_path, fast):
    """Of updates with longer rows later on, of a cheaper first stage, and of the end of a run that
    another one begins, in whatever convention the budgets are."""
    two = f"two-stage-tiny:{TINY},discriminator_start=random"
    recipes = (f"bert-tiny:{TINY}", f"bert-tiny:{TINY},seq_length_schedule=8=.9", two)
    how = ONE | {"recipes": recipes, "convention": "paper"}
    study = plan_study(config(small_data, tmp_path, **how))
    for trial, row in zip(study.trials, forecast(study)["lines"], strict=True):
        vocab_size = study.cost.vocab_size
        found = recipe_flops(trial.recipe, vocab_size=vocab_size, convention="hardware").train
        assert abs(found / trial.flops - 1) > 0.01
        share = 1 if trial.starts_at is None else 1 - trial.starts_at / trial.steps
        assert row["minutes"] == pytest.approx(1e-6 * share * found / 60)
    assert sum(trial.starts_at is not None for trial in study.trials) == 1


def words(data: Path, out: Path, *more: str, recipes: str = f"bert-tiny:{TINY}") -> list[str]:
    tasks = out.parent / "tasks"
    if not tasks.exists():
        blimp(tasks / "blimp")
    given = ["--recipes", recipes, "--tasks", "blimp", "--data-dir", str(tasks)]
    return ["compare", str(data), "--output-dir", str(out), "--device", "cpu", *given, *more]


def here(folder: Path, config: CompareConfig, slot: int | None, **work: Any) -> Mock:
    """`spawn`, in this process: the encoder is done when it returns."""
    folder.mkdir(parents=True)
    pretrain_and_measure(folder, config=asdict(config), **work)
    return Mock(returncode=0)


def test_a_curve_of_two_budgets(small_data, tmp_path, fast, monkeypatch, capsys):
    monkeypatch.setattr(run_module, "spawn", here)
    monkeypatch.setattr(run_module, "POLL_S", 0)
    out = tmp_path / "out"
    study = words(small_data, out, "--budgets", "2e8,1e8", "--seeds", "1", "--no-baselines")

    def said(*more: str) -> Any:
        assert cli.main([*study, *more]) == 0
        return capsys.readouterr()

    plan = json.loads(said("--plan-only", "--json").out)
    assert not out.exists()
    long, short = plan["lines"]
    assert long["starts_at"] is None
    assert 0 < short["starts_at"] < short["updates"] < long["updates"]
    assert short["minutes"] < long["minutes"]

    done = said()
    assert "mean rank" in done.out
    results = list(read_results(out).values())
    assert [(r.budget, r.failed) for r in results] == [(2e8, {}), (1e8, {})]
    assert all(0 <= r.median("blimp") <= 1 for r in results)
    assert results[1].steps == short["updates"]
    # The short run began where the long one has kept a checkpoint.
    encoders = sorted((out / "encoders").iterdir())
    a, b = (next(c for c in encoders if f"-{x}-" in c.name) for x in ("2e+08", "1e+08"))
    assert (a / "run" / f"checkpoint-{short['starts_at']}").is_dir()
    assert f"continuing after step {short['starts_at']}" in done.err
    assert max(r["step"] for r in records(b / "run")) == short["updates"]

    again = said()
    assert "2 of 2 encoders are done already" in again.err
    assert again.out == done.out


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_study_killed_five_times(small_data: Path, tmp_path: Path) -> None:
    more = ("--budgets", "2e8,1e8", "--seeds", "2", "--processes", "2")
    recipes = f"bert-tiny:{TINY},electra-tiny:{TINY}"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    electrify(words(small_data, whole, *more, recipes=recipes), tmp_path, seconds=900)
    rng = random.Random(0)
    for k in range(5):
        number = signal.SIGKILL if k % 2 else signal.SIGTERM
        process = Process(words(small_data, killed, *more, recipes=recipes), tmp_path / "err.txt")
        lines = k  # the results grow from one kill to the next
        path = killed / "results.jsonl"
        there = process.wait_for(
            lambda path=path, lines=lines: path.is_file() and path.read_text().count("\n") >= lines,
            seconds=600,
        )
        assert there, process.errors.read_text()
        time.sleep(rng.uniform(0.5, 6))
        started = process.family()
        process.signal(number)
        ended = process.popen.wait(150)
        assert ended == (75 if number == signal.SIGTERM else -signal.SIGKILL)
        _, alive = psutil.wait_procs(started, timeout=60)
        assert not alive
        process.kill()
    electrify(words(small_data, killed, *more, recipes=recipes), tmp_path, seconds=900)
    assert (killed / "report.csv").read_text() == (whole / "report.csv").read_text()
    assert len(read_results(killed)) == 2 * 2 * 2 + 2 * 2
