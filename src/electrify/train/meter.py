"""How fast a run is: tokens and FLOPs per second, and their share of the machine's peak rate (MFU),
which is that of plain matrix products."""

from __future__ import annotations

import json
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

FIRST_S = 60.0  # seconds of work at the start that give the reference rate
WINDOW_S = 30.0  # seconds of work that are compared with it
# One busy neighbour takes half of a core. If the rate falls by more than half, the threads are not
# sharing cores but waiting.
SLOW = 0.5


class Pace:
    """Notices when a process becomes much slower than in its first minute, and reports it once."""

    def __init__(self) -> None:
        # Seconds, tokens and FLOPs of the first minute, and of the log lines since the last look.
        self._first: tuple[float, float, float] | None = None
        self._now = (0.0, 0.0, 0.0)
        self._told = False

    def fell(self, *, seconds: float, tokens: float, flops: float) -> tuple[float, float] | None:
        """Adds work that took this many seconds. Returns the tokens per second at first and now, if
        the rate has fallen and this was not reported yet."""
        s, t, f = self._now
        s, t, f = s + seconds, t + tokens, f + flops
        self._now = (s, t, f)
        if s < (FIRST_S if self._first is None else WINDOW_S):
            return None
        self._now = (0.0, 0.0, 0.0)
        if self._first is None:
            self._first = (s, t, f)
            return None
        first_s, first_t, first_f = self._first
        # Both rates must have fallen: longer rows give fewer tokens per second although they do as
        # much work, and with shorter rows it is the other way round.
        slow = t / s < SLOW * first_t / first_s and f / s < SLOW * first_f / first_s
        if self._told or not slow:
            return None
        self._told = True
        return first_t / first_s, t / s


def slow_text(first: float, now: float, *, device: str, threads: int) -> str:
    """The message about a rate that fell. threads: the number with which the run computes."""
    text = (
        f"the rate fell from {first / 1e3:.1f} k to {now / 1e3:.1f} k tokens/s: another process "
        f"may be using the {'cores' if device == 'cpu' else 'device'}"
    )
    if device != "cpu" or threads == 1:
        return text
    return f"{text}; --threads 1 may be faster (stop the run, and repeat its command with that)"


class Meter:
    """Counts over all legs of a run (a leg is one start of the command). flops: gives the FLOPs of
    the run before an update; peak: the most FLOP/s that all devices together can do."""

    def __init__(self, device: torch.device, *, flops: Callable[[int], float], peak: float) -> None:
        self.device = device
        self.flops = flops
        self.peak = peak
        self.pace = Pace()
        self.slow: tuple[float, float] | None = None
        """What `Pace.fell` said of the last log line."""
        self.seconds_before = 0.0  # in earlier legs
        self.start(step=0, tokens=0)

    def start(self, *, step: int, tokens: int) -> None:
        """Begins the leg now, after that many updates and tokens."""
        self._began = time.monotonic()
        self.went_back(step=step, tokens=tokens)

    def went_back(self, *, step: int, tokens: int) -> None:
        """The run has gone back to an earlier update; the time it used still counts."""
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
        self.went_back(step=step, tokens=tokens)
        more = tokens - tokens_before
        flops = self.flops(step) - self.flops(step_before)
        self.slow = self.pace.fell(seconds=worked, tokens=more, flops=flops)
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

SECONDS = 0.25  # for each size; a whole measurement takes a second
LOOK_S = 0.05
SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}


def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = SECONDS) -> float:
    """FLOP/s of the fastest of some square matrix products in `dtype`, with the threads that torch
    has now.

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
    known: dict[str, float] = {}
    if file.is_file():
        known = json.loads(file.read_text(encoding="utf-8"))
    looks = device.type == "cpu" and _rate(SIZES["cpu"][0], device, dtype, LOOK_S)
    if looks > known.get(key, 0.0) or key not in known:
        known[key] = max(measure_peak(device, dtype), known.get(key, 0.0))
        with suppress(OSError):  # a user without a home, as in containers
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file, json.dumps(known, indent=1) + "\n")
    return known[key]
