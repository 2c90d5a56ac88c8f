"""Several processes as one run: started by torchrun (or anything that sets the same variables),
gloo on CPU, nccl on CUDA. Each holds the whole model and gradients are averaged, or each holds a
share of it (FSDP2).

At world size 1 nothing is sent. All ranks must call the functions in the same order. A process
that waits for another one gives up after `--ddp-timeout`; torchrun ends the others of a dead one.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as td
from torch import Tensor, nn

from ..errors import Unfinished, UserError, need
from ..model.encoder import encoders_of
from ..progress import say
from ..recipe import Train

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class World:
    """The place of this process among the others. device: where it computes."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def say(self, text: str) -> None:
        """Shows a line once, not by every process."""
        if self.is_main:
            say(text)


@contextmanager
def joined(device: torch.device, *, timeout_s: float) -> Iterator[World]:
    """Joins the process group as `start` does, and leaves it at the end. Raises Unfinished if
    another process of the run is lost meanwhile."""
    try:
        yield start(device, timeout_s=timeout_s)
    except RuntimeError as e:  # gloo's errors have no type of their own
        if _size() == 1 or not (
            isinstance(e, td.DistError)
            or any(word in str(e) for word in ("gloo", "peer", "Timed out", "timed out"))
        ):
            raise
        raise Unfinished(
            f"another process of the run ended or did not answer ({_first_line(e)}); the same "
            "command continues from the newest checkpoint"
        ) from e
    finally:
        stop()


