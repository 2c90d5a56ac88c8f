"""How many threads compute: measured in a second at the start of a run, recorded, and kept when the
run continues.

The order of sums depends on the number of threads, so a run changes it only if the user says so.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..cores import cores, thread_count

# Longer than a scheduler's time slice; otherwise the first slice would decide the result.
TURN_S = 0.08
# At most this many rounds, and only as many as begin within BUDGET_S: on a busy machine one pass
# may take half a second.
ROUNDS = 5
BUDGET_S = 1.0
GAIN = 1.05  # the least gain of one more thread; with less, the core is left to others
FLOPS = 5e9  # of one pass, which takes 10 to 25 ms of a core
# As in the tiny recipes: the tokens of a row, and the width of an attention head.
ROW = 64
HEAD = 32
USERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # torchrun sets the first


@dataclass(frozen=True)
class Threads:
    """A number of threads and who chose it. own: chosen by torch, by the environment, or earlier in
    this process."""

    number: int
    chosen_by: Literal["user", "own", "earlier", "measurement"]
    asked: int | None = None
    """The number that the user asked for, if it exceeds the number of cores."""
    speeds: dict[int, float] = field(default_factory=dict)
    """For each number of threads, the speed relative to one thread; empty if nothing was
    measured."""

    def facts(self) -> dict[str, Any]:
        """The same for run.json."""
        return {
            "number": self.number,
            "chosen_by": self.chosen_by,
            "speeds": {str(n): round(s, 3) for n, s in self.speeds.items()},
        }

    def text(self) -> str:
        """`computing with 1 thread (measured: 2 threads 0.87 times as fast as one)`; empty if there
        is nothing to say."""
        if self.asked:
            return (
                f"warning: threads {self.asked} is more than the cores that this process may use: "
                f"computing with {self.number}"
            )
        others = ", ".join(f"{n} threads {s:.2f}" for n, s in self.speeds.items() if n > 1)
        return others and (
            f"computing with {self.number} thread{'s' * (self.number > 1)} (measured: {others} "
            "times as fast as one)"
        )


def choose(
    given: str,
    *,
    device: torch.device,
    width: int,
    tokens: int,
    bf16: bool,
    earlier: object = None,
    processes: int = 1,
) -> Threads:
    """Chooses the threads of a run. given: --threads; earlier: the number that a continued run has
    used so far, if any.

    In this order: what the user asked for; what the environment says (OMP_NUM_THREADS), or torch's
    own number on a GPU or with several processes; what the run has used so far; a measurement with
    at most torch's own number. Raises UserError if `given` is neither auto nor a number.
    """
    asked = thread_count(given)
    own = torch.get_num_threads()
    if asked:
        return Threads(min(asked, cores()), "user", asked if asked > cores() else None)
    if device.type != "cpu" or processes > 1 or any(os.environ.get(name) for name in USERS):
        return Threads(own, "own")
    if isinstance(earlier, int) and 1 <= earlier <= cores():
        return Threads(earlier, "earlier")
    if own == 1:
        return Threads(own, "own")
    speeds = measured(candidates(own), width=width, tokens=tokens, bf16=bf16)
    return Threads(fewest_fast(speeds), "measurement", speeds=speeds)


@contextmanager
def computing_with(threads: Threads) -> Iterator[Threads]:
    """A context in which torch computes with this many threads; afterwards the number is as
    before."""
    before = torch.get_num_threads()
    if threads.number == before:
        yield threads
        return
    torch.set_num_threads(threads.number)
    try:
        yield threads
    finally:
        torch.set_num_threads(before)


def candidates(most: int) -> list[int]:
    """The numbers to measure: 1, 2, 4, ... and `most`."""
    return sorted({2**k for k in range(most.bit_length()) if 2**k <= most} | {most})


def fewest_fast(speeds: dict[int, float]) -> int:
    """The fastest number of threads such that each step up to it gains at least GAIN."""
    best = 1
    for number, speed in sorted(speeds.items()):
        if speed > GAIN * speeds[best]:
            best = number
    return best


def measured(numbers: list[int], *, width: int, tokens: int, bf16: bool) -> dict[int, float]:
    """The speed of each number of threads relative to one thread, for passes through a layer of
    this width. The numbers are measured in turns; the result is the median of paired rounds.

    tokens: per pass, fewer if the layer is wide. torch's number of threads and its random generator
    are left as they were.
    """
    before = torch.get_num_threads()
    layer = Layer(width, max(256, min(tokens, int(FLOPS / (72 * width**2)))), bf16=bf16)
    seconds: dict[int, list[float]] = {number: [] for number in numbers}
    began = time.perf_counter()
    try:
        for k in range(ROUNDS):
            if k and time.perf_counter() - began > BUDGET_S:
                break
            for number in numbers[:: 1 if k % 2 == 0 else -1]:
                torch.set_num_threads(number)
                seconds[number].append(layer.seconds(TURN_S))
    finally:
        torch.set_num_threads(before)
    return {
        n: statistics.median(one / s for one, s in zip(seconds[1], seconds[n], strict=True))
        for n in numbers
    }


class Layer:
    """A Transformer layer with random weights, forward and backward: it has the mix of matrix
    products and small operations of a training step."""

    def __init__(self, width: int, tokens: int, *, bf16: bool) -> None:
        rng = torch.Generator().manual_seed(0)
        self.bf16 = bf16
        self.heads = max(1, width // HEAD)
        width -= width % self.heads
        self.tokens = -(-tokens // ROW) * ROW
        shapes = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
        self.weights = [
            torch.randn(s, generator=rng).mul_(1 / math.sqrt(width)).requires_grad_()
            for s in shapes
        ]
        self.x_TD = torch.randn(self.tokens, width, generator=rng)

    def __call__(self) -> None:
        """One pass; the gradients are dropped."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.forward().square().mean()
        torch.autograd.grad(loss, self.weights)

    def forward(self) -> Tensor:
        """[T, D]."""
        qkv, out, up, down = self.weights
        shape = self.x_TD.shape[1:]
        split = (
            F.linear(self.x_TD, qkv)
            .view(-1, ROW, 3, self.heads, shape[0] // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        q_RHLW, k_RHLW, v_RHLW = split.unbind(0)
        weights_RHLL = (q_RHLW @ k_RHLW.transpose(-1, -2)).float().softmax(-1)
        mixed_TD = (weights_RHLL.to(v_RHLW.dtype) @ v_RHLW).transpose(1, 2).reshape(self.tokens, -1)
        x_TD = F.layer_norm(self.x_TD + F.linear(mixed_TD, out), shape)
        return F.layer_norm(x_TD + F.linear(F.gelu(F.linear(x_TD, up)), down), shape)

    def seconds(self, turn: float) -> float:
        """The time of one pass, averaged over a turn of this many seconds. The first pass starts
        the threads and is not counted."""
        self()
        began = time.perf_counter()
        passes = 0
        while True:
            self()
            passes += 1
            now = time.perf_counter()
            if now - began >= turn:
                return (now - began) / passes
