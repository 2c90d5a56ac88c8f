"""What decides the scores of a cell, as a hash, by which its results are found again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..recipe import Recipe
from ..train.run import GUARDS, decisive
from ..train.start import content_of
from .plan import Cell

COMPARED = sorted(GUARDS | {"eval_rows"})
"""Options that may differ when a run goes on, but not between recipes that are compared: which
updates are refused, and the rows of the figures on held-out text."""


def identity(cell: Cell, kept: dict[str, Any]) -> str:
    """A hash of everything that decides the scores of a cell: its recipe, the weights that it
    starts from, and what its study keeps: the corpus, the examples of the tasks and how they are
    measured."""
    t = cell.config.train
    found = cell.starts or starts_of(cell.config)
    starts = [start and found[start] for start in (t.init_discriminator, t.init_generator)]
    decides = decisive(cell.config) | {name: getattr(t, name) for name in COMPARED}
    parts = [cell.entry, decides, starts, kept]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def starts_of(config: Recipe) -> dict[str, str]:
    """A hash of each folder from which a recipe starts; of a Hub id its commit."""
    t = config.train
    return {start: content_of(start) for start in (t.init_discriminator, t.init_generator) if start}
