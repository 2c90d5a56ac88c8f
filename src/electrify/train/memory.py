"""Whether a model fits into memory. This is checked before anything is allocated, because a wrong
number in a file must not take the machine down."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..config.pretrain import PretrainConfig
from ..console import size
from ..errors import UserError
from ..model.shape import Shape
from ..oldfiles.followed import MAX_LAYERS
from .dist import World

TRAINED_BYTES = 16  # for a parameter in float32 with its gradient and two moments
HELD_BYTES = 4  # for a parameter alone
CGROUP = Path("/sys/fs/cgroup/memory.max")


def available_bytes() -> int:
    """The memory that this process may still take: what the system has available, up to the limit
    of its container."""
    pages = (
        os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if hasattr(os, "sysconf")
        else 1 << 62
    )
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        pages = 1024 * int(
            next(line for line in lines if line.startswith("MemAvailable:")).split()[1]
        )
    with suppress(OSError, ValueError):
        pages = min(pages, int(CGROUP.read_text(encoding="ascii")))  # "max" if there is no limit
    return pages


def must_fit(shape: Shape, *, what: str) -> None:
    """Raises UserError if the parameters of an encoder alone exceed the memory, or if it has more
    layers than anybody could intend."""
    if shape.num_hidden_layers > MAX_LAYERS:
        raise UserError(
            f"{what} has {shape.num_hidden_layers:,} layers; at most {MAX_LAYERS:,} are built"
        )
    _compare(
        HELD_BYTES * shape.least_parameters,
        available_bytes(),
        f"{what} has {shape.least_parameters:,} parameters and",
    )


def run_must_fit(
    config: PretrainConfig, shape: Shape, generator: Shape | None, *, rows: int, world: World
) -> None:
    """Raises UserError if a training run of this shape cannot fit. The estimate is a lower bound:
    it counts only what is certainly needed.

    rows: rows of one forward pass of this process. Counted are the parameters with their optimiser
    state, and one hidden state per token and layer for the backward pass.
    """
    must_fit(shape, what="the model of this recipe")
    if generator is not None:
        must_fit(generator, what="the generator of this recipe")
    slots = rows * max(config.data.max_seq_length, *config.data.seq_length_schedule, 0)
    shares = world.size if config.train.fsdp == "full_shard" else 1
    need = (
        TRAINED_BYTES * shape.least_parameters // shares
        + 2 * slots * shape.hidden_size * shape.num_hidden_layers
    )
    room = (
        torch.cuda.get_device_properties(world.device).total_memory
        if world.device.type == "cuda"
        else available_bytes()
    )
    _compare(
        need,
        room,
        (
            f"{shape.least_parameters:,} parameters with their optimiser, and {rows:,} rows of "
            f"{config.data.max_seq_length:,} tokens,"
        ),
    )


def loaded_must_fit(path: str, config: Any) -> None:
    """Raises UserError if a model of the transformers library with this configuration exceeds the
    memory or cannot be built. Nothing is allocated."""
    from transformers import AutoModel

    layers = getattr(config, "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > MAX_LAYERS:
        raise UserError(
            f"{path}: its config.json asks for {layers:,} layers; at most {MAX_LAYERS:,} are built"
        )
    try:
        with torch.device("meta"):
            parameters = sum(p.numel() for p in AutoModel.from_config(config).parameters())
    # Impossible sizes and wrong types of fields raise many kinds of exceptions.
    except Exception as e:
        raise UserError(
            f"{path}: its config.json describes no model that can be built "
            f"({' '.join(str(e).split())[:200]})"
        ) from e
    _compare(
        HELD_BYTES * parameters,
        available_bytes(),
        f"{path}: the model of its config.json has {parameters:,} parameters and",
    )


def _compare(need: int, room: int, sentence: str) -> None:
    if need > room:
        raise UserError(
            f"{sentence} needs at least {size(need)} of memory; {size(room)} are free; choose "
            "smaller numbers"
        )
