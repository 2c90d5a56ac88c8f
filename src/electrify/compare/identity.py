"""What decides the scores of a cell, as a hash, by which its results are found again, even those of
earlier versions."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..config.own_source import own_source
from ..config.pretrain import PretrainConfig
from ..config.training import TrainConfig
from ..oldfiles.folders import fingerprint
from ..train.run import GUARDS, ORDERED, decisive
from .plan import Cell

LATER: dict[str, Any] = {
    "generator_dropout": None,
    "tie_layers": None,
    "init_scale": "none",
    "init_rtd_bias": "zero",
    "mask_rate_end": None,
    "span_length": 3,
    "temperature_schedule": "linear",
    "temperature_decay": 0.1,
    "generator_warmup_steps": None,
    "generator_weight_decay": None,
    "clip": "together",
    "contrast_rows": 0,
    "contrast_temperature": 1.0,
    "crop_share": 0.9,
    "layer_norm_eps": None,
    "mask_decoder": False,
    "extend_positions": None,
    "extend_rope_theta": None,
}
"""Options that came after the first results, each with the value that leaves a recipe as it was
before, so that a new option leaves the results of earlier versions valid."""
LATER_OF: dict[str, dict[str, Any]] = {
    objective: {"rtd_head": "dense"} for objective in ("rtd", "selective", "adversarial")
}
"""The same for options that another objective had from the start."""
COMPARED = sorted(GUARDS | {"eval_rows"})
"""Options that may differ when a run goes on, but not between recipes that are compared: which
updates are refused, and the rows of the figures on held-out text. The first results were found
without them, so they count where they are not the defaults."""


def identity(cell: Cell, kept: dict[str, Any]) -> str:
    """A hash of everything that decides the scores of a cell: its recipe, the weights that it
    starts from, the source of its rows if they are one's own, and what its study keeps: the corpus,
    the examples of the tasks and how they are measured."""
    t = cell.config.train
    found = cell.starts or starts_of(cell.config)
    starts = [start and found[start] for start in (t.init_discriminator, t.init_generator)]
    later = LATER | LATER_OF.get(cell.config.objective.objective, {})
    values = decisive(cell.config)
    values |= {name: _rising(values[name]) for name in ORDERED}
    decides = {k: v for k, v in values.items() if (k, v) not in later.items()} | _compared(t)
    parts = [cell.entry, decides, starts, kept, *corrected(cell.config), *own_source(cell.config)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def starts_of(config: PretrainConfig) -> dict[str, str]:
    """A hash of each folder from which a recipe starts; of a Hub id its commit."""
    t = config.train
    return {
        start: fingerprint(start) for start in (t.init_discriminator, t.init_generator) if start
    }


def _compared(train: TrainConfig) -> dict[str, Any]:
    """Those of COMPARED that are not the defaults."""
    own = {name: getattr(train, name) for name in COMPARED}
    return {name: value for name, value in own.items() if value != getattr(TrainConfig, name)}


def _rising(schedule: Any) -> Any:
    """A schedule as the first results were found by, if its values rise: then it has no other
    order that somebody would give it. (With another order it is another recipe.)"""
    if isinstance(schedule, list) and schedule == sorted(schedule):
        return {str(value): share for value, share in schedule}
    return schedule


def corrected(config: PretrainConfig) -> list[str]:
    """What the same recipe did not yet mean in earlier versions, whose results are therefore
    void."""
    m, t = config.model, config.train
    said: list[str] = []
    if m.tie == "gdes" and config.corruption.row.learned:
        own = (t.generator_learning_rate, t.generator_warmup_steps) != (None, None)
        if own or t.clip == "apart":
            said.append("the word table is the generator's")
        if t.init_discriminator and not (t.init_generator or t.generator_steps):
            said.append("the generator begins with the words of the folder")
    if (m.architecture, m.init, m.init_scale) == ("modernbert", "local", "depth"):
        said.append("outputs are scaled once")
    return said
