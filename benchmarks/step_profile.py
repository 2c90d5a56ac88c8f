"""Where the time of one update goes: the operations that take longest.

OMP_NUM_THREADS=1 python benchmarks/step_profile.py [--size small] [--batch 16x128]
    [--dropout 0.1] [--compile] [--updates 5] [--device auto] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from pairs import table, write_json
from sides import WARM, Case, Ours
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from electrify.train.machine import describe, pick_device

ROWS = 20


def profiled(case: Case, *, compiled: bool, updates: int) -> list[dict[str, Any]]:
    """The operations of some updates, the longest first; milliseconds of an update, on the device
    that computes."""
    on_gpu = case.device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(case, Path(folder), compiled=compiled)
        for _ in range(WARM):
            ours()
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
        # A GPU's kernels are listed beside the operations that began them, with the same time: one
        # of the two counts. A compiled graph is a single operation.
        counted = DeviceType.CUDA if on_gpu and compiled else DeviceType.CPU
        with profile(activities=kinds) as found:
            for _ in range(updates):
                ours()
            if on_gpu:
                torch.cuda.synchronize()
    rows = [
        {
            "operation": event.key,
            "calls": event.count / updates,
            "ms": (event.self_device_time_total if on_gpu else event.self_cpu_time_total)
            / updates
            / 1e3,
        }
        for event in found.key_averages()
        if event.device_type == counted and not event.is_user_annotation
    ]
    return sorted(rows, key=lambda row: -row["ms"])


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--size", default="small")
    p.add_argument("--batch", default="16x128", help="ROWSxLENGTH")
    p.add_argument("--vocab-size", type=int, default=30_522)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--updates", type=int, default=5)
    p.add_argument("--device", default="auto")
    p.add_argument("--quick", action="store_true", help="a tiny model, two updates")
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    rows, length = map(int, ("4x32" if a.quick else a.batch).split("x"))
    device = pick_device(a.device)
    size, words, updates = ("quick", 500, 2) if a.quick else (a.size, a.vocab_size, a.updates)
    case = Case(size, rows, length, words, a.dropout, device)
    found = profiled(case, compiled=a.compile, updates=updates)
    total = sum(row["ms"] for row in found) or 1.0
    cells = [
        [r["operation"][:60], f"{r['calls']:.1f}", f"{r['ms']:.2f}", f"{100 * r['ms'] / total:.1f}"]
        for r in found[:ROWS]
    ]
    print(f"{case.name}, {describe(device)['device_name']}: {total:.1f} ms an update\n")
    print(table(["operation", "calls", "ms", "%"], cells))
    if a.json:
        write_json(a.json, {"case": case.name, "machine": describe(device), "operations": found})


if __name__ == "__main__":
    main()
