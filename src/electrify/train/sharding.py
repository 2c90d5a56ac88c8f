"""A model sharded over the processes (fully sharded data parallelism, torch's FSDP2), for models
that do not fit on one device. Each process holds some rows of every parameter, of its gradient and
of its optimiser state, as DTensors.

The matrices of a block are gathered only while it runs, forward and backward. Everything else is in
one group that is gathered during a whole pass, because embeddings and heads are shared between
networks and read outside their own modules, and norms stay in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard, TypeVar

import torch
import torch.distributed as td
from torch import Tensor, nn

from ..config.pretrain import TrainConfig
from ..model.encoder import encoders_of
from .dist import World

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

M = TypeVar("M", bound=nn.Module)


def place(objective: M, config: TrainConfig, world: World) -> M:
    """Moves the objective to the device of this process: only its share if the recipe asks for
    sharding and there are other processes, else the whole."""
    if config.fsdp == "full_shard" and world.size > 1:
        shard(objective, world, bf16=bool(config.bf16), reduce_dtype=config.reduce_dtype)
        return objective
    return objective.to(world.device)


@torch.no_grad()
def shard(objective: nn.Module, world: World, *, bf16: bool, reduce_dtype: str) -> None:
    """Shards the values of rank 0. The objective may be on the CPU: the device never holds more
    than its share and one group.

    With bf16 the matrices are gathered in bfloat16, to which autocast would convert them anyway.
    This halves the traffic, and no second copy outlives the block.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for t in (*objective.parameters(), *objective.buffers()):
        first = t.detach().to(world.device)
        td.broadcast(first, src=0)
        t.copy_(first)
    mesh = init_device_mesh(world.device.type, (world.size,))
    sent = torch.bfloat16 if reduce_dtype == "bfloat16" else torch.float32
    matrices = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None, reduce_dtype=sent, cast_forward_inputs=False
    )
    for block in dict.fromkeys(block for one in encoders_of(objective) for block in one.blocks):
        fully_shard(
            [part for part in block.modules() if isinstance(part, nn.Linear)],
            mesh=mesh,
            mp_policy=matrices,
        )
    fully_shard(objective, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=sent))


def is_sharded(t: Tensor) -> TypeGuard[DTensor]:
    # isinstance would have to import DTensor, for which an unsharded run need not wait.
    return hasattr(t, "full_tensor")


def whole(t: Tensor) -> Tensor:
    """A sharded tensor with the rows of all processes. Called on all ranks."""
    return t.full_tensor() if is_sharded(t) else t


def gathered(named: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """The tensors without sharding; those that were sharded are put on the CPU one after the other,
    so that no device holds two. Called on all ranks with the same names in the same order; a rank
    that does not `keep` them gets none."""
    found: dict[str, Tensor] = {}
    for name, t in named.items():
        one = whole(t)
        if keep:
            found[name] = one.cpu() if is_sharded(t) else one
    return found


def like(p: Tensor, t: Tensor) -> Tensor:
    """A copy of the tensor `t`, which is the same on all ranks, on the device of `p`; if `p` is
    sharded, only the rows that `p` has on this rank. It is in memory of its own, for `t` may be a
    part of a checkpoint's file, which is to go when newer ones come."""
    if not is_sharded(p):
        return t.to(p.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(t, p.device_mesh, p.placements, src_data_rank=None).clone()