def start(device: torch.device, *, timeout_s: float) -> World:
    """Joins the process group that RANK and WORLD_SIZE describe; without them (or alone) there is
    none.

    timeout_s: how long a process waits for the others, at the start and in every collective
    operation. Raises UserError if the variables contradict each other or the group cannot form.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size > 1 and not td.is_initialized():
        try:
            store, prefix = store_of_this_attempt(rank=rank, size=size, timeout_s=timeout_s)
            td.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=td.PrefixStore(prefix, store),
                rank=rank,
                world_size=size,
                device_id=device if device.type == "cuda" else None,
                timeout=timedelta(seconds=timeout_s),
            )
        except (ValueError, RuntimeError) as e:
            raise UserError(
                f"the {size} processes could not find each other ({_first_line(e)}). Start all of "
                "them, as torchrun does"
            ) from e
    return World(rank=rank, size=size, device=device)


def _first_line(e: Exception) -> str:
    return str(e).strip().partition("\n")[0]


def stop() -> None:
    """Leaves the process group."""
    if td.is_initialized():
        td.destroy_process_group()


# ---------------------------------------------------------------------------- sums and agreement


def _size() -> int:
    return td.get_world_size() if td.is_initialized() else 1


def _device() -> torch.device:
    return (
        torch.device("cuda", torch.cuda.current_device())
        if td.get_backend() == "nccl"
        else torch.device("cpu")
    )


def sum_across(tensors: list[Tensor]) -> None:
    """Replaces each tensor by its sum over the ranks, all in one all-reduce of float64 (counts
    beyond 2^24 stay exact)."""
    if _size() == 1 or not tensors:
        return
    flat = torch.cat([t.detach().reshape(-1).to(_device(), torch.float64) for t in tensors])
    td.all_reduce(flat)
    with torch.no_grad():
        for t, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(total.view_as(t))


def any_across(flag: bool) -> bool:
    """Whether `flag` is true on any rank; the same answer everywhere."""
    if _size() == 1:
        return flag
    answer = torch.tensor([int(flag)], device=_device())
    td.all_reduce(answer, op=td.ReduceOp.MAX)
    return bool(answer.item())


def same_across(text: str, *, what: str) -> None:
    """Raises UserError on every rank if `text` is not the same on all; `what` names it in the
    message."""
    if _size() == 1:
        return
    mine = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
    first = torch.tensor(mine, device=_device())
    td.broadcast(first, src=0)
    differs = any_across(int(first) != mine)
    need(not differs, f"{what} differ between the processes; all must be given the same")


@contextmanager
def together() -> Iterator[None]:
    """An error of the user or of the machine inside on one rank ends all ranks, which would
    otherwise wait for it for ever: with its message on that rank, and silently with the same exit
    status on the others."""
    error = None
    try:
        yield
    except (UserError, OSError) as e:
        error = e
    failed = any_across(error is not None)
    if error:
        raise error
    if failed:
        raise SystemExit(2)


# ---------------------------------------------------------------------------- all of it in each


def averaging(module: nn.Module) -> nn.Module:
    """A module whose gradients are averaged over the processes while the backward pass still runs.

    Three numbers or more have sums that depend on their order, and so on the place of a gradient
    among those that are sent together. torch arranges them anew after the first backward pass,
    unless it looks for unused parameters in each: then every update is averaged in the same way,
    and a run that goes on from a checkpoint does what it would have done.
    """
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(_WithUnused(module), find_unused_parameters=True)


class _WithUnused(nn.Module):
    """A module with a parameter that it does not use: without one, torch warns on every process
    that there is nothing to be looked for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        at = next(module.parameters())
        self.unused = nn.Parameter(torch.zeros((), dtype=at.dtype, device=at.device))

    def forward(self, *given: Any) -> Any:
        return self.module(*given)


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Backward passes inside leave their gradients on this process, to be averaged together with
    those of the next pass outside.

    This does not apply to a sharded module: until its gradients are sent they are unsharded, and
    would take the memory that sharding is meant to save."""
    from torch.nn.parallel import DistributedDataParallel

    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


# ---------------------------------------------------------------------------- a share in each


def place(objective: M, settings: Train, world: World) -> M:
    """Moves the objective to the device of this process: only its share if the recipe asks for
    sharding and there are other processes, else the whole."""
    if settings.fsdp == "full_shard" and world.size > 1:
        shard(objective, world, bf16=bool(settings.bf16))
        return objective
    return objective.to(world.device)


@torch.no_grad()
def shard(objective: nn.Module, world: World, *, bf16: bool) -> None:
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
    matrices = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    for block in dict.fromkeys(block for one in encoders_of(objective) for block in one.blocks):
        fully_shard(
            [part for part in block.modules() if isinstance(part, nn.Linear)],
            mesh=mesh,
            mp_policy=matrices,
        )
    fully_shard(objective, mesh=mesh)


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


def placed_as(p: Tensor, t: Tensor) -> Tensor:
    """A copy of the tensor `t`, which is the same on all ranks, on the device of `p`; if `p` is
    sharded, only the rows that `p` has on this rank. It is in memory of its own, for `t` may be a
    part of a checkpoint's file, which is to go when newer ones come."""
    if not is_sharded(p):
        return t.to(p.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(t, p.device_mesh, p.placements, src_data_rank=None).clone()


# ------------------------------------------------------------------ restarts under torchrun
#
# How the processes of one attempt find each other after a restart. The agent of torchrun keeps one
# store for all attempts. It still contains what the processes of a failed attempt have left there:
# addresses where nobody listens any more (pytorch issue 135712). Counting attempts does not help,
# because a host that comes back starts counting again. So the processes first agree on a name that
# contains a random number from each of them, and then meet under that name.


POLL_S = 0.05
CONNECT_S = 1.0  # for one attempt to connect, in which no signal is heard
SAY_S = 10.0  # before the first message about a wait; then after twice the time
MOST_S = 300.0  # between two messages


def store_of_this_attempt(*, rank: int, size: int, timeout_s: float) -> tuple[td.TCPStore, str]:
    """A store, and a prefix for its keys that only the processes of this attempt share. It is
    torchrun's store if torchrun keeps one; otherwise rank 0 opens one at MASTER_ADDR and
    MASTER_PORT.

    Nothing here waits inside torch, where no signal is heard; instead torch is asked again and
    again. Raises ValueError if the two variables are missing, and RuntimeError, naming the missing
    processes, if not all have come after `timeout_s`.
    """
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise ValueError("MASTER_ADDR and MASTER_PORT say where rank 0 is, and are not both set")
    began = time.monotonic()
    first = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not first:
        _wait_for_listener(host, int(port), timeout_s=timeout_s)
    store = td.TCPStore(
        host,
        int(port),
        is_master=first,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
    )
    left_s = max(0.0, timeout_s - (time.monotonic() - began))
    return store, f"electrify/{agree(store, rank=rank, size=size, timeout_s=left_s)}"


class _Wait:
    """A wait for other processes that has an end."""

    def __init__(self, timeout_s: float) -> None:
        self.began = time.monotonic()
        self.timeout_s = timeout_s
        self.next_s = SAY_S

    def a_moment(self, whom: str, missing: str) -> None:
        """Waits a little, and says now and then for whom. Raises RuntimeError, which says who is
        missing, when the time is over."""
        waited = time.monotonic() - self.began
        if waited >= self.timeout_s:
            raise RuntimeError(missing)
        if waited >= self.next_s:
            self.next_s = min(2 * self.next_s, self.next_s + MOST_S)
            say(f"waiting for {whom}, {waited:.0f} s")
        time.sleep(POLL_S)


def _wait_for_listener(host: str, port: int, *, timeout_s: float) -> None:
    """Returns when somebody listens there. torch's own client would print a stack trace every
    second, and hear no signal."""
    wait, first = _Wait(timeout_s), f"{host}:{port}"
    while True:
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError as e:
            missing = f"nobody answers at {first} after {timeout_s:.0f} s, {e.strerror or e}"
            wait.a_moment(f"rank 0 at {first}", f"{missing}: rank 0 is missing")
        else:
            return


def agree(store: td.Store, *, rank: int, size: int, timeout_s: float) -> str:
    """A new name, the same on all ranks, whatever earlier attempts have left in the store. Raises
    RuntimeError after `timeout_s`.

    Every rank writes its random number. Rank 0 publishes a list of all of them. A rank that finds
    its own number in the list confirms it. When all ranks have confirmed the same list, the name is
    agreed.
    """
    mine, wait = uuid.uuid4().hex, _Wait(timeout_s)
    store.set(f"electrify/here/{rank}", mine)
    while True:
        if rank == 0:
            present = [mine, *(_get(store, f"electrify/here/{r}") for r in range(1, size))]
            store.set("electrify/reading", " ".join(present))
            name = _name(present)
            missing = [r for r in range(1, size) if _get(store, f"electrify/nod/{r}") != name]
            if not missing:
                store.set("electrify/held", name)
                return name
        else:
            present = _get(store, "electrify/reading").split(" ")
            missing = [0]
            if len(present) == size and present[rank] == mine:
                missing = []  # rank 0 has seen this process, and knows who else is missing
                store.set(f"electrify/nod/{rank}", _name(present))
                if _get(store, "electrify/held") == _name(present):
                    return _name(present)
        whom = f"rank {', '.join(map(str, missing))}" if missing else "another rank"
        all_of_them = f"not all {size} processes came within {timeout_s:.0f} s"
        wait.a_moment(f"{whom} of {size} processes", f"{all_of_them}: {whom} is missing")


def _get(store: td.Store, key: str) -> str:
    """The value of the key, or an empty one if there is none."""
    return store.get(key).decode() if store.check([key]) else ""


def _name(present: list[str]) -> str:
    return hashlib.sha256(" ".join(present).encode()).hexdigest()
