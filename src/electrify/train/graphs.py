"""Whole updates as CUDA graphs: the host starts one graph, not a thousand kernels.

A graph reads and writes the same memory each time, so the batch is copied into it, and everything
that an update changes stays where it is (`Run.compute`). There is one for each shape of a batch.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..corruption.choosing import Plan
from ..progress import say
from ..tokens import Tokens, mapped

Batch = list[tuple[Tokens, Plan]]
"""This rank's share of one update: micro-batches, each with its plan."""
WARM = 3  # updates of a shape before its capture: they compile, and make what stays


@dataclass(frozen=True)
class Done:
    """What an update leaves for the log. numbers_N2: sums and counts of the named terms. verdict:
    the guard's figures."""

    names: list[str]
    numbers_N2: Tensor
    verdict: Tensor


def on_device(batch: Batch, device: torch.device) -> Batch:
    return mapped(batch, lambda t: t.to(device, non_blocking=True))


def tensors_of(batch: Batch) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(batch, found.append)
    return found


class Graphs:
    """The graphs of a run. compute: what an update does on the device."""

    def __init__(self, compute: Callable[[Batch], Done], device: torch.device) -> None:
        self.compute = compute
        self.device = device
        self.failed = False
        """Whether a capture has failed, after which nothing is captured any more."""
        self.seen: Counter[str] = Counter()
        self.drop()

    def drop(self) -> None:
        """Gives the memory of the graphs back; each is captured again when it is needed."""
        if self.seen and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # one may be running
        self.captured: dict[str, tuple[list[Tensor], Callable[[], Done]]] = {}
        # All graphs share one memory, for nothing in it outlives an update.
        self.pool: Any = None

    def forget(self) -> None:
        """Called when something that the graphs change lies in other memory now."""
        self.drop()
        self.seen.clear()

    def replayed(self, batch: Batch) -> Done | None:
        """Runs the update as a graph. None, and nothing is done, if there is none for this shape
        yet, or if its capture fails."""
        shape = repr(mapped(batch, lambda t: (t.dtype, *t.shape)))
        if shape not in self.captured:
            self.seen[shape] += 1
            if self.seen[shape] <= WARM:
                if self.captured:
                    self.drop()  # an ordinary update needs as much memory
                return None
            own: Batch = mapped(batch, lambda t: t.to(self.device, copy=True))
            try:
                self.captured[shape] = tensors_of(own), self.record(lambda: self.compute(own))
            except RuntimeError as e:
                self.failed = True
                say(
                    "warning: an update could not be captured as a CUDA graph "
                    f"({str(e).strip().partition(chr(10))[0]}). The run goes on, with the same "
                    "numbers, and starts each kernel by itself"
                )
                return None
        tensors, replay = self.captured[shape]
        for t, given in zip(tensors, tensors_of(batch), strict=True):
            t.copy_(given, non_blocking=True)
        done = replay()
        return replace(done, verdict=done.verdict.clone())

    def record(self, work: Callable[[], Done]) -> Callable[[], Done]:
        """Captures the work, which is not done yet. Returns a function that does it."""
        graph = torch.cuda.CUDAGraph()
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        # The loader's thread may pin memory meanwhile, which the strictest mode forbids.
        how: dict[str, Any] = {"pool": self.pool, "capture_error_mode": "thread_local"}
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        gc.collect()  # what is left of an earlier backward pass would bring its stream along
        try:
            # A capture that fails leaves its stream the current one, and the generator in a state
            # that belongs to it.
            with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, **how):
                done = work()
        except RuntimeError:
            generator.graphsafe_set_state(generator.clone_state())
            raise

        def replay() -> Done:
            graph.replay()
            return done

        return replay
