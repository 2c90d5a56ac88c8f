"""How fast a run is: tokens and FLOPs per second, and their share of the machine's peak rate (MFU),
which is that of plain matrix products."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from ..files import write
from .machine import device_name, peak_memory_bytes


class Meter:
    """Counts over all legs of a run (a leg is one start of the command). flops: gives the FLOPs of
    the run before an update."""

    def __init__(self, device: torch.device, *, flops: Callable[[int], float]) -> None:
        self.device = device
        self.flops = flops
        self.seconds_before = 0.0  # in earlier legs
        self.start(step=0, tokens=0)

    def start(self, *, step: int, tokens: int, peak: float = math.inf) -> None:
        """Begins to measure now, after that many updates and tokens. peak: the most FLOP/s that all
        devices together can do."""
        self.peak = peak
        self._began = time.monotonic()
        self.begin_line(step=step, tokens=tokens)

    def begin_line(self, *, step: int, tokens: int) -> None:
        """The next line counts from here. If the run has gone back, the time that it used still
        counts."""
        self._line = (step, tokens)
        self._line_began = time.monotonic()
        self._aside = 0.0

    def seconds(self) -> float:
        """Wall time of the run."""
        return self.seconds_before + time.monotonic() - self._began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Time spent inside (a validation, a checkpoint) counts for the run but not for its
        rate."""
        began = time.monotonic()
        yield
        self._aside += time.monotonic() - began

    def line(self, *, step: int, tokens: int) -> dict[str, Any]:
        """The fields of a log line. Rates are those of the updates since the last line."""
        step_before, tokens_before = self._line
        worked = max(time.monotonic() - self._line_began - self._aside, 1e-9)
        self.begin_line(step=step, tokens=tokens)
        more = tokens - tokens_before
        flops = self.flops(step) - self.flops(step_before)
        return {
            "flops": self.flops(step),
            "seconds": self.seconds(),
            "tokens_per_s": more / worked,
            "flops_per_s": flops / worked,
            "mfu": flops / worked / self.peak,
            "peak_memory_bytes": peak_memory_bytes(self.device),
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


# ---------------------------------------------------------------------------- the peak

SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}


def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.25) -> float:
    """FLOP/s of the fastest of some square matrix products in `dtype`, with the threads that torch
    has now. Each size is measured for `seconds`.

    This is what the machine reaches at this moment; other processes on the cores lower it.
    """
    return max(_rate(size, device, dtype, seconds) for size in SIZES[device.type])


@torch.inference_mode()
def _rate(size: int, device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    F.linear(a, b)  # the first product selects and builds its kernel
    on_gpu = device.type == "cuda"
    repeats = 10 if on_gpu else 1
    best = 0.0
    end = time.perf_counter() + seconds
    while True:
        if on_gpu:
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(repeats):
            F.linear(a, b)
        if on_gpu:
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        best = max(best, repeats * 2.0 * size**3 / (now - began))
        if now > end:
            return best


def machine_peak(device: torch.device, dtype: torch.dtype) -> float:
    """The result of `measure_peak` for each processor, dtype, number of threads and version of
    torch, afterwards read from the user's cache folder. On a CPU it is measured again if a short
    look shows more: other processes were busy before."""
    key = (
        f"{device_name(device)}, {device.type}, {str(dtype).removeprefix('torch.')}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    file = Path(os.environ.get("ELECTRIFY_CACHE") or Path(cache) / "electrify") / "peak.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    had = known.get(key, 0.0)
    looks = _rate(SIZES["cpu"][0], device, dtype, 0.05) if device.type == "cpu" else 0.0
    if not had or looks > had:
        known[key] = max(measure_peak(device, dtype), had)
        with suppress(OSError):  # a user without a home, as in containers
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file, json.dumps(known, indent=1) + "\n")
    return known[key]
