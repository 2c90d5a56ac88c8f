"""Whether a run computes in bfloat16: as its recipe says, as it began, or as the device can. On a
GPU, products of float32 matrices use TF32.

A processor without arithmetic in bfloat16 emulates it: an update of bert-tiny takes twelve times as
long as in float32 (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from ..config.pretrain import PretrainConfig, load_file, override
from ..files.run_folder import CONFIG
from ..progress import say
from .device import supports_bf16
from .dist import World, any_across, together
from .folder import has_begun


def with_precision(
    config: PretrainConfig, world: World, *, begun: Iterable[Path]
) -> PretrainConfig:
    """The recipe with `bf16` true or false. begun: folders in which the run may have begun, or from
    which it starts; the first one decides, so that a run goes on on any machine as it began."""
    if world.device.type == "cuda":
        # Without it, they do not use the tensor cores.
        torch.backends.cuda.matmul.allow_tf32 = True
    able = supports_bf16(world.device)
    bf16 = config.train.bf16
    if bf16 is None:
        with together():
            bf16 = next((b for folder in begun if (b := _written(folder)) is not None), able)
        bf16 = not any_across(not bf16)
    if bf16 and not able and world.is_main:
        say(
            f"this {_name(world.device)} emulates bfloat16, which is slow; a run that begins with "
            "--bf16 false is many times as fast here"
        )
    return config if bf16 == config.train.bf16 else override(config, {"bf16": bf16})


def _written(folder: Path) -> bool | None:
    """What the run that goes on in the folder computes in; None if none does."""
    return load_file(folder / CONFIG, within=folder).train.bf16 if has_begun(folder) else None


def _name(device: torch.device) -> str:
    return "processor" if device.type == "cpu" else "device"
