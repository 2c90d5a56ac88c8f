"""The loop. It knows two calls, `objective.plan(tokens, draws)` ahead of an update and `step(tokens, plan) -> terms` in it, and never which objective
it is.

What decides the numbers is (recipe, data, step): order, masks, samples and dropout are functions of them, so a checkpoint holds parameters,
optimiser, the step, and the sums of the unfinished log line, nothing else.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from .. import faults
from ..config.pretrain import TrainConfig
from ..corruption.plan import Plan, enough
from ..data.loader import Loader, Rows, prefetch
from ..draws import draws_for, hashed
from ..flops.count import flops_of, flops_per_token
from ..objectives.objective import Objective, Step
from ..progress import Progress, say
from ..terms import Term, weighted
from ..tokens import Tokens
from . import recover, schedule
from .dist import World, any_across, at_home, averaging, sum_across
from .evaluate import evaluate, shown
from .guard import Guard
from .home import Home
from .log import MetricsLog
from .meter import Meter, shown_rate, slow_text
from .monitor import Monitor
from .optim import clip, make_optimizer, parameter_groups
from .sharding import is_sharded, place
from .signals import Stop
from .state import Window


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    step: int
    finished: bool
    """False where a signal or max_minutes stopped it; the newest checkpoint then continues it."""
    validation: dict[str, float]
    tokens: int
    seconds: float
    """Wall time of the run, over all its legs."""


@dataclass(frozen=True)
class Batch:
    """This rank's share of one update, cut into micro-batches."""

    parts: list[tuple[Tokens, Plan]]


def wrapped(objective: Objective, config: TrainConfig, world: World, *, graphs: bool) -> Any:
    """The objective as the loop calls it: compiled where the recipe says so, its gradients averaged over the ranks where each holds all of it."""
    module: Any = Step(objective)
    if config.torch_compile:
        module = torch.compile(module, dynamic=False, mode="reduce-overhead" if graphs else None)
    whole = world.size > 1 and not any(map(is_sharded, objective.parameters()))
    return averaging(module, config.reduce_dtype) if whole else module


