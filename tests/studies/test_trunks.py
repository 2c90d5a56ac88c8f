"""What a shorter run starts from, and what is still to be computed of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_study_folder import TINY, config, line

from electrify.studies import forecast as forecast_module
from electrify.studies.cell import OUTCOME, Work, do
from electrify.studies.forecast import Rate, forecast
from electrify.studies.plan import Cell
from electrify.studies.results import write_results
from electrify.studies.run import Runner
from electrify.studies.shares import progress_of
from electrify.studies.study import Study, key_of, plan_study
from electrify.studies.trunks import as_it_comes, home_of


def curve(corpus: Path, tmp_path: Path, **fields: Any) -> Study:
    """One recipe and one seed; two budgets, the longer one first."""
    given = {"recipes": (f"bert-tiny:{TINY}",), "seeds": 1, "baselines": False}
    return plan_study(config(corpus, tmp_path, **(given | fields)))


def trained(study: Study, cell: Cell) -> Work:
    """Trains a cell in this process, without its tasks. Returns what was to be done."""
    runner = Runner(study)
    folder = runner.folder(cell)
    folder.mkdir(parents=True)
    work = replace(runner.work(cell, folder, None), tasks=())
    do(work)
    return work


@pytest.mark.slow
def test_a_run_whose_start_is_damaged_is_run_whole(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = curve(small_data, tmp_path)
    long, short = study.cells
    trained(study, long)
    runner = Runner(study)
    start = runner.work(short, runner.folder(short), None).trunk
    assert start is not None
    weights = Path(start) / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-10] ^= 1
    weights.write_bytes(changed)
    work = trained(study, short)
    assert work.trunk is None
    assert json.loads((Path(work.folder) / OUTCOME).read_text())["steps"] == short.steps
    assert "model.safetensors does not have the hash" in capsys.readouterr().err


def logged(study: Study, cell: Cell, step: int, *, saved: int = 0) -> None:
    """The log of a run up to this update, and the name of a checkpoint."""
    run = home_of(study, cell) / "run"
    run.mkdir(parents=True, exist_ok=True)
    (run / "metrics.jsonl").write_text(f'\n{{"step": {step}}}\n')
    if saved:
        (run / f"checkpoint-{saved}").mkdir()


def test_a_budget_that_is_added_later_is_planned_whole(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest run has passed the update at which it would start, and is not trained again."""
    monkeypatch.setattr(forecast_module, "probed", lambda study, cell: Rate(1e-6, 1))
    study = curve(small_data, tmp_path)
    long, short = study.cells
    assert short.starts_at is not None
    assert forecast(study).lines[1].starts_at == short.starts_at
    study.out.mkdir()
    write_results(study.out, [line(study, 0, seconds=1e-6 * long.flops)])
    plan = forecast(study)
    assert plan.lines[1].starts_at is None
    assert plan.lines[1].minutes == pytest.approx(1e-6 * short.flops / 60)
    assert plan.minutes == plan.lines[1].minutes
    runner = Runner(study)
    half = short.steps // 2
    logged(study, short, half)
    found = progress_of(runner.shown[key_of(short)], home_of(study, short), ["blimp"])
    assert found == pytest.approx(0.5 * half / short.steps)


def test_where_a_run_will_start(small_data: Path, tmp_path: Path) -> None:
    """From the trunk as long as that is not past the update, or if the run has begun there."""
    study = curve(small_data, tmp_path)
    long, short = study.cells
    at = short.starts_at
    assert at is not None
    logged(study, long, at, saved=at - 1)
    assert as_it_comes(study, short, ()).starts_at == at
    assert as_it_comes(study, short, (key_of(long),)).starts_at is None
    logged(study, long, at + 1, saved=at + 1)
    assert as_it_comes(study, short, ()).starts_at is None
    logged(study, short, at + 2, saved=at + 2)
    assert as_it_comes(study, short, (key_of(long),)).starts_at == at


def test_minutes_leave_out_what_has_begun(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast_module, "probed", lambda study, cell: Rate(1e-6, 1))
    study = curve(small_data, tmp_path, budgets=(1e10,), seeds=2)
    first, second = study.cells
    whole = forecast(study)
    assert whole.minutes == pytest.approx(2 * whole.lines[0].minutes)
    logged(study, second, round(0.99 * second.steps))
    assert forecast(study).minutes == pytest.approx(1.01 * whole.minutes / 2, rel=1e-3)
    logged(study, first, first.steps)
    assert forecast(study).minutes == pytest.approx(0.01 * whole.minutes / 2, rel=0.1)
