"""How long a run is: as many updates as `--train-minutes` hold, by the measured rate of the run
itself, and warm-ups that end in time."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import torch

from ..data.loader import prefetch
from ..data.phases import phases_of
from ..errors import UserError
from ..recipe import Recipe, override
from ..rules import periods
from . import dist
from .job import assembled, set_up, split_batch, threads_of
from .machine import computing_with, pick_device, with_machine
from .start import starts_of
from .state import Job

LENGTHS = ("max_steps", "warmup_steps", "generator_warmup_steps")
# Updates that are not counted: the first ones compile, and fill memory.
FIRST = 3
FEWEST = 5
MOST = 1000
LONGEST_S = 20.0
SLOW_S = 10.0  # after which, and after three times the limit, a single update must do
SHARE = 0.05  # of the time at most is spent measuring
MARGIN = 0.96  # for checkpoints, the export, and a machine that is a little slower later on
# A validation has no backward pass, which costs twice as much as the forward pass.
FORWARD = 1 / 3
WARMUP = 0.1  # longest warm-up, as a share of the run


def in_time(job: Job, minutes: float) -> Recipe:
    """The recipe with as many updates as `minutes` of this machine hold, so that the schedule is
    complete when they end, and a warm-up of a tenth of them at most. The rate is measured with
    updates of the run itself, which are thrown away. A run that has begun keeps its number.

    Raises UserError for a time that is too short.
    """
    if job.earlier:
        length = {name: job.earlier["recipe"][name] for name in LENGTHS}
        job.world.say(f"a run that has begun keeps its {length['max_steps']:,} updates")
        return override(job.recipe, length)
    limit_s = min(LONGEST_S, SHARE * 60 * minutes)
    what = f"how many updates fit into {minutes:g} minutes"
    job.world.say(f"measuring {what}, for about {limit_s:.0f} s")
    began = time.monotonic()
    per_slot, eval_rows = measured(job, limit_s=limit_s)
    spent = torch.tensor([time.monotonic() - began, per_slot], dtype=torch.float64)
    dist.sum_across([spent])
    took, per_slot = (spent / job.world.size).tolist()
    left = MARGIN * (60 * minutes - took)
    recipe = of_time(job.recipe, left, per_slot=per_slot, eval_rows=eval_rows)
    if recipe is None:
        raise UserError(
            f"train_minutes {minutes:g}: not even {FEWEST} updates fit into it on this machine",
            "give more minutes, or a smaller recipe",
        )
    for sentence in periods(recipe):
        raise UserError(f"train_minutes {minutes:g}: {sentence}. Give more minutes")
    text = f"{minutes:g} minutes hold {recipe.train.max_steps:,} updates, the first "
    job.world.say(f"{text}{recipe.train.warmup_steps:,} of them warm-up")
    return recipe


def with_shorter_warmup(recipe: Recipe, given: Collection[str], world: dist.World) -> Recipe:
    """The recipe with a warm-up of a tenth of the run where its own is as long as the run, and the
    user set only the length of the run."""
    t, shorter = recipe.train, {}
    for name in LENGTHS[1:]:
        if "max_steps" in given and name not in given and (getattr(t, name) or 0) >= t.max_steps:
            shorter[name] = int(WARMUP * t.max_steps)
            text = f"{name} is {shorter[name]:,}, a tenth of the run, not {getattr(t, name):,}"
            world.say(text)
    return override(recipe, shorter)


def of_time(recipe: Recipe, seconds: float, *, per_slot: float, eval_rows: int) -> Recipe | None:
    """The recipe with the most updates whose slots, validations included, take `seconds`; None if
    these are fewer than five. per_slot, eval_rows: see `measured`."""

    def length(steps: int) -> Recipe:
        given = {name: getattr(recipe.train, name) for name in LENGTHS[1:]}
        warmups = {k: min(v, int(WARMUP * steps)) for k, v in given.items() if v is not None}
        return override(recipe, {"max_steps": steps} | warmups)

    def cost(steps: int) -> float:
        found = length(steps)
        every = found.train.eval_steps
        validations = 1 + (steps // every if every else 0)
        slots = phases_of(found).slots(steps)
        slots += FORWARD * validations * eval_rows * found.data.max_seq_length
        return slots * per_slot

    steps = bisect_right(range(1 << 40), seconds, lo=FEWEST, key=cost) - 1
    return None if steps < FEWEST else length(steps)


def measured(job: Job, *, limit_s: float) -> tuple[float, int]:
    """Trains for about `limit_s` seconds and writes nothing. Returns the seconds for one token of a
    batch, padding included, on average over the whole run, and the rows of one validation (the
    corpus may have fewer than the recipe asks for). If later parts of the run cost more than its
    beginning (longer rows, a head that joins later), their FLOPs say by how much."""
    longest = max(job.recipe.train.max_steps, MOST)
    setup = set_up(replace(job, recipe=override(job.recipe, {"max_steps": longest})))
    with computing_with(threads_of(setup.job, None)):
        run, _ = assembled(setup, fresh=True)
        first = FIRST + (run.graphs is not None)  # the next one is captured
        compiles = bool(job.recipe.train.torch_compile)
        began = start = time.monotonic()
        for batch in prefetch(run.batch, range(MOST)):
            run.update(batch)
            if run.world.device.type == "cuda":
                torch.cuda.synchronize(run.world.device)
            now = time.monotonic()
            if run.step == first:
                start = now
            slow = now - began >= max(SLOW_S, 3 * limit_s)
            enough = first + FEWEST if not slow else first + 1 if compiles else 1
            if dist.any_across(run.step >= enough and now - began >= limit_s):
                break
        if run.step <= first:  # the first updates must do, slower as they are
            first, start = 0, began
        per_flop = (time.monotonic() - start) / (run.flops(run.step) - run.flops(first))
        run.give_back()
    whole = run.flops(longest) - run.flops(0)
    per_slot = per_flop * whole / setup.data.loader.phases.slots(longest)
    return per_slot, setup.data.validated(run.settings.eval_rows)


def probe(data: Path, folder: Path, recipe: Recipe, *, limit_s: float) -> tuple[float, int]:
    """`measured`, as a job of its own, which leaves nothing behind."""
    t = recipe.train
    with dist.joined(pick_device(t.device), timeout_s=t.ddp_timeout) as world:
        recipe, micro_rows = split_batch(with_machine(recipe, world, {}), world.size)
        job = Job(recipe, folder, world, micro_rows, data, starts_of(recipe))
        return measured(job, limit_s=limit_s)
