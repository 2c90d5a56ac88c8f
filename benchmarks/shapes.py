"""How the speed of a step goes with the batch, the length of a row, the vocabulary and the size of
the model: a table and a picture.

    OMP_NUM_THREADS=1 python benchmarks/shapes.py [--size small] [--rounds 3] [--quick]
        [--json FILE] [--picture FILE.png]

One thing changes at a time from 16 x 128 tokens, 30,522 words and the given size; dropout 0. Time
of an update is the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pairs import table, write_json
from sides import Case, Worker

from electrify.progress import Progress
from electrify.train.machine import measure_peak, pick_device, supports_bf16

AXES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "batch": ("rows", (1, 2, 4, 8, 16, 32, 64)),
    "length": ("length", (32, 64, 128, 256, 512)),
    "vocabulary": ("vocab_size", (1024, 4096, 8192, 30_522, 65_536, 131_072)),
    "model": ("size", ("tiny", "mini", "small", "base")),
}
QUICK: dict[str, tuple[str, tuple[Any, ...]]] = {
    "batch": ("rows", (1, 2)),
    "model": ("size", ("quick",)),
}


def points(
    first: Case, axes: dict[str, tuple[str, tuple[Any, ...]]], *, rounds: int, peak: float
) -> list[dict[str, Any]]:
    found = []
    with Progress(
        sum(len(values) for _, values in axes.values()), title="shapes", unit="shapes"
    ) as bar:
        for axis, (field, values) in axes.items():
            for value in values:
                case = replace(first, **{field: value})
                worker = Worker(case, "electrify")
                worker.ready()
                seconds = statistics.median(worker(1) for _ in range(rounds))
                rates = {
                    "tokens_per_s": case.rows * case.length / seconds,
                    "of_peak": case.flops() / seconds / peak,
                }
                found.append(
                    {
                        "axis": axis,
                        "value": value,
                        "seconds": seconds,
                        **rates,
                        "peak_memory_bytes": worker.memory(),
                    }
                )
                bar.advance(1, f"{axis} {value}: {rates['tokens_per_s']:,.0f} tokens/s")
    return found


def draw(found: list[dict[str, Any]], picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = list(dict.fromkeys(f["axis"] for f in found))
    figure, panels = plt.subplots(
        1, len(axes), figsize=(4.6 * len(axes), 3.8), constrained_layout=True, squeeze=False
    )
    for panel, axis in zip(panels[0], axes, strict=True):
        mine = [f for f in found if f["axis"] == axis]
        at = range(len(mine))
        panel.bar(at, [100 * f["of_peak"] for f in mine], color="C0", alpha=0.35)
        panel.set(title=axis, ylabel="% of the peak", ylim=(0, 100))
        panel.set_xticks(at, [str(f["value"]) for f in mine], fontsize=8)
        other = panel.twinx()
        other.plot(at, [f["tokens_per_s"] for f in mine], "o-", color="C1")
        other.set(ylabel="tokens/s", ylim=(0, None))
        other.yaxis.set_major_formatter("{x:,.0f}")
    figure.suptitle(
        "electrify, one update: bars: share of the machine's peak; line: tokens a second",
        fontsize=11,
    )
    figure.savefig(picture, dpi=110)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--size", default="small")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--device", default="auto")
    p.add_argument(
        "--quick", action="store_true", help="three shapes of a tiny model: does it run?"
    )
    p.add_argument("--json", help="write the figures here too")
    p.add_argument("--picture")
    a = p.parse_args()
    device = pick_device(a.device)
    dtype = torch.bfloat16 if supports_bf16(device) else torch.float32
    peak = measure_peak(device, dtype, seconds=0.1 if a.quick else 2.0)
    first = (
        Case("quick", 2, 32, 1000, 0.0, device)
        if a.quick
        else Case(a.size, 16, 128, 30_522, 0.0, device)
    )
    found = points(first, QUICK if a.quick else AXES, rounds=a.rounds, peak=peak)
    cells = [
        [f["axis"], str(f["value"]), f"{f['tokens_per_s']:,.0f}", f"{100 * f['of_peak']:.0f} %"]
        for f in found
    ]
    memory = [f"{f['peak_memory_bytes'] / 2**30:.2f} GiB" for f in found]
    print(
        table(
            ["what changes", "to", "tokens/s", "of the peak", "memory"],
            [[*row, gib] for row, gib in zip(cells, memory, strict=True)],
        )
    )
    write_json(a.json, {"peak": peak, "shapes": found})
    if a.picture:
        draw(found, Path(a.picture))


if __name__ == "__main__":
    main()
