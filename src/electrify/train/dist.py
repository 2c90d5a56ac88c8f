"""Several processes as one run: started by torchrun (or anything that sets the same variables),
gloo on CPU, nccl on CUDA.

Every function does nothing at world size 1. All ranks must call them in the same order.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as td
from torch import Tensor, nn

from ..errors import Unfinished, UserError
from .rendezvous import agent_keeps_store, store_of_this_attempt
from .watch import Watch, connection

# How long a process that has lost another one tries to find out which it was. (torchrun reports
# that itself, and ends the others meanwhile.)
ALONE_S = 9.0
MAX_PROCESSES = 1 << 20
_watches: list[Watch] = []  # the thread that watches the others, while there is a group


@dataclass(frozen=True)
class World:
    """The place of this process among the others. device: where it computes."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0


def start(device: torch.device, *, timeout_s: float) -> World:
    """Joins the process group that RANK, WORLD_SIZE and LOCAL_RANK describe; without them (or
    alone) there is none.

    A CUDA device becomes that of LOCAL_RANK, unless this process is alone and it has a number.
    timeout_s: how long a process waits for the others, at the start and in every collective
    operation. Raises UserError if the variables contradict each other or the group cannot form.
    """
    rank, size, local_rank = _from_environment()
    if device.type == "cuda":
        device = _own_gpu(device if size == 1 else torch.device("cuda"), local_rank)
    if size > 1 and not td.is_initialized():
        try:
            _form_group(device, rank=rank, size=size, timeout_s=timeout_s)
        except (ValueError, RuntimeError) as e:
            stop()
            reason = str(e).strip().partition("\n")[0]
            raise UserError(
                f"the {size} processes could not find each other ({reason}); start all of them, as "
                "torchrun does"
            ) from e
    return World(rank=rank, size=size, device=device)


def _own_gpu(device: torch.device, local_rank: int) -> torch.device:
    """The GPU of this process, which becomes its current device. Raises UserError if there is
    none."""
    device = torch.device("cuda", local_rank if device.index is None else device.index)
    if device.index >= torch.cuda.device_count():
        raise UserError(
            f"process {local_rank} of this machine has no GPU of its own: there are "
            f"{torch.cuda.device_count()}; start fewer processes"
        )
    torch.cuda.set_device(device)
    return device


def _form_group(device: torch.device, *, rank: int, size: int, timeout_s: float) -> None:
    """Makes the process group and starts watching it. Raises ValueError or RuntimeError if the
    others do not arrive."""
    store, prefix = store_of_this_attempt(rank=rank, size=size, timeout_s=timeout_s)
    shared = td.PrefixStore(prefix, store)
    backend, device_id = ("nccl", device) if device.type == "cuda" else ("gloo", None)
    own_line = td.PrefixStore(prefix, connection(store))
    keeper = None if agent_keeps_store() else 0
    _watches.append(Watch(own_line, rank=rank, size=size, keeper=keeper))
    with _watches[-1].forming():
        td.init_process_group(
            backend,
            store=shared,
            rank=rank,
            world_size=size,
            device_id=device_id,
            timeout=timedelta(seconds=timeout_s),
        )


def _from_environment() -> tuple[int, int, int]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    given = [os.environ.get(name) for name in names]
    if not any(given[:2]):
        return 0, 1, 0
    try:
        rank, size, local_rank = (int(value or "") for value in given)
    except ValueError as e:
        raise UserError(
            f"{', '.join(f'{n}={v}' for n, v in zip(names, given, strict=True))}: set all three to "
            "numbers, as torchrun does, or none"
        ) from e
    if size > MAX_PROCESSES:
        raise UserError(
            f"WORLD_SIZE={str(size)[:20]} processes are more than {MAX_PROCESSES:,}; start them "
            "with torchrun"
        )
    if not 0 <= rank < size or local_rank < 0:
        raise UserError(
            f"RANK={rank}, WORLD_SIZE={size}, LOCAL_RANK={local_rank} contradict each other; start "
            "the processes with torchrun"
        )
    return rank, size, local_rank


@contextmanager
def companions() -> Iterator[None]:
    """Raises Unfinished if another process of the run is lost during the work inside."""
    try:
        yield
    except RuntimeError as e:  # gloo's errors have no type of their own
        if _size() == 1 or not (
            isinstance(e, td.DistError)
            or any(word in str(e) for word in ("gloo", "peer", "Timed out", "timed out"))
        ):
            raise
        reason = str(e).strip().partition("\n")[0]
        missing = "".join(
            watch.named(wait_s=0.0 if "TORCHELASTIC_RUN_ID" in os.environ else ALONE_S)
            for watch in _watches
        )
        raise Unfinished(
            f"another process of the run ended or did not answer ({missing or reason}); the same "
            "command continues from the newest checkpoint"
        ) from e


