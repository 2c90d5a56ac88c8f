"""What a run reports between updates: log lines, validation, and the monitor's warnings about
both."""

from __future__ import annotations

from typing import Any, Literal

import torch

from .. import faults
from ..config.pretrain import TrainConfig
from ..objectives.objective import Objective
from ..progress import say
from . import schedule
from .by_rows import phase_numbers
from .evaluate import evaluate, shown
from .log import MetricsLog
from .meter import shown_rate, slow_text
from .state import MetricSums, RunContext, RunState, TrainingData


class Reporter:
    """Runs the validation of one run and writes its log. Every method is called on all ranks."""

    def __init__(
        self,
        objective: Objective,
        config: TrainConfig,
        state: RunState,
        data: TrainingData,
        context: RunContext,
        *,
        losses: dict[str, float],
    ) -> None:
        """losses: the weight of each loss, by name; they are shown in this order."""
        self.objective = objective
        self.config = config
        self.state = state
        self.data = data
        self.world = context.world
        self.losses = losses

    def log_line(self, log: MetricsLog) -> str:
        """Completes a log line: means since the last line, and rates. Returns what the progress bar
        shows."""
        state = self.state
        meter = state.meter
        sums = state.sums.across()
        state.tokens += int(sums.pop("tokens").sum)
        means = state.sums.means()
        means.pop("tokens", None)
        state.sums = MetricSums(self.world.device)
        timing = meter.line(step=state.step, tokens=state.tokens)
        numbers = self.learning_rates() | phase_numbers(self.objective.encoder)
        self.record(log, "train", means | numbers | timing)
        if slow := meter.pace.news():
            log.warn(
                state.step,
                "slow",
                slow_text(*slow, device=self.world.device.type, threads=torch.get_num_threads()),
            )
        losses = ", ".join(f"{name} {means[name]:.3f}" for name in self.losses if name in means)
        return f"{losses}, {shown_rate(timing)}"

    def learning_rates(self) -> dict[str, float]:
        """The learning rates used in the last update."""
        c = self.config
        factor = schedule.planned(c, self.state.step - 1)
        rates = {"learning_rate": c.learning_rate * factor}
        if c.generator_learning_rate or c.generator_warmup_steps is not None:
            own = schedule.planned(c, self.state.step - 1, generator=True)
            peak = c.generator_learning_rate or c.learning_rate
            rates["generator_learning_rate"] = peak * own
        return rates

    def validate(self, log: MetricsLog) -> None:
        valid = self.data.valid
        c = self.config
        state = self.state
        limit, rows_each = self.data.validated(c.eval_rows, processes=self.world.size)
        if valid is None or not limit:
            return
        faults.at("validation", state.step)
        state.validation = evaluate(
            self.objective,
            valid,
            limit=limit,
            rows_each=rows_each,
            world=self.world,
            bf16=bool(c.bf16),
            progress=state.step / c.max_steps,
        )
        self.record(log, "valid", state.validation | {"seconds": state.meter.seconds()})
        if self.world.rank == 0:
            figures = shown(state.validation, losses=self.losses)
            said = ", ".join(f"{k} {v:.3f}" for k, v in figures.items())
            say(f"step {state.step}: valid {said}")

    def record(
        self, log: MetricsLog, kind: Literal["train", "valid"], figures: dict[str, Any]
    ) -> None:
        """Writes one record to the log, and the monitor's warnings about it."""
        state = self.state
        record = {
            "kind": kind,
            "step": state.step,
            "epoch": self.data.loader.epoch(state.step + state.left_out),
            "tokens": state.tokens_seen(),
        } | figures
        log.write(record)
        for trouble in state.monitor.watch(record):
            of = {"subject": trouble.subject} if trouble.subject else {}
            log.warn(state.step, trouble.topic, trouble.text, **of)
