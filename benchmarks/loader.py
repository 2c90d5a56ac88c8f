"""What loading costs: opening a corpus (cut, pack), one permutation, and assembling batches.

    python benchmarks/loader.py [--quick] [--data DATA] [--json FILE]

Without --data a corpus of documents with log-normal lengths is made in a temporary folder. Times
are medians, of one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from electrify.data.examples import pack, sequences
from electrify.data.loader import Loader
from electrify.data.phases import Phase, Phases
from electrify.text.corpus import Corpus

sys.path.append(str(Path(__file__).parent.parent / "tests" / "data"))
from corpora import lognormal_lengths, write_corpus

SHAPES = ((128, 128), (256, 512))  # ELECTRA-Small and ELECTRA-Base: rows of a batch, row length


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def table(documents: int, *, max_seq_length: int) -> dict[str, Any]:
    """Opening a corpus of this many documents (only their lengths exist)."""
    offsets = np.cumsum([0, *lognormal_lengths(documents, median=150, spread=1.2)])
    found = None

    def cut() -> None:
        nonlocal found
        found = sequences([offsets], max_seq_length=max_seq_length, num_segments=2)

    cut_s = seconds(cut)
    assert found is not None
    slots = found.slots_N
    start = time.perf_counter()
    _, first = pack(slots, row_length=max_seq_length)
    pack_s = time.perf_counter() - start
    permutation_s = seconds(
        lambda: np.argsort(np.random.Philox(key=1).random_raw(len(first) - 1), kind="stable")
    )
    fill = float(slots.sum(dtype=np.int64)) / ((len(first) - 1) * max_seq_length)
    return {
        "max_seq_length": max_seq_length,
        "tokens": int(offsets[-1]),
        "sequences": len(slots),
        "fill_rate": fill,
        "cut_s": cut_s,
        "pack_s": pack_s,
        "permutation_s": permutation_s,
    }


def batches(
    corpus: Corpus, *, batch_rows: int, max_seq_length: int, num_segments: int, steps: int
) -> dict[str, Any]:
    opened = time.perf_counter()
    loader = Loader(
        corpus,
        phases=Phases(Phase(0, max_seq_length, batch_rows)),
        num_segments=num_segments,
        seed=1,
    )
    opened = time.perf_counter() - opened
    loader.batch(0)
    each = statistics.median(
        seconds(lambda step=step: loader.batch(step)) for step in range(1, steps + 1)
    )
    tokens = statistics.mean(int(loader.batch(step).real_T.sum()) for step in range(3))
    return {
        "rows": batch_rows,
        "max_seq_length": max_seq_length,
        "num_segments": num_segments,
        "fill_rate": loader.streams[max_seq_length].fill_rate,
        "open_s": opened,
        "ms_per_batch": each * 1e3,
        "tokens_per_s": tokens / each,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds")
    parser.add_argument("--data", type=Path, help="a prepared corpus")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    documents, steps = (100_000, 30) if args.quick else (4_000_000, 300)
    report: dict[str, list[dict[str, Any]]] = {
        "tables": [table(documents, max_seq_length=length) for length in (128, 512)],
        "batches": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        corpus = (
            Corpus(args.data, "train")
            if args.data
            else write_corpus(Path(folder), [lognormal_lengths(documents // 5)])
        )
        for rows, length in SHAPES:
            report["batches"] += [
                batches(corpus, batch_rows=rows, max_seq_length=length, num_segments=n, steps=steps)
                for n in (1, 2)
            ]
    for row in report["tables"] + report["batches"]:
        print(
            "  ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value:,}"
                for key, value in row.items()
            )
        )
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
