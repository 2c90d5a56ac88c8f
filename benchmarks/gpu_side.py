"""A process of `gpu_visit.py`: one side of its comparison, or the ceilings of the machine.

    python benchmarks/gpu_side.py FOLDER ceilings DEVICE COPIED_MIB WIDTH
    python benchmarks/gpu_side.py FOLDER SIDE SIZE ROWS LENGTH VOCAB DROPOUT DEVICE

FOLDER holds a commit, whose own `benchmarks/sides.py` makes the update of SIDE, so this file
imports nothing else of it. A side answers with lines of JSON: first, unasked, when it is compiled
and warm, then to each line `time UPDATES` or `profile UPDATES`.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch._dynamo.utils import counters
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(sys.argv[1]) / "benchmarks"))
from sides import Case, side_of, timed, wait

WARM = 8  # updates: a graph is compiled, recorded, and then replayed
HOST = 5
LONGEST = 15


def ceilings(device: torch.device, copied_mib: int, width: int) -> dict[str, Any]:
    """The machine. GB/s of a copy counts bytes read and written; TFLOP/s is that of a bfloat16
    product of random square matrices."""
    on_gpu = device.type == "cuda"
    source = torch.zeros(copied_mib << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    a, b = (torch.randn(width, width, device=device).bfloat16() for _ in range(2))
    works = {"copy": lambda: target.copy_(source), "product": lambda: torch.mm(a, b)}
    for work in works.values():
        work()
    seconds = {name: timed(work, 10, device) for name, work in works.items()}  # type: ignore[arg-type]
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "copy_gb_s": 2 * source.numel() / 1e9 / seconds["copy"],
        "product_tflop_s": 2 * width**3 / 1e12 / seconds["product"],
    }


class Measured:
    """What is read of one side. step: its update."""

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        self.step, self.device = step, device
        self.on_gpu = device.type == "cuda"

    def time(self, updates: int) -> dict[str, float]:
        """wall: one of many updates. host: from the call of an update, when the device has nothing
        to do, until it returns; making the batch counts in both."""
        self.step()  # takes the memory again
        wall = timed(self.step, updates, self.device)
        host = []
        for _ in range(HOST):
            began = time.perf_counter()
            self.step()
            host.append(time.perf_counter() - began)
            wait(self.device)
        self.give_back()
        return {"wall_ms": 1e3 * wall, "host_ms": 1e3 * statistics.median(host)}

    def profile(self, updates: int) -> dict[str, Any]:
        """The kernels of an update, and those that take longest; on a CPU, its operations."""
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self.on_gpu
        with profile(activities=kinds) as found:
            for _ in range(updates):
                self.step()
            wait(self.device)
        counted = DeviceType.CUDA if self.on_gpu else DeviceType.CPU
        rows = []
        for e in found.key_averages():
            if e.device_type == counted and not e.is_user_annotation:
                us = e.self_device_time_total if self.on_gpu else e.self_cpu_time_total
                rows.append((e.key[:80], e.count / updates, us / updates / 1e3))
        rows.sort(key=lambda row: -row[2])
        sums = {"kernel_ms": sum(row[2] for row in rows), "kernels": sum(row[1] for row in rows)}
        return sums | self.counters() | {"longest": rows[:LONGEST]}

    def counters(self) -> dict[str, Any]:
        """What the compiler noted, and peak memory."""
        peak = torch.cuda.max_memory_allocated(self.device) / 2**30 if self.on_gpu else None
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "cache_hits": counters["inductor"]["fxgraph_cache_hit"],
            "cudagraph_skips": counters["inductor"]["cudagraph_skips"],
            "peak_gib": peak,
        }

    def give_back(self) -> None:
        """Leaves the other sides the memory that this one does not hold between updates."""
        if self.on_gpu:
            torch.cuda.empty_cache()


def answers_of(name: str, words: list[str]) -> None:
    # What is compiled may print, so answers have a stream of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    size, rows, length, vocab, dropout, device = words
    case = Case(size, int(rows), int(length), int(vocab), float(dropout), torch.device(device))
    with tempfile.TemporaryDirectory() as data:
        began = time.perf_counter()
        step = side_of(name, case, Path(data))
        for _ in range(WARM):
            step()
        wait(case.device)
        measured = Measured(step, case.device)
        measured.give_back()
        ready = {"seconds": time.perf_counter() - began, "flops": case.flops()}
        print(json.dumps(ready | measured.counters()), file=answers)
        for line in sys.stdin:
            what, updates = line.split()
            print(json.dumps(getattr(measured, what)(int(updates))), file=answers)


if __name__ == "__main__":
    if sys.argv[2] == "ceilings":
        device, copied_mib, width = sys.argv[3:]
        print(json.dumps(ceilings(torch.device(device), int(copied_mib), int(width))))
    else:
        answers_of(sys.argv[2], sys.argv[3:])
