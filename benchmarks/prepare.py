"""`prepare` on a real corpus against the bare `encode_batch` of the tokenizers library on the same
text, with all cores.

    python benchmarks/prepare.py ../shared/data/corpus --output-dir /tmp/prepare
        [--vocab-sizes 8192,30522] [--quick] [--json result.json]
    python benchmarks/prepare.py --tiny-documents 100000 --output-dir /tmp/prepare
        [--json result.json]

Each preparation runs in a process of its own, whose tree is watched: peak of the sum of the
resident memory (pages that processes share count for each). It runs twice into two folders, which
must hold the same bytes. The machine should be idle; the load average is part of the result, and
rates per processor second, which other processes disturb less, stand beside those per second.

--tiny-documents N: N generated documents of one line instead of a corpus; `prepare` with one worker
against train_from_iterator and encode_batch of the library with one thread, in turns, three times:
medians of processor seconds, and their ratio. Python's start and imports, which do not grow with N,
are left out of both, a worker's start is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

PREPARE = """
import json, sys
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
prepare(PrepareConfig(**json.loads(sys.argv[1])))
"""


def watched(options: dict[str, Any]) -> tuple[float, float]:
    """Seconds of a preparation, and the peak of the memory of its process tree in MB."""
    import psutil

    began, peak = time.perf_counter(), 0
    process = subprocess.Popen([sys.executable, "-c", PREPARE, json.dumps(options)])
    root = psutil.Process(process.pid)
    ended = threading.Event()
    threading.Thread(target=lambda: (process.wait(), ended.set()), daemon=True).start()
    while not ended.wait(0.2):
        size = 0
        try:
            for p in (root, *root.children(recursive=True)):
                size += p.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        peak = max(peak, size)
    if process.returncode:
        sys.exit(f"prepare failed with status {process.returncode}")
    return time.perf_counter() - began, peak / 1e6


def contents(folder: Path) -> str:
    """One hash of all files but the log, which holds seconds."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "prepare.log.json")
    return hashlib.sha256(
        "".join(
            f"{p.relative_to(folder)}{hashlib.sha256(p.read_bytes()).hexdigest()}" for p in files
        ).encode()
    ).hexdigest()


def bare_rate(corpus: str, tokenizer: Path, *, megabytes: int, cores: int) -> dict[str, float]:
    """MB/s of Tokenizer.encode_batch (and encode_batch_fast) on documents of the corpus that are
    already in memory; the median of three."""
    from collections import Counter

    from tokenizers import Tokenizer

    from electrify.text.documents import documents
    from electrify.text.options import PrepareConfig
    from electrify.text.sources import choose_sources

    options = PrepareConfig(inputs=(corpus,), output_dir="unused")
    texts, size = [], 0
    streams = [documents(s, options, counts=Counter()) for s in choose_sources(options)]
    while size < megabytes * 1e6 and streams:  # the same share of every file
        for stream in list(streams):
            new = list(islice(stream, 50))
            texts += new
            size += sum(len(t.encode()) for t in new)
            if not new:
                streams.remove(stream)
    raw = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    rates: dict[str, list[float]] = {}
    for _ in range(3):
        for name in ("encode_batch", "encode_batch_fast"):
            began, began_cpu = time.perf_counter(), time.process_time()
            for i in range(0, len(texts), 1000):
                getattr(raw, name)(texts[i : i + 1000], add_special_tokens=False)
            rates.setdefault(name, []).append(size / 1e6 / (time.perf_counter() - began))
            rates.setdefault(name + "_cpu", []).append(
                size / 1e6 / (time.process_time() - began_cpu)
            )
    return {name: sorted(rate)[1] for name, rate in rates.items()} | {
        "megabytes": size / 1e6,
        "cores": cores,
    }


