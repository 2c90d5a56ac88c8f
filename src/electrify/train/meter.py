"""What a run has used and how fast it is: seconds, joules, FLOPs, tokens a second, and the share of the machine's peak (MFU)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .device import EnergyMeter, peak_memory_bytes


class Meter:
    """Counts over all legs of a run. flops: those of the run before an update; peak: FLOP/s that all devices together can do at most."""

    def __init__(self, device: torch.device, *, flops: Callable[[int], float], peak: float) -> None:
        self.device, self.flops, self.peak = device, flops, peak
        self.energy = EnergyMeter(device)
        self.seconds_before, self.joules_before = 0.0, 0.0  # of earlier legs
        self.start(step=0, tokens=0)

    def start(self, *, step: int, tokens: int) -> None:
        """The leg begins now, after that many updates and tokens."""
        self._began = self._line_began = time.monotonic()
        self._line = step, tokens
        self._aside = 0.0

    def seconds(self) -> float:
        """Wall time of the run."""
        return self.seconds_before + time.monotonic() - self._began

    def joules(self) -> float | None:
        """Energy of the run; None where nothing measures it."""
        here = self.energy.joules()
        return None if here is None else self.joules_before + here

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time in here (a validation, a checkpoint) is part of the run and not of its rate."""
        began = time.monotonic()
        yield
        self._aside += time.monotonic() - began

    def went_back(self, *, step: int, tokens: int) -> None:
        """The run is at an earlier update again; the time counts."""
        self._line, self._line_began, self._aside = (step, tokens), time.monotonic(), 0.0

    def line(self, *, step: int, tokens: int) -> dict[str, Any]:
        """The fields of a line of the log. Rates are those of the updates since the last one."""
        now, (step_before, tokens_before) = time.monotonic(), self._line
        worked = max(now - self._line_began - self._aside, 1e-9)
        self._line, self._line_began, self._aside = (step, tokens), now, 0.0
        rate = (self.flops(step) - self.flops(step_before)) / worked
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
    scale, unit = next((s, u) for s, u in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (0, "M")) if flops >= s)
    return f"{line['tokens_per_s'] / 1e3:.1f} k tokens/s, {flops / (scale or 1e6):.3g} {unit}FLOP/s ({100 * line['mfu']:.0f} % of peak)"
