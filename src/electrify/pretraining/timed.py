"""`--train-minutes`: as many updates as fill a time, so that the schedule is complete when it ends.

The rate is measured with updates of the run itself, which are thrown away. `--max-minutes` is
something else: it interrupts a run that is then continued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic

import torch

from ..config.checks import check_periods
from ..config.pretrain import PretrainConfig, load_file, override, with_batch
from ..data.loader import prefetch
from ..data.phases import phases_of
from ..errors import UserError
from ..oldfiles.run_folder import CONFIG
from ..progress import say
from ..train.dist import World, any_across, sum_across, together
from ..train.folder import has_begun
from ..train.loop import Run
from ..train.machine import computing_with
from .running import Job, assembled, plan, threads_of

# Updates that are not counted: the first ones compile, and fill memory.
FIRST = 3
FEWEST = 5
MOST = 1000
LONGEST_S = 20.0
# At most this share of the time is spent measuring.
SHARE = 0.05
# Checkpoints, the export, and a machine that is a little slower later on.
MARGIN = 0.96
# A validation has no backward pass, which costs twice as much as the forward pass.
FORWARD = 1 / 3
# Longest warm-up, as a share of the run.
WARMUP = 0.1
WARMUPS = ("warmup_steps", "generator_warmup_steps")


def in_time(job: Job, minutes: float) -> Job:
    """The job with as many updates as `minutes` of this machine hold, and a warm-up of a tenth of
    them at most. A run that has begun keeps its number; without a checkpoint it begins anew.

    Raises UserError for a time that is too short. `check_minutes` was asked before.
    """
    job = replace(job, config=with_batch(job.config, processes=job.world.size))
    if has_begun(job.folder):
        with together():
            earlier = load_file(job.folder / CONFIG).train
        if job.world.is_main:
            say(f"a run that has begun keeps its {earlier.max_steps:,} updates")
        length = {name: getattr(earlier, name) for name in ("max_steps", *WARMUPS)}
        return replace(job, config=override(job.config, length))
    began = monotonic()
    rate = measured(job, limit_s=min(LONGEST_S, SHARE * 60 * minutes))
    took = agreed(monotonic() - began, job.world)
    left = MARGIN * (60 * minutes - took)
    per_slot = agreed(rate.per_slot, job.world)
    config = of_time(job.config, left, per_slot=per_slot, eval_rows=rate.eval_rows)
    if config is None:
        raise UserError(
            f"train_minutes {minutes:g}: not even {FEWEST} updates fit into it on this machine; "
            "give more minutes, or a smaller recipe"
        )
    check_periods(config, of=f"train_minutes {minutes:g}: ", more="more minutes")
    if job.world.is_main:
        say(
            f"{minutes:g} minutes hold {config.train.max_steps:,} updates, the first "
            f"{config.train.warmup_steps:,} of them warm-up"
        )
    return replace(job, config=config)


def of_time(
    config: PretrainConfig, seconds: float, *, per_slot: float, eval_rows: int
) -> PretrainConfig | None:
    """The recipe with the most updates whose slots, validations included, take `seconds`; None if
    these are fewer than five. per_slot, eval_rows: see `Rate`."""

    def length(steps: int) -> PretrainConfig:
        given = {name: getattr(config.train, name) for name in WARMUPS}
        warmups = {k: min(v, int(WARMUP * steps)) for k, v in given.items() if v is not None}
        return override(config, {"max_steps": steps} | warmups)

    def fits(steps: int) -> bool:
        found = length(steps)
        every = found.train.eval_steps
        validations = 1 + (steps // every if every else 0)
        slots = phases_of(found).slots(steps)
        slots += FORWARD * validations * eval_rows * found.data.max_seq_length
        return slots * per_slot <= seconds

    if not fits(FEWEST):
        return None
    low, high = FEWEST, 2 * FEWEST
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return length(low)


@dataclass(frozen=True)
class Rate:
    """What a run costs."""

    per_slot: float
    """Seconds for one token of a batch, padding included, on average over the whole run."""
    eval_rows: int
    """Rows of one validation: the corpus may have fewer than the recipe asks for."""


def measured(job: Job, *, limit_s: float) -> Rate:
    """Trains for about `limit_s` seconds, writes nothing, and returns what the run costs. If later
    parts of it cost more than its beginning (longer rows, a head that joins later), their FLOPs say
    by how much."""
    longest = max(job.config.train.max_steps, MOST)
    with together():
        planned = plan(replace(job, config=override(job.config, {"max_steps": longest})))
    threads = threads_of(planned.config, planned.micro_rows, job.folder, None, job.world)
    with computing_with(threads):
        run, _ = assembled(job, planned, fresh=True)
        per_flop = _measured(run, limit_s)
    whole = run.flops(longest) - run.flops(0)
    eval_rows, _ = run.data.validated(run.config.eval_rows, processes=job.world.size)
    return Rate(per_flop * whole / planned.loader.phases.slots(longest), eval_rows)


def agreed(seconds: float, world: World) -> float:
    """The mean over the processes, the same number on each."""
    total = torch.tensor(seconds, dtype=torch.float64)
    sum_across([total])
    return float(total) / world.size


def _measured(run: Run, limit_s: float) -> float:
    """Seconds for a FLOP."""
    began = start = monotonic()
    for batch in prefetch(run.batch, range(MOST)):
        run.update(batch)
        if run.world.device.type == "cuda":
            torch.cuda.synchronize(run.world.device)
        now = monotonic()
        if run.step == FIRST:
            start = now
        if any_across(run.step >= FIRST + FEWEST and now - began >= limit_s):
            break
    return (monotonic() - start) / (run.flops(run.step) - run.flops(FIRST))
