"""The state of a run: everything that a checkpoint holds, and nothing else.

What decides the numbers of a run is (recipe, data, step): order, masks, samples and dropout are
functions of them, so the state is parameters, optimiser, the step, what the guard has counted, and
the sums of the unfinished log line. No random generator is part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..model.encoder import kinds_of, matrices_of
from ..recipe import Train
from .checkpoint import Groups, State
from .dist import World, gathered, placed_as
from .guard import Guard
from .log import Meter, MetricSums
from .monitor import Monitor
from .optim import load_optimizer_tensors, make_optimizer, optimizer_tensors, parameter_groups


def conditions_of(world: World) -> dict[str, Any]:
    """What the last bits depend on besides recipe and data."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "world_size": world.size,
        "device": world.device.type,
    }


class RunState:
    """The state of a run: at step 0 until `load` is called."""

    def __init__(
        self,
        objective: nn.Module,
        s: Train,
        world: World,
        *,
        discriminator: set[str],
        monitor: Monitor,
        flops: Callable[[int], float],
    ) -> None:
        """discriminator: names of the parameters of the discriminator; all others use
        generator_learning_rate, generator_warmup_steps and generator_weight_decay. flops(step): the
        FLOPs of the run before that step."""
        self.world = world
        self.named = dict(objective.named_parameters())
        others = self.named.keys() - discriminator
        kinds = kinds_of(objective)
        rates = {}
        for n in self.named:
            rate = s.generator_learning_rate if n in others else None
            rates[n] = (rate or s.learning_rate) * s.lr_factors.get(kinds[n], 1.0)
        decay = s.generator_weight_decay
        groups = parameter_groups(
            self.named,
            rates=rates,
            weight_decay=s.weight_decay,
            decays={} if decay is None else dict.fromkeys(others, decay),
            generator=set() if s.generator_warmup_steps is None else others,
            stacked=matrices_of(objective) if s.optim == "muon" else {},
        )
        betas = (s.adam_beta1, s.adam_beta2)
        self.optimizer = make_optimizer(s.optim, groups, betas=betas, eps=s.adam_epsilon)
        self.monitor = monitor
        self.meter = Meter(world.device, flops=flops)
        self.guard = Guard(s, world)
        self.sums = MetricSums(world.device)
        self.step = 0
        self.tokens = 0
        """Tokens trained on up to the last log line."""
        self.validation: dict[str, float] = {}
        self.left_out = 0
        """Number of batches that rollbacks have skipped: update n takes batch n - 1 + left_out."""

    def tokens_seen(self) -> int:
        """Tokens trained on over all ranks, without padding."""
        waiting, _ = self.sums.save().get("tokens", (0, 0))
        return self.tokens + int(waiting)

    def tensors(self, *, keep: bool) -> Groups:
        """Parameters and moments, without sharding. Called on all ranks; a rank that does not
        `keep` them gets none."""
        parameters = {n: p.detach() for n, p in self.named.items()}
        groups = {"model": parameters, "optimizer": optimizer_tensors(self.optimizer, self.named)}
        return {group: gathered(named, keep=keep) for group, named in groups.items()}

    def rest(self) -> State:
        """All but the tensors, as JSON that `load` reads back to the bit."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.meter.seconds(),
            "window": self.sums.save(),
            "validation": self.validation,
            "monitor": self.monitor.state(),
            "guard": self.guard.state(),
            "left_out": self.left_out,
            "conditions": conditions_of(self.world),
        }

    def load(self, tensors: Groups, rest: State) -> None:
        """Takes over the state that a checkpoint of this recipe holds."""
        with torch.no_grad():
            for n, p in self.named.items():
                p.copy_(placed_as(p, tensors["model"][n]))
        load_optimizer_tensors(self.optimizer, self.named, tensors["optimizer"])
        self.step = rest["step"]
        self.tokens = rest["tokens"]
        self.meter.seconds_before = rest["seconds"]
        self.sums.load(rest["window"], rank=self.world.rank)
        self.validation = rest["validation"]
        self.monitor.restore(rest["monitor"])
        self.guard.restore(rest["guard"])
        self.left_out = rest["left_out"]
