"""What a signal, a kill, a damaged file or a bad update does to a run."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import material
import program as adapter
import pytest
from program import Program, words
from test_training import recipe

LONG = {"max_steps": 120, "save_steps": 7, "eval_steps": 40, "logging_steps": 3, "dropout": 0.1}
SAVED = 75


def line(data: Path, run: Path, row: str = "electra", **flags: Any) -> list[str]:
    file = recipe(run.parent, row)
    return words("pretrain", data, recipe=file, output_dir=run, **LONG | flags)


@pytest.fixture(scope="module")
def whole(program: Program, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    program.run(line(data, run)).ok()
    return run


@pytest.mark.parametrize("row", ["electra", "fast-electra", "corrective-modernbert"])
def test_sigkill_at_any_time(
    row: str, program: Program, data: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """At random instants from the start of the process to the end of its export."""
    chance = random.Random(row)
    more = {"generator_steps": 60} if row == "fast-electra" else {}
    began = time.monotonic()
    program.run(line(data, tmp_path / "whole", row, **more)).ok()
    seconds = time.monotonic() - began
    kills = 0
    while kills < pytestconfig.getoption("--kills"):
        running = program.start(line(data, tmp_path / "broken", row, **more))
        time.sleep(chance.uniform(0.3, 1) * seconds)
        kills += 1
        if running.kill().status == 0:
            break
    program.run(line(data, tmp_path / "broken", row, **more)).ok()
    assert adapter.ending(tmp_path / "broken") == adapter.ending(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_save(
    number: signal.Signals, program: Program, data: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    running = program.start(line(data, run))
    running.wait_for(lambda: adapter.logged_step(run) >= 10)
    running.send(number)
    done = running.end()
    assert done.status == SAVED, done.err
    assert adapter.checkpoints(run)
    program.run(line(data, run, resume="must")).ok()
    assert adapter.ending(run) == adapter.ending(whole)


def test_sigterm_to_prepare(program: Program, tmp_path: Path) -> None:
    text = material.prose(tmp_path / "prose.txt", size=1_000_000)
    running = program.start(words("prepare", text, output_dir=tmp_path / "data", workers=1))
    running.wait_for((tmp_path / "data").exists)
    running.send(signal.SIGTERM)
    assert running.end().status == SAVED


def test_minutes(program: Program, data: Path, whole: Path, tmp_path: Path) -> None:
    done = program.run(line(data, tmp_path / "run", max_minutes=0.005))
    assert done.status == SAVED, done.err
    program.run(line(data, tmp_path / "run")).ok()
    assert adapter.ending(tmp_path / "run") == adapter.ending(whole)


def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(
    program: Program, data: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    running = program.start(line(data, run))
    running.wait_for(lambda: adapter.logged_step(run) >= 30)
    running.kill()
    newest = adapter.checkpoints(run)[-1]
    file = newest / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    assert newest.name in program.run(line(data, run)).ok().err
    assert adapter.ending(run) == adapter.ending(whole)


def test_one_writer(program: Program, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    running = program.start(line(data, run, max_steps=5000))
    running.wait_for(lambda: adapter.logged_step(run) >= 3)
    assert str(run) in program.run(line(data, run, max_steps=5000)).sentence()
    running.kill()


@pytest.mark.parametrize("policy", ["stop", "skip", "rollback"])
def test_updates_that_are_not_finite(
    policy: str, program: Program, data: Path, tmp_path: Path
) -> None:
    """A learning rate beyond all sense: with any policy the run ends, and says why."""
    flags = {"learning_rate": 1e37, "non_finite": policy, "max_non_finite": 2, "warmup_steps": 1}
    done = program.run(line(data, tmp_path / "run", **flags))
    assert "not finite" in done.sentence()
    assert not adapter.exports(tmp_path / "run")


def test_status_of_doctor(program: Program, data: Path, whole: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(whole, tmp_path / "run")
    (file,) = (adapter.exports(damaged)["discriminator"]).glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    empty = material.write(tmp_path / "empty" / "x", "").parent
    lines = [words("doctor", path) for path in (data, whole, damaged, empty)]
    assert [done.status for done in program.batch(lines)] == [0, 0, 1, 2]
