"""The names in a run folder, for everything that writes or opens one. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

CONFIG = "config.yaml"
FACTS = "run.json"
METRICS = "metrics.jsonl"
HEADER = (CONFIG, FACTS)
TOKENIZER = "tokenizer"
GENERATOR_STAGE = "generator-stage"  # the folder, inside a run, of the run that made its generator
BOARD = "tensorboard"
_CHECKPOINT = "checkpoint-"
NUMBERED = re.compile(_CHECKPOINT + "(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Found:
    """A folder with the name of a checkpoint."""

    path: Path
    step: int


def checkpoint_folder(run: Path, step: int) -> Path:
    """RUN/checkpoint-<step>."""
    return run / f"{_CHECKPOINT}{step}"


def numbered(run: Path) -> list[Found]:
    """Every folder named checkpoint-<number>, whatever is in it, highest step first. (Modification
    times are not used because they are wrong after a restored backup.)"""
    if not run.is_dir():
        return []
    named = ((NUMBERED.fullmatch(path.name), path) for path in run.iterdir())
    return sorted((Found(path, int(m[1])) for m, path in named if m), key=lambda found: -found.step)


def any_checkpoint(names: Iterable[str]) -> bool:
    """Whether a name begins as that of a checkpoint does, numbered rightly or not."""
    return any(name.startswith(_CHECKPOINT) for name in names)


def is_of_the_run(name: str) -> bool:
    """Whether a file or folder of this name is the run's own, so that no network may have it."""
    own = {*HEADER, METRICS, TOKENIZER, GENERATOR_STAGE, BOARD}
    return name in own or any_checkpoint([name])


def has_checkpoints(run: Path) -> bool:
    """Whether anything in the folder, if it exists, has a name that begins so."""
    return run.is_dir() and any_checkpoint(path.name for path in run.iterdir())


def must_not_be_in_first_stage(folder: Path) -> None:
    """Raises UserError for the folder of a run whose first stage has begun and its second has not,
    naming the run of that stage."""
    stage = folder / GENERATOR_STAGE
    if os.path.lexists(stage / CONFIG) and not os.path.lexists(folder / CONFIG):
        raise UserError(f"{folder} is a run in its first stage; name the run of that, {stage}")