class Run:
    """One pre-training run: parameters, optimiser, and the step they are at."""

    def __init__(
        self,
        objective: Objective,
        config: TrainConfig,
        *,
        weights: dict[str, float],
        kept: set[str],
        loader: Loader,
        valid: Rows | None,
        folder: Path,
        world: World,
        micro_rows: int,
        fingerprint: dict[str, Any],
        unigram_entropy: float,
        peak: float = math.inf,
        flops_before: float = 0.0,
        deadline: float | None = None,
    ) -> None:
        """kept: names of the parameters of the encoder that is kept; the others take generator_learning_rate. peak: FLOP/s that one device can do.
        flops_before: of an earlier stage. deadline: on the clock of time.monotonic(), after which the run saves and stops."""
        self.fixed = config.torch_compile or world.device.type == "cuda"  # lists of a few lengths, for graphs that fit every batch
        self.objective = place(objective, config, world)
        self.objective.train()
        self.config, self.weights, self.loader, self.valid, self.folder, self.world = config, weights, loader, valid, folder, world
        self.micro_rows, self.fingerprint = micro_rows, fingerprint
        self.named = dict(self.objective.named_parameters())
        rates = {n: config.learning_rate if n in kept else config.generator_learning_rate or config.learning_rate for n in self.named}
        groups = parameter_groups(self.named, rates=rates, weight_decay=config.weight_decay)
        self.optimizer = make_optimizer(config.optim, groups, betas=(config.adam_beta1, config.adam_beta2), eps=config.adam_epsilon)
        self.step, self.tokens, self.window, self.validation = 0, 0, Window(world.device), {}
        self.flops_before, self.deadline = flops_before, deadline
        warmup_tokens = loader.phases.slots(config.warmup_steps)
        self.flops_per_token = {n: flops_per_token(self.objective, row_length=n, convention="hardware", rows=micro_rows) for n in loader.phases.row_lengths}
        self.monitor = Monitor(unigram_entropy=unigram_entropy, warmup_tokens=warmup_tokens, generator_learns="generator" in weights)
        self.meter = Meter(world.device, flops=self.flops, peak=peak * world.size)
        self.guard = Guard(config, world)
        self.home: Home | None = None  # rank 0's, once the folder has its header
        self.lost: list[str] = []  # what the last save missed of the data
        self.left_out = 0  # batches that rollbacks have passed over: update n takes batch n - 1 + left_out
        self.graphs = config.torch_compile and world.device.type == "cuda"
        self.module = wrapped(self.objective, config, world, graphs=self.graphs)

    # ------------------------------------------------------------------ one update

    def batch(self, step: int) -> Batch:
        at = step + self.left_out
        phase = self.loader.phases.at(at)
        share = phase.batch_rows // self.world.size
        first, rows = self.world.rank * share, min(self.micro_rows, share)
        parts = []
        for start in range(first, first + share, rows):
            progress = step / self.config.max_steps
            draws = draws_for(seed=self.config.seed, step=at, num_rows=rows, row_length=phase.row_length, first_row=start, progress=progress)
            tokens = self.loader.batch(at, first_row=start, num_rows=rows)
            plan = self.objective.plan(tokens, draws, fixed=self.fixed)
            if self.fixed and tokens.runs:
                tokens = replace(tokens, runs=enough(tokens.num_rows, tokens.runs))
            parts.append((tokens.pin(), plan.pin()) if self.world.device.type == "cuda" else (tokens, plan))
        return Batch(parts)

    def counts(self, parts: list[tuple[Tokens, Plan]]) -> dict[str, Tensor]:
        """Tokens in each loss of this update over all micro-batches and ranks: known from their plans, before any forward pass."""
        plans = [plan for _, plan in parts]
        total = {name: torch.stack([p.counts[name] for p in plans]).sum().double() for name in plans[0].counts}
        sum_across(list(total.values()))
        return {name: t.float() for name, t in total.items()}

    def update(self, batch: Batch) -> None:
        """Forward, backward, clip, optimiser. The loss is sum / global count, so any split of the batch gives the same gradient.

        Where train/guard.py refuses the update, optimiser and sums leave everything as it is; train/recover.py hears of it."""
        parts = [(tokens.to(self.world.device), plan.to(self.world.device)) for tokens, plan in batch.parts]
        counts = self.counts(parts)
        self.seed_dropout()
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * self.factor(self.step)
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()  # what the last update put out has been read; gradients of this one's passes add up
        found, total = Window(self.world.device), torch.zeros((), device=self.world.device)
        for k, (tokens, plan) in enumerate(parts):
            last = k == len(parts) - 1
            with nullcontext() if last else at_home(self.module):
                with torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.config.bf16):
                    terms = self.module(tokens, plan)
                loss = weighted(terms, self.weights, counts)
                for action in faults.asked("batch", self.step + self.left_out + 1):
                    loss = loss * faults.SPOILS.get(action, 1.0)
                (loss * self.world.size).backward()  # gradients are averaged over ranks; the sum is wanted
                total += loss.detach()
            found.add(terms | {"tokens": Term(tokens.real_T.sum(), torch.zeros((), device=self.world.device))})
        faults.at("update", self.step + 1)
        norm = clip(list(self.named.values()), self.config.max_grad_norm or math.inf)
        one = torch.ones((), device=self.world.device)
        share = self.world.size  # every rank has the same norm; each adds its share of one update
        found.add({"grad_norm": Term(norm / share, one / share)})
        bad = self.optimizer.found_inf = self.guard.judge(self.step + 1, total, norm)  # type: ignore[attr-defined]
        self.window.merge(found, unless=bad)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    def seed_dropout(self) -> None:
        seed = int(hashed(self.config.seed, self.step + self.left_out, self.world.rank)) & (1 << 62) - 1
        # torch.manual_seed asks every kind of device that there might be, a millisecond in all.
        (torch.default_generator.manual_seed if self.world.device.type == "cpu" else torch.manual_seed)(seed)

    def flops(self, step: int) -> float:
        """Of the run before `step`: matrix products of the model, pads included, whatever the machine does in fact (flops/, convention hardware)."""
        return self.flops_before + flops_of(self.loader.phases, step, self.flops_per_token)

    def factor(self, step: int) -> float:
        c = self.config
        return schedule.factor(c.lr_scheduler_type, step, warmup_steps=c.warmup_steps, max_steps=c.max_steps)

    def learning_rates(self) -> dict[str, float]:
        """Those of the last update."""
        c, f = self.config, self.factor(self.step - 1)
        own = {"generator_learning_rate": c.generator_learning_rate * f} if c.generator_learning_rate else {}
        return {"learning_rate": c.learning_rate * f} | own

    # ------------------------------------------------------------------ between updates

    def log_line(self, log: MetricsLog) -> str:
        sums = self.window.across()
        self.tokens += int(sums.pop("tokens").sum)
        means = self.window.means()
        means.pop("tokens", None)
        self.window = Window(self.world.device)
        timing = self.meter.line(step=self.step, tokens=self.tokens)
        self.record(log, "train", means | self.learning_rates() | timing)
        if slow := self.meter.pace.news():
            self.warn(log, slow_text(*slow, device=self.world.device.type, threads=torch.get_num_threads()))
        losses = ", ".join(f"{name} {means[name]:.3f}" for name in self.weights if name in means)
        return f"{losses}, {shown_rate(timing)}"

    def validate(self, log: MetricsLog) -> None:
        if self.valid is None or not self.valid.num_rows:
            return
        faults.at("validation", self.step)
        limit = min(self.config.eval_rows, self.valid.num_rows)
        rows = min(self.micro_rows, limit)
        progress = self.step / self.config.max_steps
        bf16 = self.config.bf16
        self.validation = evaluate(self.objective, self.valid, limit=limit, batch_rows=rows, world=self.world, bf16=bf16, progress=progress)
        self.record(log, "valid", self.validation | {"seconds": self.meter.seconds()})
        if self.world.rank == 0:
            say(f"step {self.step}: valid " + ", ".join(f"{k} {v:.3f}" for k, v in shown(self.validation, losses=self.weights).items()))

    def record(self, log: MetricsLog, kind: Literal["train", "valid"], figures: dict[str, Any]) -> None:
        """One line of the log, and the monitors' warnings about it."""
        record = {"kind": kind, "step": self.step, "epoch": self.loader.epoch(self.step + self.left_out), "tokens": self.tokens_seen()} | figures
        log.write(record)
        for warning in self.monitor.watch(record):
            self.warn(log, warning)

    def warn(self, log: MetricsLog, warning: str, **more: Any) -> None:
        log.write({"kind": "event", "step": self.step, "warning": warning} | more)
        if self.world.rank == 0:
            say(f"warning: {warning}")

    def tokens_seen(self) -> int:
        """Tokens trained on, pads not counted, over all ranks."""
        waiting = self.window.across().get("tokens")
        return self.tokens + (int(waiting.sum) if waiting else 0)

    # ------------------------------------------------------------------ the whole run

    def train(self, log: MetricsLog) -> Summary:
        """Runs to max_steps, a signal, or max_minutes, and ends on a checkpoint. Raises Stopped for a signal that comes in the first update."""
        c = self.config
        self.meter.start(step=self.step, tokens=self.tokens_seen())
        stopped = False
        with Stop(at_once=self.world.size == 1) as stop, Progress(c.max_steps, title="pretrain", unit="steps", done=self.step) as bar:
            while self.step < c.max_steps and not stopped:
                stopped = self.leg(log, stop, bar)
        return Summary(self.step, not stopped, self.validation, self.tokens_seen(), self.meter.seconds())

    def leg(self, log: MetricsLog, stop: Stop, bar: Progress) -> bool:
        """Updates to max_steps, to a stop (then True), or to where the run goes back to a checkpoint."""
        c = self.config
        for batch in prefetch(self.batch, range(self.step, c.max_steps)):
            self.update(batch)
            stop.at_once = False
            done = self.step == c.max_steps
            late = self.deadline is not None and time.monotonic() >= self.deadline
            # With several GPUs a question to all ranks makes the device wait: ask every tenth update only.
            ask = self.world.size == 1 or self.guard.free_to_read or self.step % 10 == 0
            stopped = not done and ask and any_across(stop.requested or late)
            logs, saves = self.step % c.logging_steps == 0, done or stopped or self.step % c.save_steps == 0
            validates = done or (c.eval_steps > 0 and self.step % c.eval_steps == 0)
            if (self.guard.free_to_read or logs or saves or validates) and recover.judged(self, log):
                bar.advance(self.step - bar.done)
                return False
            bar.advance(1, self.log_line(log) if logs else "")
            if validates:
                with self.meter.aside():
                    self.validate(log)
            if saves:
                with self.meter.aside():
                    log.sync()
                    recover.save(self, log, leaving=done or stopped)
            if stopped:
                return True
        return False
