"""The recipe as run.json and every checkpoint keep it besides config.yaml, so that an edited
config.yaml, and a checkpoint of another run, are noticed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..build import generator_shape, kept_shape
from ..config.networks import KEPT
from ..config.pretrain import PretrainConfig, values_of
from ..console import brief
from ..errors import UserError
from ..oldfiles.folders import fingerprint

STARTS = ("init_discriminator", "init_generator")
# Fields that may differ when a run continues: where and how often things are done, and what becomes
# of an update that is refused. The numbers of a run in which none is are the same with any of them,
# but for the last bits on another device or with other threads.
FREE_FIELDS = {
    "max_minutes",
    "logging_steps",
    "save_steps",
    "save_total_limit",
    "eval_steps",
    "eval_rows",
    "report_to",
    "device",
    "threads",
    "ddp_timeout",
}
# Which updates are refused. A run may go on with others, but is not the same recipe with them.
GUARDS = {"non_finite", "max_non_finite", "spike", "spike_sigmas", "max_spikes"}
FREE_FIELDS |= GUARDS
# Schedules, whose values follow each other in the order in which they are written.
ORDERED = ("seq_length_schedule", "batch_size_schedule")
# Fields that say how the work is split: they change sums only by rounding.
SPLIT_FIELDS = {"per_device_train_batch_size", "gradient_accumulation_steps", "fsdp"}


def decisive(config: PretrainConfig) -> dict[str, Any]:
    """Every field that decides the numbers of a run, as JSON has it. For the folders that a run
    starts from, it says only whether there are any: they may be moved, and matter only before the
    first update."""
    values = {
        name: value
        for name, value in values_of(config).items()
        if name not in FREE_FIELDS | SPLIT_FIELDS
    }
    values |= {name: ordered(values[name]) for name in ORDERED}
    return json.loads(json.dumps(values | {name: bool(values[name]) for name in STARTS}))


def contents_of_starts(config: PretrainConfig) -> dict[str, str]:
    """A hash of each folder that a run starts from, by which it is known again when it was moved;
    for a name on the Hub, that name and its commit, where its cache has one."""
    named = {name: getattr(config.train, name) for name in STARTS}
    found = {name: fingerprint(start) for name, start in named.items() if start}
    return {name: content for name, content in found.items() if content != named[name]}


def is_folder(start: str | None) -> bool:
    """Whether what a run starts from is a folder that is there."""
    return bool(start) and os.path.isdir(os.path.expanduser(start or ""))


def ordered(schedule: Mapping[Any, Any]) -> Any:
    """A schedule as JSON can hold it without losing its order: as pairs, if it has several."""
    return list(map(list, schedule.items())) if len(schedule) > 1 else schedule


def _as_written(value: Any, written: Any) -> Any:
    """The value as it was written down: earlier versions wrote schedules without their order."""
    is_earlier = isinstance(value, list) and isinstance(written, dict)
    return {str(k): v for k, v in value} if is_earlier else value


def differing(written: Mapping[str, Any], config: PretrainConfig) -> str:
    """What differs in a recipe that was written down; empty if they agree. A field that only one
    version of the program knows is passed over."""
    return "; ".join(
        f"{name} {brief(written[name])} there, {brief(value)} here"
        for name, value in decisive(config).items()
        if name in written and written[name] != _as_written(value, written[name])
    )


def must_be_of_recipe(path: Path, state: Mapping[str, Any], config: PretrainConfig) -> None:
    """Raises UserError if the checkpoint `path` is of a run with another recipe. Checkpoints of
    earlier versions do not hold one."""
    odd = differing(state.get("recipe") or {}, config)
    if odd:
        raise UserError(
            f"{path} is a checkpoint of a run with another recipe ({odd}); if it was copied there, "
            "remove it, and if config.yaml was changed, put that back"
        )


def must_agree(run: Path, config: PretrainConfig, facts: Mapping[str, Any]) -> None:
    """Raises UserError if config.yaml and run.json of a run folder disagree in anything that both
    hold."""
    odd = differing(facts.get("recipe") or {}, config) or _other_shapes(config, facts)
    if odd:
        raise UserError(
            f"{run}: config.yaml and run.json are not of one run ({odd}; there is run.json); put "
            "back the one that was changed"
        )


def _other_shapes(config: PretrainConfig, facts: Mapping[str, Any]) -> str:
    """The numbers of the networks that differ in run.json."""
    own = {KEPT: kept_shape(config.model, facts["vocab_size"])}
    # Before the recipe was written down, a shape in run.json overruled the recipe's.
    own_generator = config.corruption.row.learned and not config.train.init_generator
    if own_generator and facts.get("recipe"):
        own["generator"] = generator_shape(config.model, facts["vocab_size"])
    if config.model.tie == "all":
        own.pop("generator", None)  # its encoder is the kept one
    written = facts.get("shapes") or {}
    return "; ".join(
        f"{name} of the {network} {brief(written[network][name])} there, {brief(value)} here"
        for network, shape in own.items()
        for name, value in asdict(shape).items()
        if network in written and written[network].get(name, value) != value
    )
