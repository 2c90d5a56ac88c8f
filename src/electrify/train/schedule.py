"""Learning-rate schedules: pure functions of the number of completed updates."""

from __future__ import annotations

import math

from ..config.pretrain import TrainConfig

# With `wsd` the last fifth of the run decays to zero.
DECAY_SHARE = 0.2


def factor(kind: str, step: int, *, warmup_steps: float, max_steps: int) -> float:
    """The factor on the peak learning rate in the update after `step` completed ones.

    It rises from 0 to 1 during the warm-up; after that it depends on the kind:

    - electra: min(1, step / warmup) * (1 - step / total), as in the published code: the decay
      already runs during the warm-up
    - linear: from 1 to 0
    - cosine: half a cosine from 1 to 0
    - wsd: 1, then linearly to 0 over the last fifth of the run
    - constant: 1
    """
    warm = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    after = max(0.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    match kind:
        case "electra":
            return warm * max(0.0, 1 - step / max_steps)
        case "linear":
            return warm * max(0.0, 1 - after)
        case "cosine":
            return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, after)))
        case "wsd":
            return warm * min(1.0, max(0.0, 1 - step / max_steps) / DECAY_SHARE)
        case "constant":
            return warm
        case _:
            raise AssertionError(kind)


def planned(config: TrainConfig, step: int, *, generator: bool = False) -> float:
    """The factor of a recipe's schedule in the update after `step` completed ones. generator: that
    of the parameters that only the generator has."""
    own = config.generator_warmup_steps if generator else None
    return factor(
        config.lr_scheduler_type,
        step,
        warmup_steps=config.warmup_steps if own is None else own,
        max_steps=config.max_steps,
    )
