"""Everything that a checkpoint holds, and nothing else.

What decides the numbers of a run is (recipe, data, step): order, masks, samples and dropout are
functions of them, so the state is parameters, optimiser, the step, and the sums of the unfinished
log line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config.pretrain import TrainConfig
from ..errors import UserError
from .context import RunContext
from .dist import gathered, like
from .guard import Guard
from .meter import Meter
from .monitor import Monitor
from .optim import load_optimizer_tensors, make_optimizer, optimizer_tensors, parameter_groups
from .saved import must_be_moments
from .sums import MetricSums


class RunState:
    """The state of a run: at step 0 until `load` is called."""

    def __init__(
        self,
        named: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        *,
        monitor: Monitor,
        meter: Meter,
        guard: Guard,
        device: torch.device,
    ) -> None:
        self.named = named
        self.optimizer = optimizer
        self.monitor = monitor
        self.meter = meter
        self.guard = guard
        self.sums = MetricSums(device)
        self.step = 0
        self.tokens = 0
        """Tokens trained on up to the last log line."""
        self.validation: dict[str, float] = {}
        self.left_out = 0
        """Number of batches that rollbacks have skipped: update n takes batch n - 1 + left_out."""

    def tokens_seen(self) -> int:
        """Tokens trained on over all ranks, without padding."""
        waiting = self.sums.across().get("tokens")
        return self.tokens + (int(waiting.sum) if waiting else 0)

    def tensors(self, *, keep: bool) -> dict[str, dict[str, Tensor]]:
        """Parameters and moments, without sharding. Called on all ranks; a rank that does not
        `keep` them gets none."""
        parameters = {n: p.detach() for n, p in self.named.items()}
        groups = {"model": parameters, "optimizer": optimizer_tensors(self.optimizer, self.named)}
        return {group: gathered(named, keep=keep) for group, named in groups.items()}

    def facts(self) -> dict[str, Any]:
        """The rest of the state, as JSON that `load` reads back to the bit."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.meter.seconds(),
            "window": self.sums.save(),
            "validation": self.validation,
            "monitor": self.monitor.state(),
            "guard": self.guard.state(),
            "left_out": self.left_out,
        }

    def load(
        self,
        tensors: dict[str, dict[str, Tensor]],
        facts: dict[str, Any],
        *,
        folder: Path,
        rank: int,
    ) -> None:
        """Takes over the state that a checkpoint of the run in `folder` holds. Raises UserError,
        naming what differs, if it belongs to another model."""
        model = tensors["model"]
        must_be_of(self.named, model, folder)
        with torch.no_grad():
            for n, p in self.named.items():
                p.copy_(like(p, model[n]))
        must_be_moments(folder, tensors["optimizer"], self.named)
        load_optimizer_tensors(self.optimizer, self.named, tensors["optimizer"])
        self.step = facts["step"]
        self.tokens = facts["tokens"]
        self.meter.seconds_before = facts["seconds"]
        self.sums.load(facts["window"], rank=rank)
        self.validation = facts["validation"]
        self.monitor.restore(facts["monitor"])
        self.left_out = facts.get("left_out", 0)
        if facts.get("guard") is not None:  # absent in checkpoints of the first versions
            self.guard.restore(facts["guard"])


def must_be_of(named: dict[str, nn.Parameter], model: dict[str, Tensor], folder: Path) -> None:
    """Raises UserError if the tensors of a checkpoint do not belong to these parameters."""
    mine = {n: tuple(p.shape) for n, p in named.items()}
    theirs = {n: tuple(t.shape) for n, t in model.items()}
    if mine != theirs:
        odd = sorted(n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n))
        raise UserError(
            f"the checkpoint in {folder} holds another model: {odd[0]} is {theirs.get(odd[0])} "
            f"there and {mine.get(odd[0])} here ({len(odd)} differ)"
        )


def fresh_state(
    named: dict[str, nn.Parameter],
    config: TrainConfig,
    context: RunContext,
    *,
    kept: set[str],
    monitor: Monitor,
    flops: Callable[[int], float],
) -> RunState:
    """The state before the first update. kept: names of the parameters of the encoder that is kept;
    all others use generator_learning_rate, generator_warmup_steps and generator_weight_decay.
    flops(step): the FLOPs of the run before that step."""
    c = config
    world = context.world
    rates = {
        n: c.learning_rate if n in kept else c.generator_learning_rate or c.learning_rate
        for n in named
    }
    others, decay = named.keys() - kept, c.generator_weight_decay
    groups = parameter_groups(
        named,
        rates=rates,
        weight_decay=c.weight_decay,
        decays={} if decay is None else dict.fromkeys(others, decay),
        generator=set() if c.generator_warmup_steps is None else others,
    )
    return RunState(
        named,
        make_optimizer(c.optim, groups, betas=(c.adam_beta1, c.adam_beta2), eps=c.adam_epsilon),
        monitor=monitor,
        meter=Meter(world.device, flops=flops, peak=context.peak * world.size),
        guard=Guard(c, world),
        device=world.device,
    )