def stop() -> None:
    """Leaves the process group."""
    while _watches:
        _watches.pop().close()
    if td.is_initialized():
        td.destroy_process_group()


def _size() -> int:
    return td.get_world_size() if td.is_initialized() else 1


def _device() -> torch.device:
    return (
        torch.device("cuda", torch.cuda.current_device())
        if td.get_backend() == "nccl"
        else torch.device("cpu")
    )


def _all_reduce(tensor: Tensor, op: td.ReduceOp.RedOpType = td.ReduceOp.SUM) -> None:
    with _exchange():
        td.all_reduce(tensor, op=op)


def _exchange() -> AbstractContextManager[None]:
    """Marks that this process now waits for the others, for the thread that watches them."""
    return _watches[-1].exchange() if _watches else nullcontext()


def sum_across(tensors: list[Tensor]) -> None:
    """Replaces each tensor by its sum over the ranks, all in one all-reduce of float64 (counts
    beyond 2^24 stay exact)."""
    if _size() == 1 or not tensors:
        return
    flat = torch.cat([t.detach().reshape(-1).to(_device(), torch.float64) for t in tensors])
    _all_reduce(flat)
    with torch.no_grad():
        for t, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(total.view_as(t))


def any_across(flag: bool) -> bool:
    """Whether `flag` is true on any rank; the same answer everywhere."""
    if _size() == 1:
        return flag
    answer = torch.tensor([int(flag)], device=_device())
    _all_reduce(answer, op=td.ReduceOp.MAX)
    return bool(answer.item())


def same_across(text: str, *, what: str) -> None:
    """Raises UserError on every rank if `text` is not the same on all; `what` names it in the
    message."""
    if _size() == 1:
        return
    mine = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
    all_ranks = torch.zeros(_size(), dtype=torch.long, device=_device())
    all_ranks[td.get_rank()] = mine
    _all_reduce(all_ranks)
    others = [
        rank for rank, digest in enumerate(all_ranks.tolist()) if digest != all_ranks[0].item()
    ]
    if others:
        raise UserError(
            f"{what} on rank {', '.join(map(str, others))} is not that of rank 0; every process "
            "must be given the same"
        )


@contextmanager
def together() -> Iterator[None]:
    """A UserError inside on one rank ends all ranks, which would otherwise wait for it for ever:
    with its message on that rank, and silently with the same exit status on the others."""
    error = None
    try:
        yield
    except UserError as e:
        error = e
    failed = any_across(error is not None)
    if error:
        raise error
    if failed:
        raise SystemExit(2)


def barrier() -> None:
    """Waits until every rank is here."""
    if _size() > 1:
        with _exchange():
            td.barrier()


def averaging(module: nn.Module, dtype: str) -> nn.Module:
    """A module whose gradients are averaged over the processes while the backward pass still runs.
    They are sent as `dtype`, float32 or bfloat16.

    Three numbers or more have sums that depend on their order, and so on the place of a gradient
    among those that are sent together. torch arranges them anew after the first backward pass,
    unless it looks for unused parameters in each: then every update is averaged in the same way,
    and a run that goes on from a checkpoint does what it would have done.
    """
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(_WithUnused(module), find_unused_parameters=True)
    if dtype == "bfloat16":
        # A lambda, because torch inspects the hook's annotations, and they must not be strings.
        wrapped.register_comm_hook(None, lambda _, bucket: _in_bfloat16(bucket))
    return wrapped


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


def at_home(module: nn.Module) -> AbstractContextManager[None]:
    """Backward passes inside leave their gradients on this process, to be averaged together with
    those of the next pass outside.

    This does not apply to a sharded module: until its gradients are sent they are unsharded, and
    would take the memory that sharding is meant to save."""
    from torch.nn.parallel import DistributedDataParallel

    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def _in_bfloat16(bucket: td.GradBucket) -> torch.futures.Future[Tensor]:
    """Sends half as many bytes. torch's own hook for this works with NCCL only."""
    sent = (bucket.buffer() / td.get_world_size()).to(torch.bfloat16)
    waiting = td.all_reduce(sent, async_op=True)
    assert waiting is not None
    return waiting.get_future().then(lambda _: bucket.buffer().copy_(sent))
