"""The names in a run folder, for everything that writes or opens one. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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


def any_checkpoint(names: Iterable[str]) -> bool:
    """Whether a name begins as that of a checkpoint does, numbered rightly or not."""
    return any(name.startswith(_CHECKPOINT) for name in names)


def is_of_the_run(name: str) -> bool:
    """Whether a file or folder of this name is the run's own, so that no network may have it."""
    own = {*HEADER, METRICS, TOKENIZER, GENERATOR_STAGE, BOARD}
    return name in own or any_checkpoint([name])


def must_not_be_in_first_stage(folder: Path) -> None:
    """Raises UserError for the folder of a run whose first stage has begun and its second has not,
    naming the run of that stage."""
    stage = folder / GENERATOR_STAGE
    if os.path.lexists(stage / CONFIG) and not os.path.lexists(folder / CONFIG):
        raise UserError(f"{folder} is a run in its first stage; name the run of that, {stage}")
