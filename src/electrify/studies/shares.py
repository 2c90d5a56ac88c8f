"""How much of a study's work each cell is, and how much of a cell is done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import read_json
from ..train import GENERATOR_STAGE, METRICS
from .cell import OUTCOME, RUN, tail
from .plan import Cell
from .results import Key
from .study import key_of


def weights_of(cells: list[Cell]) -> dict[Key, float]:
    """How much of the work each cell is, 1 on average: half of it for the tasks, which cost the
    same for all, half by the FLOPs that are computed for it alone."""
    own = {key_of(c): c.own_flops for c in cells}
    mean = sum(own.values()) / max(1, len(own)) or 1.0
    return {key: 0.5 + 0.5 * flops / mean for key, flops in own.items()}


def progress_of(cell: Cell, folder: Path, tasks: Sequence[str]) -> float:
    """How much of a cell is done: its training, from the end of the run's log, is half of it, and
    its tasks, which its outcome names one after the other, are the other half."""
    outcome: dict[str, Any] = {"scores": {}, "failed": {}}
    with suppress(UserError):  # there is none yet
        outcome = read_json(folder / OUTCOME)
    done = sum(task in {*outcome["scores"], *outcome["failed"]} for task in tasks)
    return 0.5 * trained_share(cell, folder) + 0.5 * done / len(tasks)


def trained_share(cell: Cell, folder: Path) -> float:
    """How much of the updates that are computed for a cell alone is done."""
    first = min(cell.config.train.generator_steps, step_in(folder / RUN / GENERATOR_STAGE))
    share = (first + step_in(folder / RUN) - (cell.starts_at or 0)) / max(1, cell.own_steps)
    return min(1.0, max(0.0, share))


def step_in(run: Path) -> int:
    """The last update that the end of a run's log names."""
    steps = [0]
    for line in tail(run / METRICS).splitlines()[1:]:
        with suppress(ValueError):  # the last line is being written
            steps.append(json.loads(line)["step"])
    return max(steps)
