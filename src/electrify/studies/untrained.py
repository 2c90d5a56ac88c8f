"""The untrained rows of a study: its first recipe before training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from ..recipe import Recipe, override
from ..rules import check
from .plan import Cell, Entry, as_started, configured

UNTRAINED = {"untrained": "random", "untrained + words": "cooccurrence"}
"""The rows that are always there, and the word vectors that they begin with."""


def baselines(first: Entry, seeds: Sequence[int], vocab_size: int) -> list[Cell]:
    """The untrained rows of a study. Raises UserError if its first recipe has none."""
    base = as_started(configured(first, schedule="constant", seed=seeds[0]), vocab_size)
    found = []
    for name in UNTRAINED:
        try:
            found += [untrained(base, name, seed) for seed in seeds]
            check(found[-1].config)
        except UserError as e:
            raise UserError(
                f"{first.name}: its row {name}: {e}; put another recipe first, or give "
                "--baselines false"
            ) from e
    return found


def untrained(base: Recipe, name: str, seed: int) -> Cell:
    """The encoder of a recipe before it is trained: after the fewest updates, at a rate that moves
    no weight."""
    fields: dict[str, Any] = dict.fromkeys(("init_discriminator", "init_generator"))
    fields |= dict.fromkeys(base.model.extends)
    fields["discriminator_start"] = "generator"  # for a run of one stage
    if base.corruption.generator_training == "frozen":
        # There is no first stage or folder: its generator is untrained, too.
        weights = {"generator": 1.0} | base.objective.term_weights
        fields |= {"generator_training": "joint", "term_weights": weights}
    config = override(
        base,
        fields
        | {
            "seed": seed,
            "init_words": UNTRAINED[name],
            # A later part of the run also has one update.
            "max_steps": math.ceil(1 / (1 - base.objective.mlm_share)),
            "warmup_steps": 0,
            "learning_rate": 1e-12,
            "generator_learning_rate": None,
            "generator_warmup_steps": None,
            "generator_steps": 0,
            "weight_decay": 0.0,
            "generator_weight_decay": None,
        },
    )
    return Cell(name, 0.0, seed, config, 0.0, None)
