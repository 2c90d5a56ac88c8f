"""Runs of different length that begin as one.

With a learning rate that is held and then decays over the last fifth (`wsd`), a short run is a long
one up to the update at which its own decay begins. The long one, the trunk, keeps its checkpoint of
that update, and the short one starts from it: the same bytes as a run from scratch for a fifth of
the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ..config.pretrain import PretrainConfig, override
from ..errors import UserError
from ..text.manifest import Manifest
from . import checkpoint
from .decisive import differing
from .folder import fingerprint
from .optim import planned
from .saved import current_names, must_go_on


def can_share(config: PretrainConfig) -> bool:
    """Whether a longer run of this recipe begins as a shorter one does: the learning rate is held,
    and nothing else depends on the share of the run that is done."""
    c = config.corruption
    moves = c.temperature_end not in (None, c.temperature)
    moves |= c.mask_rate_end not in (None, c.mask_rate)
    moves |= any(getattr(config.objective.options, name) for name in config.objective.row.moving)
    return (
        config.train.lr_scheduler_type == "wsd"
        and not moves
        and not config.data.seq_length_schedule
        and not config.train.batch_size_schedule
        and not config.train.generator_steps
    )


def leaves_at(short: PretrainConfig, long: PretrainConfig) -> int:
    """The number of updates that both runs have in common: those with the same learning rate."""
    # The schedules agree until the shorter one decays, so the first difference is found by halving.
    low, high = 0, min(short.train.max_steps, long.train.max_steps)
    while low < high:
        middle = (low + high) // 2
        if planned(short.train, middle) == planned(long.train, middle):
            low = middle + 1
        else:
            high = middle
    return low


def read_trunk(
    path: Path, config: PretrainConfig, manifest: Manifest
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensors and state with which a new run of `config` starts from the checkpoint `path` of a
    longer run. Raises UserError unless both runs are the same up to there."""
    tensors, state = checkpoint.load(path)
    tensors = current_names(tensors)
    must_go_on(path, tensors, state)
    recipe = state.get("recipe") or {}
    if "max_steps" not in recipe:
        raise UserError(f"{path} does not say its recipe, so no other run can start from it")
    trunk = override(config, {"max_steps": recipe["max_steps"]})
    odd = differing(recipe, trunk)
    if odd:
        raise UserError(f"{path} is of a run with another recipe ({odd})")
    if not can_share(config) or state["step"] > leaves_at(config, trunk):
        raise UserError(
            f"{path}: a run of {config.train.max_steps:,} updates is not the same as one of "
            f"{trunk.train.max_steps:,} up to update {state['step']:,}"
        )
    ours = fingerprint(manifest, None)
    if any(state["fingerprint"][key] != ours[key] for key in ours):
        raise UserError(f"{path} is of a run on another corpus or with another tokenizer")
    return tensors, state
