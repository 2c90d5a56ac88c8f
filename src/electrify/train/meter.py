"""What a run has used and how fast it is: seconds, joules, FLOPs, tokens per second, and the share
of the machine's peak rate (MFU)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..cores import OWN_CHOICES, SPINS
from .device import EnergyMeter, peak_memory_bytes

FIRST_S = 60.0  # seconds of work at the start that give the reference rate
WINDOW_S = 30.0  # seconds of work that are compared with it
# One busy neighbour takes half of a core. If the rate falls by more than half, the threads are not
# sharing cores but waiting.
SLOW = 0.5


class Pace:
    """Notices when a process becomes much slower than in its first minute, and reports it once."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = (
            None  # tokens and FLOPs per second in the first minute
        )
        self._seconds = self._tokens = self._flops = 0.0
        self._slow: tuple[float, float] | None = None
        self._told = False

    def add(self, *, seconds: float, tokens: float, flops: float) -> None:
        """Adds work that took this many seconds. Log lines are joined until they are long enough to
        judge."""
        self._seconds += seconds
        self._tokens += tokens
        self._flops += flops
        if self._seconds < (FIRST_S if self._first is None else WINDOW_S):
            return
        tokens_per_s = self._tokens / self._seconds
        flops_per_s = self._flops / self._seconds
        self._seconds = self._tokens = self._flops = 0.0
        if self._first is None:
            self._first = tokens_per_s, flops_per_s
        # Both rates must have fallen: longer rows give fewer tokens per second although they do as
        # much work, and with shorter rows it is the other way round.
        elif (
            not self._told
            and tokens_per_s < SLOW * self._first[0]
            and flops_per_s < SLOW * self._first[1]
        ):
            self._slow = self._first[0], tokens_per_s

    def news(self) -> tuple[float, float] | None:
        """The tokens per second at first and now, if the rate has fallen and this was not reported
        yet."""
        slow = self._slow
        self._slow = None
        self._told = self._told or slow is not None
        return slow


def slow_text(first: float, now: float, *, device: str, threads: int) -> str:
    """The message about a rate that fell. threads: the number with which the run computes."""
    text = (
        f"the rate fell from {first / 1e3:.1f} k to {now / 1e3:.1f} k tokens/s: another process "
        "may be using the "
    )
    if device != "cpu":
        return text + "device"
    advice = (
        "; --threads 1 may be faster (stop the run, and repeat its command with that)"
        if threads > 1
        else ""
    )
    # OpenMP's threads do not have our setting if torch was loaded before electrify.
    told = any(name in os.environ for name in OWN_CHOICES)
    return (
        text
        + "cores"
        + advice
        + f"; so may GOMP_SPINCOUNT={SPINS}, set before torch is loaded"
        * (threads > 1 and not told)
    )


class Meter:
    """Counts over all legs of a run (a leg is one start of the command). flops: gives the FLOPs of
    the run before an update; peak: the most FLOP/s that all devices together can do; alone: whether
    this process is the whole run, so that its device's energy is that of the run."""

    def __init__(
        self,
        device: torch.device,
        *,
        flops: Callable[[int], float],
        peak: float,
        alone: bool = True,
    ) -> None:
        self.device = device
        self.flops = flops
        self.peak = peak
        self.energy = EnergyMeter(device) if alone else None
        self.pace = Pace()
        self.seconds_before = 0.0  # in earlier legs
        self.joules_before: float | None = 0.0
        self.start(step=0, tokens=0)

    def start(self, *, step: int, tokens: int) -> None:
        """Begins the leg now, after that many updates and tokens."""
        self._began = self._line_began = time.monotonic()
        self._line = step, tokens
        self._aside = 0.0

    def seconds(self) -> float:
        """Wall time of the run."""
        return self.seconds_before + time.monotonic() - self._began

    def joules(self) -> float | None:
        """Energy of the run; None if nothing measures it, or measured an earlier leg."""
        here = self.energy and self.energy.joules()
        before = self.joules_before
        return None if here is None or before is None else before + here

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time spent inside (a validation, a checkpoint) counts for the run but not for its
        rate."""
        began = time.monotonic()
        yield
        self._aside += time.monotonic() - began

    def went_back(self, *, step: int, tokens: int) -> None:
        """The run has gone back to an earlier update; the time it used still counts."""
        self._line = (step, tokens)
        self._line_began = time.monotonic()
        self._aside = 0.0

    def line(self, *, step: int, tokens: int) -> dict[str, Any]:
        """The fields of a log line. Rates are those of the updates since the last line."""
        now = time.monotonic()
        step_before, tokens_before = self._line
        worked = max(now - self._line_began - self._aside, 1e-9)
        self._line = (step, tokens)
        self._line_began = now
        self._aside = 0.0
        rate = (self.flops(step) - self.flops(step_before)) / worked
        self.pace.add(seconds=worked, tokens=tokens - tokens_before, flops=rate * worked)
        return {
            "flops": self.flops(step),
            "seconds": self.seconds(),
            "tokens_per_s": (tokens - tokens_before) / worked,
            "flops_per_s": rate,
            "mfu": rate / self.peak,
            "peak_memory_bytes": peak_memory_bytes(self.device),
            "joules": self.joules(),
        }


def shown_rate(line: dict[str, Any]) -> str:
    """`20.6 k tokens/s, 155 GFLOP/s (34 % of peak)`."""
    flops = line["flops_per_s"]
    scale, unit = next(
        (s, u) for s, u in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (0, "M")) if flops >= s
    )
    return (
        f"{line['tokens_per_s'] / 1e3:.1f} k tokens/s, {flops / (scale or 1e6):.3g} {unit}FLOP/s "
        f"({100 * line['mfu']:.0f} % of peak)"
    )
