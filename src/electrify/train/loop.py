"""The training loop. It makes two calls, `objective.plan(tokens, draws)` ahead of an update and
`step(tokens, plan) -> terms` during it, and never knows which objective it trains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..corruption.choosing import Plan, enough
from ..data.loader import prefetch
from ..draws import draws_for, hashed
from ..errors import UserError
from ..flop_counts import flops_before, flops_of_periods
from ..model.encoder import Encoder, encoders_of, for_rows
from ..objectives.objective import Objective, Step, summarise
from ..process import Stop
from ..progress import Progress
from ..terms import Term, Terms, weighted
from ..tokens import Tokens, mapped
from . import checkpoint, machine
from .checkpoint import RunState
from .dist import any_across, averaging, is_sharded, no_sync, place, sum_across, together
from .graphs import Batch, Done, Graphs, on_device
from .guard import BEGIN_ANEW, Verdict
from .log import MetricsLog, MetricSums, numbers_of, shown_rate
from .monitor import Monitor
from .optim import beta2_of, clip, clip_groups, scheduled

if TYPE_CHECKING:
    from .job import Job, TrainingData

# "valid": validation masks do not depend on the run's seed, so that runs are compared on the same
# task.
VALIDATION_SEED = 0x76616C6964


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    folder: Path
    step: int
    finished: bool
    """False if a signal or max_minutes stopped the run; it then continues from the newest
    checkpoint."""
    validation: dict[str, float]
    tokens: int
    seconds: float
    """Wall time of the run, including the time before it was resumed."""
    signalled: bool = False
    """Whether a signal came, to whichever process. In the last update, validation or save it is
    too late for the run, not for what would follow."""
    exported: dict[str, Path] = field(default_factory=dict)
    """The Hugging Face folder of each network; empty if the run was stopped before its end."""


class Forward(nn.Module):
    """The forward pass of a micro-batch: its loss; the names of its terms; and their sums and
    counts."""

    def __init__(self, objective: Objective, weights: dict[str, float]) -> None:
        super().__init__()
        self.step = Step(objective)
        self.weights = weights

    def forward(
        self, tokens: Tokens, plan: Plan, counts: dict[str, Tensor]
    ) -> tuple[Tensor, list[str], Tensor]:
        terms = self.step(tokens, plan)
        loss = weighted(terms, self.weights, counts)
        nothing = torch.zeros((), device=loss.device)
        terms = terms | {"tokens": Term(tokens.real_T.sum(), nothing)}
        return loss, list(terms), numbers_of(terms)


def wrapped(objective: Objective, job: Job, *, graphs: bool) -> Any:
    """The forward pass as the loop calls it: compiled if the recipe says so, and with gradients
    averaged over the ranks if each rank holds the whole model. graphs: whether the compiler makes
    CUDA graphs of it and of its backward pass."""
    settings, world = job.recipe.train, job.world
    module: Any = Forward(objective, job.recipe.objective.term_weights)
    if settings.torch_compile:
        on_gpu = world.device.type == "cuda"
        options = compiler_options(graphs=graphs) if on_gpu else None
        module = torch.compile(module, dynamic=False, options=options)
    whole = world.size > 1 and not any(map(is_sharded, objective.parameters()))
    return averaging(module) if whole else module


def compiler_options(*, graphs: bool) -> dict[str, Any]:
    """Options of torch's compiler for a GPU, without those that this version does not have."""
    from .rewrites import Rewrites  # imports the compiler

    wanted = {
        "triton.cudagraphs": graphs,
        # Small kernels side by side in one launch: the casts of 200 parameters, sums of gradients.
        "combo_kernels": True,
        # One kernel for all gradients of a LayerNorm. By default only for at least 5 * 2^20
        # elements; a batch of 128 x 128 of width 256 has 4 * 2^20.
        "triton.mix_order_reduction_non_strict_mode": True,
        "post_grad_custom_post_pass": Rewrites(),
    }
    known = torch._inductor.list_options()
    return {name: value for name, value in wanted.items() if name in known}


def capturable(job: Job, data: TrainingData) -> bool:
    """Whether an update does the same on the device each time that its batch has the same shape:
    one process, one micro-batch, and an optimiser that takes its learning rate as a tensor."""
    one = max(phase.batch_rows for phase in data.loader.phases.all) <= job.micro_rows
    return one and job.world.size == 1 and job.recipe.train.optim != "muon"