TINY = """
import os, sys
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from transformers import AutoTokenizer
def used():
    return sum(os.times()[:4])
began = used()
prepare(PrepareConfig(
    inputs=(sys.argv[1],), output_dir=sys.argv[2], vocab_size=8192, workers=1,
    document_boundary="line", deduplicate=False,
))
print(used() - began)
"""
BARE = """
import sys, time
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
texts = open(sys.argv[1], encoding="utf-8").read().splitlines()
tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
began = time.process_time()
tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
    vocab_size=8192, min_frequency=2, show_progress=False, special_tokens=specials,
))
tokenizer.encode_batch(texts, add_special_tokens=False)
print(time.process_time() - began)
"""


def tiny(documents: int, folder: Path) -> dict[str, Any]:
    """Processor seconds of `prepare` and of the bare library on documents of one line."""
    draw = random.Random(0)
    words = [
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 10)))
        for _ in range(20_000)
    ]
    weights = [1 / (i + 10) for i in range(len(words))]
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "tiny.txt"
    source.write_text(
        "".join(" ".join(draw.choices(words, weights, k=10)) + "\n" for _ in range(documents)),
        encoding="utf-8",
    )
    seconds: dict[str, list[float]] = {"prepare": [], "library": []}
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    for i in range(3):
        for name, code in (("prepare", TINY), ("library", BARE)):
            call = [sys.executable, "-c", code, str(source), str(folder / f"tiny-{documents}-{i}")]
            done = subprocess.run(
                call, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            seconds[name].append(float(done.stdout))
    medians = {f"{name}_cpu_s": sorted(values)[1] for name, values in seconds.items()}
    return {
        "documents": documents,
        **medians,
        "ratio": medians["prepare_cpu_s"] / medians["library_cpu_s"],
        "load": os.getloadavg()[0],
    }


def show(result: dict[str, Any], file: str | None) -> None:
    text = json.dumps(result, indent=1)
    print(text)
    if file:
        Path(file).write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", nargs="?")
    parser.add_argument(
        "--tiny-documents",
        type=int,
        metavar="N",
        help="N generated documents of one line instead of a corpus",
    )
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--vocab-sizes", default="8192,30522")
    parser.add_argument(
        "--quick", action="store_true", help="300 documents, one vocabulary of 4096: does it run?"
    )
    parser.add_argument("--json", help="write the result here too")
    args = parser.parse_args()
    if args.tiny_documents:
        show(tiny(args.tiny_documents, Path(args.output_dir)), args.json)
        return
    if not args.corpus:
        parser.error("name a corpus, or give --tiny-documents N")
    quick = {"max_documents": 300} if args.quick else {}
    sizes = [4096] if args.quick else [int(v) for v in args.vocab_sizes.split(",")]
    cores = len(os.sched_getaffinity(0))
    rows = []
    for size in sizes:
        runs = []
        for name in ("first", "second"):
            folder = Path(args.output_dir) / f"{size}-{name}"
            seconds, peak = watched(
                {"inputs": [args.corpus], "output_dir": str(folder), "vocab_size": size} | quick
            )
            log = json.loads((folder / "prepare.log.json").read_text())
            load = os.getloadavg()[0]
            steps = log["seconds"]
            runs.append({"wall_s": seconds, "peak_tree_mb": peak, "load": load, "seconds": steps})
        counts = json.loads((folder / "manifest.json").read_text())["counts"]
        bare = bare_rate(
            args.corpus, folder / "tokenizer", megabytes=2 if args.quick else 40, cores=cores
        )
        encode = counts["bytes"] / 1e6 / min(r["seconds"]["encode"] for r in runs)
        rows.append(
            {
                "vocab_size": size,
                "counts": counts,
                "runs": runs,
                "encode_mb_per_s": encode,
                "all_mb_per_s": counts["bytes"] / 1e6 / min(r["wall_s"] for r in runs),
                "bare": bare,
                "encode_over_bare": encode / bare["encode_batch"],
                "identical_bytes": contents(Path(args.output_dir) / f"{size}-first")
                == contents(folder),
            }
        )
    show({"corpus": Path(args.corpus).name, "cores": cores, "rows": rows}, args.json)


if __name__ == "__main__":
    main()
