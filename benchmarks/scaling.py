"""One process and several: the speed of an update under torchrun, for the same batch cut up and for
a batch that grows with the processes.

    OMP_NUM_THREADS=1 python benchmarks/scaling.py [--size small] [--rows 16] [--length 128]
        [--processes 1,2] [--rounds 5] [--quick] [--json FILE]

Needs a core (or GPU) for every process. Each number of processes is started anew in every round, in
turns; timed are ten updates of rank 0 after five to warm up. Efficiency: tokens a second of n
processes, over n times those of one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch.distributed
from pairs import in_turns, spread, table, write_json
from sides import WARM, Case, Ours, timed

from electrify.train import dist
from electrify.train.machine import pick_device

UPDATES = 10


def launch(words: list[str], processes: int, updates: int) -> float:
    """Seconds of an update of so many processes."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
        __file__,
    ]
    ran = subprocess.run(
        [*command, "--worker", str(updates), *words], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(f"{processes} processes failed:\n{ran.stderr[-2000:]}")
    return float(ran.stdout.split()[-1])


def work(updates: int, words: list[str]) -> None:
    """What torchrun starts."""
    size, rows, length, vocab, dropout, device = words
    world = dist.start(pick_device(device), timeout_s=1800.0)
    case = Case(size, int(rows), int(length), int(vocab), float(dropout), world.device)
    with tempfile.TemporaryDirectory() as folder:
        step = Ours(case, Path(folder), world=world)
        timed(step, WARM, world.device)
        if world.size > 1:
            torch.distributed.barrier()
        seconds = timed(step, updates, world.device)
    if world.is_main:
        print(seconds)
    dist.stop()


def main() -> None:
    if "--worker" in sys.argv:
        at = sys.argv.index("--worker")
        work(int(sys.argv[at + 1]), sys.argv[at + 2 :])
        return
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--size", default="small")
    p.add_argument("--rows", type=int, default=16)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--processes", default="1,2")
    p.add_argument("--device", default="auto")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--quick", action="store_true", help="a tiny model, one round: does it run?")
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    size, rows, length, vocab, rounds, updates = (
        ("quick", 4, 32, 1000, 1, 2)
        if a.quick
        else (a.size, a.rows, a.length, 30_522, a.rounds, UPDATES)
    )
    counts = [int(n) for n in a.processes.split(",")]
    plans = {("the same batch", n): rows for n in counts} | {
        ("a batch a process", n): rows * n for n in counts if n > 1
    }
    sides = {}
    for (what, n), batch in plans.items():
        words = [size, *map(str, (batch, length, vocab, 0.0, a.device))]
        sides[f"{n}, {what}"] = lambda words=words, n=n: launch(words, n, updates)
    found = in_turns(sides, rounds=rounds, title="scaling")
    rate = {
        key: batch * length / statistics.median(found[f"{key[1]}, {key[0]}"])
        for key, batch in plans.items()
    }
    one = rate["the same batch", counts[0]] / counts[0]
    cells = []
    for (what, n), batch in plans.items():
        times = found[f"{n}, {what}"]
        cells.append(
            [
                f"{n}, {what}",
                f"{batch} x {length}",
                spread(times, 3),
                f"{rate[what, n]:,.0f}",
                f"{100 * rate[what, n] / n / one:.0f} %",
            ]
        )
    print(table(["processes", "batch", "seconds", "tokens/s", "efficiency"], cells))
    write_json(a.json, found)


if __name__ == "__main__":
    main()