class Run:
    """One pre-training run."""

    def __init__(
        self, objective: Objective, job: Job, data: TrainingData, *, discriminator: set[str]
    ) -> None:
        """discriminator: names of the parameters of the discriminator; all other parameters use
        generator_learning_rate."""
        self.job, self.data, self.world = job, data, job.world
        self.settings = settings = job.recipe.train
        self.weights = job.recipe.objective.term_weights
        on_gpu = self.world.device.type == "cuda"
        # Whether lists are padded to one of a few lengths, so that compiled graphs fit every batch.
        self.fixed = settings.torch_compile or on_gpu
        self.objective = place(objective, settings, self.world)
        self.objective.train()
        self.encoders = encoders_of(self.objective)
        self.row_length: int | None = None  # of the last update
        # Whole updates become CUDA graphs; where they cannot, the compiler makes graphs of the
        # forward and of the backward pass.
        graphs = on_gpu and bool(settings.torch_compile)
        whole = graphs and capturable(job, data)
        self.graphs = Graphs(self.compute, self.world.device) if whole else None
        self.compiler_graphs = graphs and not whole
        self.module = wrapped(self.objective, job, graphs=self.compiler_graphs)
        # The matrix products of the model, padding included, whatever the machine actually does
        # (see flop_counts.py).
        self.periods = flops_of_periods(
            self.objective,
            data.loader.phases,
            max_steps=settings.max_steps,
            convention="hardware",
            rows=job.micro_rows,
            optim=settings.optim,
        )
        monitor = Monitor(job.recipe, data.unigram_entropy)
        how: dict[str, Any] = {"discriminator": discriminator, "monitor": monitor}
        self.state = RunState(self.objective, settings, job.world, **how, flops=self.flops)
        self.clipped = clip_groups(self.state.named, discriminator, apart=settings.clip == "apart")
        if self.graphs:
            self.rates_as_tensors()

    @property
    def step(self) -> int:
        return self.state.step

    def batch_number(self, step: int) -> int:
        """Of an update, both counted from 0."""
        return step + self.state.left_out

    # ------------------------------------------------------------------ one update

    def batch(self, step: int) -> Batch:
        """This rank's share of the batch of an update, with everything that is chosen in it. It is
        made in the loader's thread."""
        at, loader = self.batch_number(step), self.data.loader
        phase = loader.phases.at(at)
        share = phase.batch_rows // self.world.size
        first = self.world.rank * share
        rows = min(self.job.micro_rows, share)
        progress = step / self.settings.max_steps
        parts: Batch = []
        for start in range(first, first + share, rows):
            draws = draws_for(
                seed=self.settings.seed,
                step=at,
                num_rows=rows,
                row_length=phase.row_length,
                first_row=start,
                progress=progress,
            )
            tokens = loader.batch(at, first_row=start, num_rows=rows)
            plan = self.objective.plan(tokens, draws, fixed=self.fixed)
            if self.fixed and tokens.runs:
                tokens = replace(tokens, runs=enough(tokens.num_rows, tokens.runs))
            parts.append((tokens, plan))
        # From pinned memory, a copy to a GPU runs by itself.
        on_gpu = self.world.device.type == "cuda"
        return mapped(parts, Tensor.pin_memory) if on_gpu else parts

    def counts(self, parts: Batch) -> dict[str, Tensor]:
        """The number of tokens in each loss of this update, over all micro-batches and ranks. The
        plans give it before any forward pass."""
        each = [torch.stack(list(plan.counts.values())) for _, plan in parts]
        total_N = torch.stack(each).sum(0).double()
        sum_across([total_N])
        return dict(zip(parts[0][1].counts, total_N.float().unbind(), strict=True))

    def update(self, batch: Batch) -> None:
        """Forward, backward, clipping, optimiser. The loss is sum / global count, so any split of
        the batch gives the same gradient. If the guard refuses the update, optimiser and sums
        change nothing."""
        phases = self.data.loader.phases
        phase = phases.at(self.batch_number(self.step))
        if phase.row_length != self.row_length:
            self.row_length = phase.row_length
            for_rows(self.encoders, phase.row_length)
        self.seed_dropout()
        self.set_rates(phase.slots)
        if self.step in phases.length_changes | {p.first for p in self.periods[1:]}:
            self.state.guard.expect_another_loss()
        done = self.graphs.replayed(batch) if self.graphs else None
        if self.graphs and self.graphs.failed:
            self.graphs = None
            self.state.optimizer.zero_grad(set_to_none=True)
            self.seed_dropout()
        if done is None:
            done = self.compute(on_device(batch, self.world.device))
        self.state.guard.remember(self.step + 1, done.verdict)
        self.state.sums.add(done.names, done.numbers_N2)
        self.state.step += 1

    def compute(self, parts: Batch) -> Done:
        """What an update does on the device, without asking it for a number. Everything that it
        changes stays in the same memory."""
        names, numbers_N2, total = self.accumulate(parts)
        norm = clip(self.clipped, self.settings.max_grad_norm or math.inf)
        refused, verdict = self.state.guard.judge(total, norm)
        # Every rank has the same norm, so each adds an equal share of it.
        share_2 = torch.stack([norm, torch.ones_like(norm)]) / self.world.size
        numbers_N2 = torch.cat([numbers_N2, share_2.double()[None]])
        # Those of a refused update may be NaN or infinite.
        numbers_N2 = numbers_N2.masked_fill(refused > 0, 0.0)
        # Where it is 1, torch's fused optimisers change nothing, and neither does Muon (optim.py).
        self.state.optimizer.found_inf = refused  # type: ignore[attr-defined]
        self.state.optimizer.step()
        self.state.optimizer.zero_grad(set_to_none=True)
        return Done([*names, "grad_norm"], numbers_N2, verdict)

    def accumulate(self, parts: Batch) -> tuple[list[str], Tensor, Tensor]:
        """Runs the forward and backward passes of an update. Returns the names, sums and counts of
        the terms, and this rank's share of the loss."""
        device = self.world.device
        counts = self.counts(parts)
        if self.compiler_graphs:
            # The outputs of the last update have been read. The gradients of this update's passes
            # add up.
            torch.compiler.cudagraph_mark_step_begin()
        names: list[str] = []
        found = torch.zeros((), dtype=torch.float64, device=device)
        total = torch.zeros((), device=device)
        for k, (tokens, plan) in enumerate(parts):
            last = k == len(parts) - 1
            with nullcontext() if last else no_sync(self.module):
                with torch.autocast(device.type, torch.bfloat16, enabled=bool(self.settings.bf16)):
                    loss, names, numbers_N2 = self.module(tokens, plan, counts)
                # Gradients are averaged over the ranks, but we need their sum.
                (loss * self.world.size).backward()
                total += loss.detach()
            found = found + numbers_N2
        return names, found, total

    def seed_dropout(self) -> None:
        drawn = hashed(self.settings.seed, self.batch_number(self.step), self.world.rank)
        seed = int(drawn) & (1 << 62) - 1
        # torch.manual_seed asks every kind of device that might exist, which takes a millisecond.
        if self.world.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def set_rates(self, tokens: int) -> None:
        """Sets the learning rates and beta2 of an update of this many tokens, with padding."""
        betas = self.settings.adam_beta1, beta2_of(self.settings, tokens)
        for group in self.state.optimizer.param_groups:
            factor = scheduled(self.settings, self.step, generator=group["generator"])
            rate, lr = group["peak_lr"] * factor, group["lr"]
            group |= {"lr": lr.fill_(rate) if isinstance(lr, Tensor) else rate, "betas": betas}

    def rates_as_tensors(self) -> None:
        """Graphs read the learning rates from the device. Adam lets itself be captured only with
        `capturable`, and warns where it is not."""
        optimizer = self.state.optimizer
        optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]
        for group in optimizer.param_groups:
            group |= {"lr": torch.zeros((), device=self.world.device), "capturable": True}

    def flops(self, step: int) -> float:
        """The FLOPs of the run before `step`, including those of an earlier stage."""
        own = flops_before(self.data.loader.phases, step, self.periods)
        return self.job.flops_before + own

    # ------------------------------------------------------------------ bad updates

    def obey_verdicts(self, log: MetricsLog, *, wait: bool) -> bool:
        """Called between updates: reads the guard's verdicts and logs what was wrong. Returns True
        if the run is now at an earlier step.

        wait: whether the device may be waited for. All ranks ask at the same updates.
        """
        if not wait and self.world.device.type != "cpu":
            return False
        guard, before = self.state.guard, self.step
        verdicts = guard.settle()
        at = [self.batch_number(v.step - 1) for v in verdicts]
        refused = [v for v in verdicts if v.refused]
        back = any(guard.policies[v.kind] == "rollback" for v in refused)
        if back:
            self.go_back(behind=refused[-1])
            log.rewind(self.step)
        for v, batch in zip(verdicts, at, strict=True):
            happened = "trained on; spike=skip leaves such updates out"
            if v.refused:
                allowed = f"{guard.refused[v.kind]} so far, {guard.limits[v.kind]} allowed"
                happened = f"left out ({allowed})"
            rows = self.data.loader.rows(batch).tolist()
            log.warn(self.step, v.kind, f"{v.text}: {happened}", rows=rows)
        if back:
            text = f"went back from update {before} to the checkpoint of {self.step}"
            text += "; the batches between them are left out"
            log.warn(self.step, "went_back", text)
        return back

    def go_back(self, *, behind: Verdict) -> None:
        """Returns to the newest checkpoint, and continues with the batches after that of `behind`.
        The number of refused updates and the time spent still count."""
        folder, state = self.job.folder, self.state
        # Ranks may see the folder of a shared file system at different times, so the first one
        # decides.
        with together():
            found = checkpoint.newest(folder) if self.world.is_main else None
        number = torch.tensor(found[1]["step"] if found else 0)
        sum_across([number])
        step = int(number)
        if not step:
            raise UserError(
                f"{behind.text} and there is no checkpoint yet to go back to, so the run stopped; "
                f"the same run with {behind.kind}=skip leaves such updates out, or {BEGIN_ANEW}"
            )
        with together():
            tensors, rest = found or checkpoint.load(checkpoint.folder_of(folder, step))
        rest["left_out"] = self.batch_number(behind.step) - step
        rest["seconds"] = state.meter.seconds_before
        rest["guard"]["refused"] = state.guard.refused
        state.load(tensors, rest)
        if self.graphs:
            self.graphs.forget()  # the optimiser's state lies elsewhere now
        state.meter.begin_line(step=step, tokens=state.tokens_seen())

    # ------------------------------------------------------------------ the log

    def log_line(self, log: MetricsLog) -> str:
        """Completes a log line: means since the last line, and rates. Returns what the progress bar
        shows."""
        state = self.state
        state.tokens = state.tokens_seen()
        means = state.sums.means()
        means.pop("tokens", None)
        state.sums = MetricSums(self.world.device)
        timing = state.meter.line(step=state.step, tokens=state.tokens)
        numbers = self.learning_rates() | phase_numbers(self.objective.encoder)
        self.record(log, "train", means | numbers | timing)
        losses = ", ".join(f"{name} {means[name]:.3f}" for name in self.weights if name in means)
        return f"{losses}, {shown_rate(timing)}"

    def learning_rates(self) -> dict[str, float]:
        """The learning rates used in the last update."""
        s = self.settings
        rates = {"learning_rate": s.learning_rate * scheduled(s, self.step - 1)}
        if s.generator_learning_rate or s.generator_warmup_steps is not None:
            own = scheduled(s, self.step - 1, generator=True)
            peak = s.generator_learning_rate or s.learning_rate
            rates["generator_learning_rate"] = peak * own
        return rates

    def validate(self, log: MetricsLog) -> None:
        state = self.state
        limit = self.data.validated(self.settings.eval_rows)
        if not limit:
            return
        state.validation = self.evaluate(limit)
        self.record(log, "valid", state.validation | {"seconds": state.meter.seconds()})
        figures = shown(state.validation, losses=self.weights)
        said = ", ".join(f"{k} {v:.3f}" for k, v in figures.items())
        self.world.say(f"step {state.step}: valid {said}")

    @torch.no_grad()
    def evaluate(self, limit: int) -> dict[str, float]:
        """Means and detection metrics of the objective over the first `limit` rows of the
        validation split. The ranks share every batch; missing rows are padding."""
        data, device = self.data, self.world.device
        assert data.valid is not None
        groups = -(-limit // (self.world.size * data.group_rows))
        rows = min(self.job.micro_rows, groups * data.group_rows)
        mine = self.world.rank * rows, (self.world.rank + 1) * rows
        step, sums = Step(self.objective), Terms()
        self.objective.eval()
        for k, tokens in enumerate(data.valid.sequential(rows * self.world.size, limit=limit)):
            draws = draws_for(
                seed=VALIDATION_SEED,
                step=0,
                num_rows=tokens.num_rows,
                row_length=tokens.row_length,
                first_row=k * tokens.num_rows,
                progress=self.step / self.settings.max_steps,
            )
            own = tokens.rows(*mine)
            with torch.autocast(device.type, torch.bfloat16, enabled=bool(self.settings.bf16)):
                plan = self.objective.plan(own, draws.rows(*mine))
                found = step(*on_device([(own, plan)], device)[0])
            for name, term in found.items():
                total, count = term.sum.double(), term.count.double()
                if had := sums.get(name):
                    total, count = had.sum + total, had.count + count
                sums[name] = Term(total, count, term.kind)
        self.objective.train()
        sums = dict(sorted(sums.items()))
        sum_across([t for term in sums.values() for t in (term.sum, term.count)])
        return summarise(sums)

    def record(self, log: MetricsLog, kind: str, figures: dict[str, Any]) -> None:
        """Writes one record to the log, and the monitor's warnings about it."""
        state = self.state
        record = {
            "kind": kind,
            "step": state.step,
            "epoch": self.data.loader.epoch(self.batch_number(self.step)),
            "tokens": state.tokens_seen(),
        } | figures
        log.write(record)
        for trouble in state.monitor.watch(record):
            of = {"subject": trouble.subject} if trouble.subject else {}
            log.warn(state.step, trouble.topic, trouble.text, **of)

    # ------------------------------------------------------------------ the whole run

    def train(self, log: MetricsLog) -> Result:
        """Runs until max_steps, a signal, or max_minutes, and ends with a checkpoint. Raises
        Stopped if a signal comes in the first update."""
        s, state, world = self.settings, self.state, self.world
        peak = math.inf
        if world.is_main:
            dtype = torch.bfloat16 if s.bf16 else torch.float32
            peak = world.size * machine.measure_peak(world.device, dtype)
        state.meter.start(step=self.step, tokens=state.tokens_seen(), peak=peak)
        stopped = False
        bar = Progress(s.max_steps, title="pretrain", unit="steps", done=self.step)
        with Stop(at_once=world.size == 1) as stop, bar:
            while self.step < s.max_steps and not stopped:
                stopped = self.leg(log, stop, bar)
            signalled = any_across(stop.requested)
        self.give_back()
        used = state.tokens_seen(), state.meter.seconds()
        folder, finished = self.job.folder, not stopped
        return Result(folder, self.step, finished, state.validation, *used, signalled)

    def give_back(self) -> None:
        """Ends the graphs. Their memory would else be held until this run is collected."""
        if self.graphs:
            self.graphs.drop()

    def leg(self, log: MetricsLog, stop: Stop, bar: Progress) -> bool:
        """Runs updates until max_steps, until it must stop (then it returns True), or until the run
        goes back to a checkpoint."""
        s, changes = self.settings, {period.first for period in self.periods[1:]}
        for batch in prefetch(self.batch, range(self.step, s.max_steps)):
            if self.step in changes:
                self.world.say(f"step {self.step}: the objective changes, and its losses with it")
            self.update(batch)
            stop.at_once = False
            done = self.step == s.max_steps
            stopped = not done and self.must_stop(stop)
            logs = done or self.step % s.logging_steps == 0
            saves = done or stopped or self.step % s.save_steps == 0
            saves |= self.step in self.job.milestones
            validates = done or (s.eval_steps > 0 and self.step % s.eval_steps == 0)
            if self.obey_verdicts(log, wait=logs or saves or validates):
                bar.advance(self.step - bar.done)
                return False
            bar.advance(1, self.log_line(log) if logs else "")
            with self.state.meter.aside():
                if validates:
                    self.validate(log)
                if saves:
                    log.sync()
                    self.save()
            if stopped:
                return True
        return False

    def save(self) -> None:
        """Writes a checkpoint of the current step. Called on all ranks; rank 0 writes. Raises
        UserError if the disk fails."""
        job, main = self.job, self.world.is_main
        tensors, rest = self.state.tensors(keep=main), self.state.rest()
        how = {"keep": self.settings.save_total_limit, "spared": job.milestones}
        with together():
            if main:
                checkpoint.save(job.folder, self.step, tensors, rest, **how)

    def must_stop(self, stop: Stop) -> bool:
        """Whether a signal or the deadline ends the run at this update, the same on all ranks."""
        deadline = self.job.deadline
        late = deadline is not None and time.monotonic() >= deadline
        # With several GPUs, asking all ranks makes the device wait, so this is done every tenth
        # update only.
        ask = self.world.size == 1 or self.world.device.type == "cpu" or self.step % 10 == 0
        return ask and any_across(stop.requested or late)


def phase_numbers(encoder: Encoder) -> dict[str, float]:
    """The numbers of an encoder's shape that differ between phases, with their values in this one;
    none in a run whose encoder stays as it is."""
    last = vars(encoder.last_shape)
    shapes = encoder.shapes_by_rows.values()
    odd = {name for shape in shapes for name, value in vars(shape).items() if value != last[name]}
    return {name: getattr(encoder.shape, name) for name in last if name in odd}


def shown(validation: dict[str, float], *, losses: Iterable[str]) -> dict[str, float]:
    """The validation metrics that fit on one line: the losses, the accuracies, the share of
    replaced tokens, and how well replaced tokens are detected."""
    ends = ("_accuracy", "_auc", "_recall", "_precision")
    return {
        k.replace("_detection_", " "): v
        for k, v in validation.items()
        if k in losses or k == "replaced" or k.endswith(ends)
    }
