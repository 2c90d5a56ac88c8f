"""Real runs, killed and continued: the same bytes of parameters and the same log as a run that was
never touched."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from small import (
    DROPOUT,
    electrify,
    pretrain_words,
    records,
    same_ending,
    steps_of,
    stop_at,
)

# Of the two intervals none divides the other: a checkpoint stands in the middle of a log line, and
# the sums of that line must survive.
INTERVALS = {"logging_steps": 3, "save_steps": 7, "eval_steps": 20}
# Rows and batches grow at updates 8 and 16: between the kill and the stop, and before them.
SHORT: dict[str, Any] = (
    DROPOUT
    | INTERVALS
    | {"max_steps": 40, "seq_length_schedule": "8=.4", "batch_size_schedule": "2=.2"}
)


@pytest.fixture(scope="module")
def unbroken(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("unbroken")
    electrify(pretrain_words(small_data, folder / "run", **SHORT), folder)
    return folder / "run"


@pytest.mark.slow
def test_killed_and_stopped_and_resumed(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = pretrain_words(small_data, run, **SHORT)
    killed = stop_at(words, run, tmp_path, step=12, number=signal.SIGKILL)
    assert killed.status == -signal.SIGKILL
    assert steps_of(run)  # or it would begin anew, and prove nothing
    stopped = stop_at(words, run, tmp_path, step=21, number=signal.SIGTERM)
    assert stopped.status == 75
    assert "continuing after step" in stopped.err
    assert "The same command resumes" in stopped.err.splitlines()[-1]
    electrify([*words, "--resume", "must"], tmp_path)
    same_ending(unbroken, run, step=40)
    assert len(records(run, "train")) == 14  # every third update, and the last
    assert [r["step"] for r in records(run, "valid")] == [20, 40]
