"""Several processes, and batches in parts: the numbers of one process, but for rounding."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import program as adapter
import pytest
from outcomes import differences
from program import Program, words
from test_training import recipe

EXACT = {"max_steps": 16, "logging_steps": 1, "eval_steps": 8}
# Processes, and what differs from the run in one process and one part.
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "in parts": (1, {"gradient_accumulation_steps": 4}),
    "two processes": (2, {}),
    "two processes in parts": (2, {"per_device_train_batch_size": 2}),
    "sharded": (2, {"fsdp": "full_shard"}),
}


def line(data: Path, run: Path, row: str, **flags: Any) -> list[str]:
    config = recipe(run.parent, row)
    return words("pretrain", data, recipe=config, output_dir=run, **EXACT | flags)


@pytest.mark.parametrize("row", ["electra", "corrective-deberta"])
def test_as_one_process(row: str, program: Program, data: Path, tmp_path: Path) -> None:
    program.run(line(data, tmp_path / "one", row)).ok()
    one = adapter.metrics(tmp_path / "one")
    for way, (processes, flags) in WAYS.items():
        program.run(line(data, tmp_path / way, row, **flags), processes=processes).ok()
        found = differences(one, adapter.metrics(tmp_path / way), exact=False, at=way)
        assert not found, "\n".join(found[:20])


def test_torchrun_restarts(program: Program, data: Path, tmp_path: Path) -> None:
    """One of two processes dies; torchrun starts both again, and they go on."""
    flags = {"max_steps": 60, "save_steps": 5}
    program.run(line(data, tmp_path / "whole", "electra", **flags), processes=2).ok()
    run = tmp_path / "run"
    running = program.start(line(data, run, "electra", **flags), processes=2, restarts=1)
    running.wait_for(lambda: adapter.logged_step(run) >= 12)
    os.kill(running.workers()["1"], signal.SIGKILL)
    running.end().ok()
    assert adapter.ending(run) == adapter.ending(tmp_path / "whole")
