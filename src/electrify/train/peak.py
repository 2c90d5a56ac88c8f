"""The peak rate of this machine, in FLOP/s: that of plain matrix products, measured once and
remembered. The rate of training steps is given as a share of it (MFU)."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from ..errors import UserError
from ..oldfiles.reading import MB, read_object
from ..oldfiles.whole import write_atomically
from .device import device_name

MAX_BYTES = MB  # maximal size of the cache file: one line per processor and dtype
SECONDS = 0.25  # for each size; a whole measurement takes a second
LOOK_S = 0.05
SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}


def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = SECONDS) -> float:
    """FLOP/s of the fastest of some square matrix products in `dtype`, with the threads that torch
    has now.

    This is what the machine reaches at this moment; other processes on the cores lower it.
    """
    return max(
        _rate(size, device, dtype, seconds) for size in SIZES.get(device.type, SIZES["cuda"])
    )


def _rate(size: int, device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    F.linear(a, b)  # the first product selects and builds its kernel
    best = 0.0
    end = time.perf_counter() + seconds
    with torch.inference_mode():
        while True:
            repeats = 1 if device.type == "cpu" else 10
            _wait(device)
            began = time.perf_counter()
            for _ in range(repeats):
                F.linear(a, b)
            _wait(device)
            now = time.perf_counter()
            best = max(best, repeats * 2.0 * size**3 / (now - began))
            if now > end:
                return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine_peak(device: torch.device, dtype: torch.dtype) -> float:
    """The result of `measure_peak` for each processor, dtype, number of threads and version of
    torch, afterwards read from the user's cache folder; measured again if a short look at the start
    shows more.

    If the cache cannot be read or written, this costs a second but never ends the run.
    """
    key = (
        f"{device_name(device)}, {device.type}, {str(dtype).removeprefix('torch.')}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    try:
        file = cache_folder() / "peak.json"
    except RuntimeError:  # a user without a home, as in containers
        return measure_peak(device, dtype)
    known = _read(file).get(key)
    if isinstance(known, float) and not _is_too_low(known, device, dtype):
        return known
    peak = max(measure_peak(device, dtype), known if isinstance(known, float) else 0.0)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(_read(file) | {key: peak}, indent=1) + "\n")
    return peak


def _is_too_low(known: float, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a look shows more: other processes were busy when the peak was measured. (On a GPU
    other work is rare, and a look takes memory.)"""
    return device.type == "cpu" and _rate(SIZES["cpu"][0], device, dtype, LOOK_S) > known


def _read(file: Path) -> dict[str, Any]:
    with suppress(UserError):
        return read_object(file, limit=MAX_BYTES)
    return {}


def cache_folder() -> Path:
    """The folder for measurements of this machine: $ELECTRIFY_CACHE, else the user's cache
    folder. Raises RuntimeError for a user without a home."""
    given = os.environ.get("ELECTRIFY_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "electrify"
