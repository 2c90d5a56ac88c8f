"""The whole verb: studies that run, are stopped, fail in part, and are carried elsewhere."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
from test_study_folder import TINY, blimp

from electrify.studies.results import read_results
from small import Process, electrify, records


def words(data: Path, out: Path, *more: str, recipes: str = f"bert-tiny:{TINY}") -> list[str]:
    tasks = out.parent / "tasks"
    if not tasks.exists():
        blimp(tasks / "blimp")
    given = ["--recipes", recipes, "--tasks", "blimp", "--data-dir", str(tasks)]
    return ["compare", str(data), "--output-dir", str(out), "--device", "cpu", *given, *more]


def cells(out: Path) -> list[Path]:
    return sorted((out / "cells").iterdir())


@pytest.mark.slow
def test_one_encoder(small_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = words(small_data, out, "--budgets", "1e8", "--seeds", "1", "--no-baselines")
    done = electrify(study, tmp_path)
    assert "mean rank" in done.out
    (found,) = read_results(out)
    assert not found.failed
    assert found.median("blimp") is not None
    assert (out / "report.md").is_file()


@pytest.mark.slow
def test_a_curve_of_two_budgets(small_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = words(small_data, out, "--budgets", "2e8,1e8", "--seeds", "1", "--no-baselines")
    plan = json.loads(electrify([*study, "--plan-only", "--json"], tmp_path).out)
    assert not out.exists()
    long, short = plan["lines"]
    assert long["starts_at"] is None
    assert 0 < short["starts_at"] < short["updates"] < long["updates"]
    assert short["minutes"] < long["minutes"]

    done = electrify(study, tmp_path)
    assert "mean rank" in done.out
    results = read_results(out)
    assert [(r.budget, r.failed) for r in results] == [(2e8, {}), (1e8, {})]
    assert all(r.median("blimp") is not None for r in results)
    assert results[1].steps == short["updates"]
    # The short run began where the long one has kept a checkpoint.
    a, b = (next(c for c in cells(out) if f"-{x}-" in c.name) for x in ("2e+08", "1e+08"))
    assert (a / "run" / f"checkpoint-{short['starts_at']}").is_dir()
    assert f"continuing after step {short['starts_at']}" in (b / "log.txt").read_text()
    assert max(r["step"] for r in records(b / "run")) == short["updates"]
    assert (out / "report.md").is_file()

    again = electrify(study, tmp_path)
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


@pytest.mark.slow
def test_one_cell_that_fails(small_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = words(small_data, out, "--budgets", "1e8", "--seeds", "2", "--no-baselines")
    electrify(study, tmp_path)
    first = cells(out)[0]
    shutil.rmtree(out / "cells")
    (out / "results.jsonl").unlink()
    (first / "run").mkdir(parents=True)
    (first / "run" / "mine.txt").write_text("mine")
    failed = electrify(study, tmp_path, expect=1)
    assert "is not empty and holds no run" in failed.out
    assert [bool(r.failed) for r in sorted(read_results(out), key=lambda r: r.seed)] == [
        True,
        False,
    ]
    (first / "run" / "mine.txt").unlink()
    electrify(study, tmp_path)
    assert not any(r.failed for r in read_results(out))


@pytest.mark.slow
def test_a_study_that_is_carried_elsewhere(small_data: Path, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    more = ("--budgets", "2e8", "--no-baselines", "--seeds")
    electrify(words(small_data, out, *more, "1"), tmp_path)
    elsewhere.mkdir()
    for name in ("study.yaml", "results.jsonl"):
        shutil.copy(out / name, elsewhere / name)
    done = electrify(words(small_data, elsewhere, *more, "2"), tmp_path)
    assert "1 of 2 encoders are done already" in done.err
    assert len(cells(elsewhere)) == 1
    assert len(read_results(elsewhere)) == 2
    # A shorter budget whose trunk stayed behind is run whole.
    electrify(
        words(small_data, elsewhere, "--budgets", "2e8,1e8", "--no-baselines", "--seeds", "1"),
        tmp_path,
    )
    assert len(read_results(elsewhere)) == 3
