"""What the logs of a run say about how each of its networks has learned, for its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..console import inert
from ..recipe import Recipe, first_asked
from ..tables import KEPT, beside, is_untaught
from ..train import GENERATOR_STAGE, METRICS
from ..train.log import read
from .wording import number, start_name, wall_time


@dataclass(frozen=True)
class Learned:
    """How a network has learned."""

    used: Mapping[str, Any]
    """What the run in which it learned has used; empty if it learned in none."""
    valid: Mapping[str, Any] | None
    """The last validation of that run."""
    first_stage: str | None = None
    """What it had learned from before, in a first stage."""
    origin: str = "Trained from raw text with electrify."


def began_in(config: Recipe, part: str) -> str | None:
    """The folder or Hub id whose weights the network `part` had at the start of its run."""
    t = config.train
    return t.init_generator if part in config.corruption.row.leaves else t.init_discriminator


def _with_origin(learned: Learned, config: Recipe, part: str) -> Learned:
    t = config.train
    if start := began_in(config, part):
        origin = f"Trained further with electrify from {inert(start_name(start))}."
    elif config.model.tie != "none" and (start := t.init_generator or t.init_discriminator):
        shared = "what it shares with the network beside it"
        origin = f"Trained with electrify; {shared} began as in {inert(start_name(start))}."
    else:
        return learned
    return replace(learned, origin=origin)


def learning(
    run: Path,
    config: Recipe,
    *,
    part: str,
    state: Mapping[str, Any] | None,
    records: list[dict[str, Any]] | None = None,
) -> Learned:
    """How the network `part` has learned. state: that of the exported checkpoint, None at the end
    of a run. records: the last ones of the run's log, which is read without them. A frozen
    generator has learned in the first stage, or not at all."""
    t = config.train
    of_generator = part in config.corruption.row.leaves
    stage = run / GENERATOR_STAGE
    if of_generator and config.corruption.generator_training == "frozen":
        if t.init_generator:
            name = inert(start_name(t.init_generator))
            return Learned(
                {}, None, origin=f"It is as it was in {name}, from which the run took it."
            )
        return _in(_records(stage), None)
    begins_there = t.generator_steps and (of_generator or t.discriminator_start == "generator")
    records = [
        r
        for r in (_records(run) if records is None else records)
        if r["kind"] != "event" and (state is None or r["step"] <= state["step"])
    ]
    first_stage = _of_first_stage(stage) if begins_there else None
    return _with_origin(_in(records, state, first_stage=first_stage), config, part)


def so_far(config: Recipe, *, part: str, state: Mapping[str, Any] | None) -> str | None:
    """Sentences if the network `part` has not learned what its card says, else None. state: as in
    `learning`."""
    o = config.objective
    kept, own = part == KEPT, beside(config).get(part)
    loss = next(iter(o.row.losses))
    if part in config.corruption.row.leaves and is_untaught(config):
        return "It has learned nothing of its own in this run: its loss, `generator`, has weight 0."
    if kept and not o.term_weights[loss]:
        return f"Its head has learned nothing in this run: its loss, `{loss}`, has weight 0."
    begins = _silent_until(config, state)
    if begins is None or not (kept or (own and own.same)):
        return None
    waits = (
        "Its head has learned nothing yet: it is first asked after"
        if kept
        else "It has read [MASK] at the chosen positions, and reads samples after"
    )
    return f"At this checkpoint it is still a masked language model. {waits} update {begins:,}."


def _silent_until(config: Recipe, state: Mapping[str, Any] | None) -> int | None:
    """The updates before the head of the kept network is first asked, if a checkpoint is of one of
    them."""
    first = first_asked(config)
    return None if state is None or state["step"] > first else first


def _in(
    records: list[dict[str, Any]],
    state: Mapping[str, Any] | None,
    *,
    first_stage: str | None = None,
) -> Learned:
    valid = next((r for r in reversed(records) if r["kind"] == "valid"), None)
    return Learned(_used(records, state), valid, first_stage)


def _records(run: Path) -> list[dict[str, Any]]:
    path = run / METRICS
    return [r for r in read(path) if r.get("kind") in ("train", "valid")] if path.is_file() else []


def _used(records: list[dict[str, Any]], state: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the run has used: by the last line of its log, or by a checkpoint after that line."""
    last = records[-1] if records else {}
    if state is None or last.get("step") == state["step"]:
        return last
    since, _ = state["window"].get("tokens", (0, 0))
    known = {name: state[name] for name in ("step", "seconds")}
    return known | {"tokens": int(state["tokens"] + since)}


def _of_first_stage(stage: Path) -> str | None:
    """What the generator of a run of two stages had learned from before the second."""
    last = next(reversed(_records(stage)), None)
    if last is None:
        return None
    tokens, took = number(last.get("tokens")), wall_time(last.get("seconds"))
    seen = (f"{last['step']:,} updates of the generator alone", tokens and f"{tokens} tokens", took)
    return ", ".join(filter(None, seen))
