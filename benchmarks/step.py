"""The pre-training step against the composition that users write from transformers: same shapes,
dropout, precision and updates.

    OMP_NUM_THREADS=1 python benchmarks/step.py [--sizes small,base] [--batches 16x128]
        [--dropout 0,0.1] [--rounds 9] [--minutes M] [--quick] [--json FILE]

The other side is ElectraForMaskedLM and ElectraForPreTraining with tied embeddings, labels for the
masked positions, samples from torch.distributions.Categorical, AdamW and autocast (to bfloat16
where the device has it), as written in the issues and repositories that ask for ELECTRA
pre-training; eager and compiled, and once with the setting of the C allocator that ours makes. Its
rows are full, ours are packed from documents (so ours also keeps sequences apart), and ours
includes the loader, the logged rates and the check of the gradient norm. Each side is a process of
its own and they take turns; ratios are medians over rounds of the pair of one round. Share of the
peak: FLOPs of the matrix products that the method asks for, over those of plain products measured
here.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from typing import Any

import torch
from pairs import in_turns, ratios, spread, table, write_json
from sides import SIDES, Case, Worker

from electrify.train.machine import describe, measure_peak, pick_device, supports_bf16


def measure(
    case: Case, sides: list[str], *, rounds: int, updates: int, until: float
) -> dict[str, Any]:
    workers = {name: Worker(case, name) for name in sides}  # that compile side by side
    for worker in workers.values():
        worker.ready()
    seconds = in_turns(
        {name: lambda w=worker: w(updates) for name, worker in workers.items()},
        rounds=rounds,
        title=case.name,
        until=until,
    )
    memory = {name: worker.memory() for name, worker in workers.items()}
    return {
        "case": case.name,
        "tokens": case.rows * case.length,
        "flops": case.flops(),
        "seconds": seconds,
        "peak_memory_bytes": memory,
    }


def report(result: dict[str, Any], peak: float) -> str:
    base = next(iter(result["seconds"].values()))
    rows = []
    for name, times in result["seconds"].items():
        median = statistics.median(times)
        rows.append(
            [
                name,
                f"{result['tokens'] / median:,.0f}",
                "1" if times is base else spread(ratios(times, base)),
                f"{100 * result['flops'] / median / peak:.0f} %",
                f"{result['peak_memory_bytes'][name] / 2**30:.2f} GiB",
            ]
        )
    return table(
        [result["case"], "tokens/s", "time, in the first's", "of the peak", "memory"], rows
    )


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sizes", default="small")
    p.add_argument("--batches", default="16x128", help="ROWSxLENGTH,...")
    p.add_argument("--vocab-size", type=int, default=30_522)
    p.add_argument("--dropout", default="0,0.1")
    p.add_argument("--sides", default=";".join(SIDES), help=f"of: {'; '.join(SIDES)}")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--updates", type=int, default=1, help="of each side in a round")
    p.add_argument("--minutes", type=float, default=math.inf, help="begin no more rounds after")
    p.add_argument("--device", default="auto")
    p.add_argument(
        "--quick", action="store_true", help="a tiny model, two sides, two rounds: does it run?"
    )
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    until = time.monotonic() + 60 * a.minutes
    device = pick_device(a.device)
    sizes, batches, vocab = (
        ("quick", "4x32", 1000) if a.quick else (a.sizes, a.batches, a.vocab_size)
    )
    shapes = [tuple(int(n) for n in batch.split("x")) for batch in batches.split(",")]
    drops = [0.1] if a.quick else [float(d) for d in a.dropout.split(",")]
    sides = ["electrify", "transformers"] if a.quick else a.sides.split(";")
    dtype = torch.bfloat16 if supports_bf16(device) else torch.float32
    machine, peak = (
        describe(device),
        measure_peak(device, dtype, seconds=0.1 if a.quick else 2.0),
    )
    what = (
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}, "
        f"{str(dtype).removeprefix('torch.')}"
    )
    print(f"{what}; peak of plain products {peak / 1e9:,.0f} GFLOP/s\n")
    results = []
    for case in (
        Case(size, *shape, vocab, drop, device)
        for size in sizes.split(",")
        for shape in shapes
        for drop in drops
    ):
        rounds = 2 if a.quick else a.rounds
        found = measure(case, sides, rounds=rounds, updates=a.updates, until=until)
        results.append(found)
        print(report(results[-1], peak) + "\n", flush=True)
    write_json(a.json, {"machine": machine, "peak": peak, "results": results})


if __name__ == "__main__":
    main()
