"""Every system of the study in two processes, in two passes for each batch, and through a kill: the
numbers of one process and one pass, the bytes of a run that nothing disturbed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from electrify import cli
from small import (
    DROPOUT,
    electrify,
    pretrain_words,
    same_ending,
    same_numbers,
    steps_of,
    stop_at,
    torchrun,
)
from systems import FEW_ROWS, SYSTEMS

EXACT: dict[str, Any] = {"max_steps": 50, "logging_steps": 1, "eval_steps": 25, "save_steps": 1000}
# Of the two intervals none divides the other: a checkpoint stands in the middle of a log line.
BROKEN: dict[str, Any] = DROPOUT | {
    "max_steps": 40,
    "logging_steps": 3,
    "save_steps": 7,
    "eval_steps": 20,
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def words(system: str, data: Path, run: Path, **fields: Any) -> list[str]:
    own = FEW_ROWS.get(system, {})
    return pretrain_words(data, run, recipe=f"{system}-tiny", **own | fields)


@pytest.mark.parametrize("system", SYSTEMS)
def test_two_processes(system: str, small_data: Path, tmp_path: Path) -> None:
    electrify(words(system, small_data, tmp_path / "one", **EXACT), tmp_path)
    done = torchrun(words(system, small_data, tmp_path / "two", **EXACT), tmp_path).end()
    assert done.status == 0, done.err
    same_numbers(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "discriminator" / "model.safetensors").is_file()


@pytest.mark.parametrize("system", SYSTEMS)
def test_accumulation(system: str, small_data: Path, tmp_path: Path) -> None:
    """Two passes for each batch, and one."""
    parts = {"gradient_accumulation_steps": 2}
    for name, fields in (("one", EXACT), ("two", EXACT | parts)):
        assert cli.main(words(system, small_data, tmp_path / name, **fields)) == 0
    same_numbers(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_and_resumed(system: str, small_data: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    electrify(words(system, small_data, whole, **BROKEN), tmp_path)
    for step in (9, 23):
        done = stop_at(
            words(system, small_data, broken, **BROKEN),
            broken,
            tmp_path,
            step=step,
            number=signal.SIGKILL,
        )
        assert done.status == -signal.SIGKILL
    assert steps_of(broken)  # or it would begin anew, and prove nothing
    electrify(words(system, small_data, broken, **BROKEN), tmp_path)
    same_ending(whole, broken, step=40)


def test_two_stages_killed_in_the_first(small_data: Path, tmp_path: Path) -> None:
    """And again in the second; both stages end with the bytes of a run that nothing disturbed."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    fields = BROKEN | {"generator_steps": 40}
    electrify(words("two-stage", small_data, whole, **fields), tmp_path)
    for watched in (broken / "generator-stage", broken):
        done = stop_at(
            words("two-stage", small_data, broken, **fields),
            watched,
            tmp_path,
            step=18,
            number=signal.SIGKILL,
        )
        assert done.status == -signal.SIGKILL
        assert steps_of(watched)
        assert 40 not in steps_of(watched)
    electrify(words("two-stage", small_data, broken, **fields), tmp_path)
    for run in ("generator-stage", "."):
        same_ending(whole / run, broken / run, step=40)
