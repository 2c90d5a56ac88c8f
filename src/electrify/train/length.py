"""How long a run is: as many updates as `train_minutes` hold, by the measured rate of the run
itself; the recipe for a budget of FLOPs or minutes (`recipe=auto`), from measured ones; warm-ups
that end in time."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from ..data.loader import prefetch
from ..data.phases import phases_of
from ..errors import UserError, need
from ..flop_counts import RecipeFlops, recipe_flops
from ..methods import RECIPES
from ..progress import say
from ..recipe import Entry, Recipe, entries, load, override
from ..rules import LONG_WARMUP, periods
from ..text.corpus import Corpus
from ..text.prepare import prepared
from ..values import plain_yaml
from . import CONFIG, dist
from .graphs import WARM
from .job import WARMUPS, Job, assembled, run_json_of, set_up, split_batch, threads_of
from .machine import computing_with, keep_memory, pick_device, with_machine
from .options import Pretrain

WARMUP = 0.1  # longest warm-up, as a share of the run
LINES = 20  # fewest lines of the log in a short run, if it has so many updates
FIRST = 3  # updates that are not counted: they compile, and fill memory
MEASURED, MOST = 5, 1000  # the fewest and the most updates of a measurement
FEWEST = 5  # updates of a run
LONGEST_S = 20.0
SLOW_S = 10.0  # after which, and after three times the limit, a single update must do
SHARE = 0.05  # of the time at most is spent measuring
MARGIN = 0.96  # for checkpoints, the export, and a machine that is a little slower later on
# A validation has no backward pass, which costs twice as much as the forward pass.
FORWARD = 1 / 3


def fitted(recipe: Recipe, given: Collection[str], world: dist.World) -> Recipe:
    """The recipe fitted to a short run where the user set only its length: a warm-up of a tenth of
    it where its own is too long, and lines in the log for a curve."""
    if "max_steps" not in given:
        return recipe
    steps, shorter = recipe.train.max_steps, {}
    if "logging_steps" not in given:
        shorter["logging_steps"] = min(recipe.train.logging_steps, max(1, steps // LINES))
    for name in WARMUPS:
        own = getattr(recipe.train, name) or 0
        if own > LONG_WARMUP * steps and name not in given:
            shorter[name] = int(WARMUP * steps)
            world.say(f"{name} is {shorter[name]:,}, a tenth of the run, not {own:,}")
    return override(recipe, shorter)


# ------------------------------------------------------------------ a run of so many minutes


def with_updates_for(job: Job, minutes: float) -> Recipe:
    """The recipe with as many updates as `minutes` of this machine hold, so that the schedule is
    complete when they end. The rate is measured with updates of the run itself, which are thrown
    away. A run that has begun keeps its number.

    Raises UserError for a time that is too short.
    """
    if job.earlier:
        length = {name: job.earlier["recipe"][name] for name in ("max_steps", *WARMUPS)}
        job.world.say(f"a run that has begun keeps its {length['max_steps']:,} updates")
        return override(job.recipe, length)
    limit_s = min(LONGEST_S, SHARE * 60 * minutes)
    what = f"how many updates fit into {minutes:g} minutes"
    job.world.say(f"measuring {what}, for about {limit_s:.0f} s")
    began = time.monotonic()
    per_slot, eval_rows = slot_seconds(job, limit_s=limit_s)
    spent = torch.tensor([time.monotonic() - began, per_slot], dtype=torch.float64)
    dist.sum_across([spent])
    took, per_slot = (spent / job.world.size).tolist()
    left = MARGIN * (60 * minutes - took)
    steps = updates_in(job.recipe, left, per_slot=per_slot, eval_rows=eval_rows)
    need(
        steps >= FEWEST,
        f"train_minutes {minutes:g}: not even {FEWEST} updates fit into it on this machine",
        "give more minutes, or a smaller recipe",
    )
    recipe = override(job.recipe, {"max_steps": steps})
    for sentence in periods(recipe):
        raise UserError(f"train_minutes {minutes:g}: {sentence}. Give more minutes")
    job.world.say(f"{minutes:g} minutes hold {steps:,} updates")
    return recipe


def updates_in(recipe: Recipe, seconds: float, *, per_slot: float, eval_rows: int) -> int:
    """The most updates whose slots, validations included, take `seconds`; fewer than FEWEST if not
    even these fit. per_slot, eval_rows: see `slot_seconds`."""
    every = recipe.train.eval_steps

    def cost(steps: int) -> float:
        validations = 1 + (steps // every if every else 0)
        slots = phases_of(override(recipe, {"max_steps": steps})).slots(steps)
        slots += FORWARD * validations * eval_rows * recipe.data.max_seq_length
        return slots * per_slot

    return bisect_right(range(1 << 40), seconds, lo=FEWEST, key=cost) - 1


def slot_seconds(job: Job, *, limit_s: float) -> tuple[float, int]:
    """Trains for about `limit_s` seconds and writes nothing. Returns the seconds for one token of a
    batch, padding included, on average over the whole run, and the rows of one validation (the
    corpus may have fewer than the recipe asks for). If later parts of the run cost more than its
    beginning (longer rows, a head that joins later), their FLOPs say by how much."""
    longest = max(job.recipe.train.max_steps, MOST)
    job, data = set_up(replace(job, recipe=override(job.recipe, {"max_steps": longest})))
    with computing_with(threads_of(job, None)):
        run, _ = assembled(job, data, fresh=True)
        first = WARM + 1 if run.graphs else FIRST  # WARM ordinary updates, then the capture
        began = start = time.monotonic()
        for batch in prefetch(run.batch, range(MOST)):
            run.update(batch)
            if run.world.device.type == "cuda":
                torch.cuda.synchronize(run.world.device)
            now = time.monotonic()
            if run.step == first:
                start = now
            slow = now - began >= max(SLOW_S, 3 * limit_s)
            enough = run.step >= first + (1 if slow else MEASURED)
            if dist.any_across(enough and now - began >= limit_s):
                break
        per_flop = (time.monotonic() - start) / (run.flops(run.step) - run.flops(first))
        run.give_back()
    whole = run.flops(longest) - run.flops(0)
    per_slot = per_flop * whole / data.loader.phases.slots(longest)
    return per_slot, data.validated(run.settings.eval_rows)


def probe(data: Path, folder: Path, recipe: Recipe, *, limit_s: float) -> tuple[float, int]:
    """`slot_seconds`, as a job of its own, which leaves nothing behind."""
    t = recipe.train
    keep_memory()
    with dist.joined(pick_device(t.device), timeout_s=t.ddp_timeout) as world:
        recipe, micro_rows = split_batch(with_machine(recipe, world, {}), world.size)
        return slot_seconds(Job(recipe, folder, world, micro_rows, data), limit_s=limit_s)


# ------------------------------------------------------------------ the recipe for a budget


@cache
def measured_budgets() -> dict[float, tuple[Entry, dict[str, str]]]:
    """Budget -> the recipe, and the evidence for it; rising."""
    values = plain_yaml((RECIPES / "auto.yaml").read_text(encoding="utf-8"), "auto.yaml")
    evidence = {name: fields.pop("evidence") for name, fields in values.items()}
    found = {float(e.name): (e, evidence[e.name]) for e in entries(values, "auto.yaml")}
    return dict(sorted(found.items()))


def auto(options: Pretrain) -> tuple[Path, Recipe]:
    """The prepared corpus, and the recipe for a budget with the user's fields over it. With
    minutes, `pretrain` chooses the number of updates, and a run that has begun keeps its recipe.

    Raises UserError for a budget outside the measured ones.
    """
    run, fields = Path(options.output_dir), options.changes
    flops, minutes = options.flops, options.train_minutes
    folder, budgets = prepared(options.data, run, tokenizer=options.start), measured_budgets()
    if minutes is not None and run_json_of(run):
        return folder, override(load(run / CONFIG, trusted=False), fields)
    vocab_size = Corpus(folder, "train").manifest.vocab_size

    def cost(recipe: Recipe) -> RecipeFlops:
        return recipe_flops(recipe, vocab_size=vocab_size, convention="hardware")

    asked = ""
    if minutes is not None:
        one = os.environ.get("WORLD_SIZE", "1") == "1"
        need(one, "recipe=auto with train_minutes is for one process", "give flops=N")
        # All are about as fast as that of the largest budget.
        recipe = override(budgets[max(budgets)][0].load(), fields)
        seconds = 60 * minutes
        per_slot, _ = probe(folder, run, recipe, limit_s=min(LONGEST_S, SHARE * seconds))
        flops = MARGIN * seconds * cost(recipe).token / per_slot
        asked = f" ({minutes:g} minutes of this machine)"
    assert flops is not None
    least, most = min(budgets), max(budgets)
    nearest = least if flops < least else most
    time_for = f", about {minutes * nearest / flops:.0f} minutes" if minutes else ""
    need(
        least <= flops <= most,
        f"recipe=auto: {flops:.2g} FLOPs{asked} is outside the measured budgets, "
        f"{least:g} to {most:g}",
        f"the nearest is flops={nearest:g}{time_for}. Or name a recipe",
    )
    below = max(budget for budget in budgets if budget <= flops)
    chosen, evidence = budgets[below]
    changes, known = (
        ", ".join(f"{name} {value}" for name, value in of.items())
        for of in (chosen.changes, evidence)
    )
    say(f"recipe auto: {chosen.recipe} with {changes}; measured at {below:g} FLOPs: {known}")
    recipe = override(chosen.load(), fields)
    steps = round(recipe.train.max_steps * flops / cost(recipe).train)
    return folder, override(recipe, {"max_steps": steps})
