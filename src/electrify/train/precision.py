"""Whether a run computes in bfloat16: as its recipe says, as it began, or as the device can.

A processor without arithmetic in bfloat16 emulates it: an update of bert-tiny takes twelve times as
long as in float32 (docs/log.md).
"""

from __future__ import annotations

import torch

from ..config.pretrain import PretrainConfig, override
from ..progress import say
from .device import supports_bf16
from .dist import World, any_across


def with_precision(config: PretrainConfig, world: World, *, earlier: bool | None) -> PretrainConfig:
    """The recipe with `bf16` true or false. earlier: what the run computes in that goes on, or from
    which this one starts, so that it goes on on any machine as it began; None if there is none."""
    able = supports_bf16(world.device)
    bf16 = config.train.bf16
    if bf16 is None:
        bf16 = not any_across(not (able if earlier is None else earlier))
    if bf16 and not able and world.is_main:
        say(
            f"this {_name(world.device)} emulates bfloat16, which is slow; a run that begins with "
            "--bf16 false is many times as fast here"
        )
    return config if bf16 == config.train.bf16 else override(config, {"bf16": bf16})


def _name(device: torch.device) -> str:
    return "processor" if device.type == "cpu" else "device"
