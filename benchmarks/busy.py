"""A busy machine: what training makes beside 0, 1 and 2 processes that only count, against one
thread and against OpenMP as it comes.

    python benchmarks/busy.py [--works pretrain,finetune] [--busy 0,1,2] [--rounds 7]
        [--seconds 4] [--spins 100,10000] [--quick] [--json FILE]

Run it on a machine that is otherwise idle: it makes its own neighbours. Works: `pretrain`, updates
of electra-tiny with the 8,192 words of the demo, batches made ahead as in a run; `finetune`, the
demo's fine-tuning of that encoder on texts of 20 to 100 tokens. Sides, each a process of its own:

    one thread      --threads 1: what the others are held against
    default         --threads auto, chosen when the neighbours were there already
    later           all threads, as chosen on an idle machine before the neighbours came
    as it comes     all threads, and OpenMP told nothing (torch is loaded first): the way of before

The sides take turns; each turn trains for so many seconds. Given are tokens a second (medians) and
the median of the ratios to `one thread` in the same round. --spins adds sides like `later` with
other values of GOMP_SPINCOUNT. Goal: `default` and `later` at least .8 of one thread with
neighbours, and without them `default` at least .95 of `as it comes`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pairs import ratios, spread, table, write_json

from electrify.process import OWN_CHOICES, cores, wait_briefly
from electrify.progress import Progress

SIDES = ("one thread", "default", "later", "as it comes")
WORKS = ("pretrain", "finetune")
ROWS, LENGTH, WORDS, WIDTH = 64, 64, 8192, 128  # of electra-tiny, and of the demo's tokenizer
EXAMPLES, SHORTEST, LONGEST = (
    32,
    20,
    100,
)  # of the demo's fine-tuning: an update, and the tokens of a docstring


# ------------------------------------------------------------------ in a process of its own


def pretraining(folder: Path, *, quick: bool) -> Callable[[], int]:
    """An update of electra-tiny, answering with its tokens."""
    import torch
    from sides import Case, Ours

    from electrify.data.loader import prefetch

    case = (
        Case("quick", 4, 32, 1000, 0.0, torch.device("cpu"))
        if quick
        else Case("tiny", ROWS, LENGTH, WORDS, 0.0, torch.device("cpu"))
    )
    run = Ours(case, folder).run
    batches = prefetch(run.batch, range(10**6))

    def update() -> int:
        run.update(next(batches))
        return case.rows * case.length

    return update


def fine_tuning(*, quick: bool) -> Callable[[], int]:
    """An update of the demo's fine-tuning (classification, AdamW, its way of cutting batches into
    pieces), answering with its tokens."""
    import torch
    from transformers import ElectraConfig, ElectraForSequenceClassification

    from electrify.finetuning.loop import computes_in_bf16, most_tokens, pieces
    from electrify.train.machine import keep_memory

    keep_memory()
    cpu, rng = torch.device("cpu"), torch.Generator().manual_seed(0)
    width, layers = (32, 1) if quick else (WIDTH, 4)
    shape = {
        "hidden_size": width,
        "embedding_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": 4 * width,
    }
    net = ElectraForSequenceClassification(
        ElectraConfig(vocab_size=WORDS, num_attention_heads=4, num_labels=8, **shape)
    ).train()
    optimizer, bf16 = torch.optim.AdamW(net.parameters(), lr=3e-4), computes_in_bf16("auto", cpu)
    lengths_N = torch.randint(SHORTEST, LONGEST, (1000,), generator=rng)

    def update() -> int:
        index_B = torch.randint(len(lengths_N), (EXAMPLES,), generator=rng)
        for part_B in pieces(index_B, lengths_N, most_tokens(cpu)):
            longest = int(lengths_N[part_B].max())
            ids = torch.randint(5, WORDS, (len(part_B), longest), generator=rng)
            mask = (torch.arange(longest) < lengths_N[part_B][:, None]).long()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = (
                    net(input_ids=ids, attention_mask=mask, labels=part_B % 8).loss
                    * len(part_B)
                    / EXAMPLES
                )
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return int(lengths_N[index_B].sum())

    return update


def work(side: str, name: str, quick: bool) -> None:
    """Says its number of threads; then reads seconds, a line each, and answers with the tokens a
    second that it made."""
    if side != "as it comes":
        wait_briefly()
    import torch

    from electrify.train.machine import choose_threads

    given = {"one thread": "1", "default": "auto"}.get(side, str(cores()))
    threads = choose_threads(
        given, device=torch.device("cpu"), width=WIDTH, tokens=ROWS * LENGTH, bf16=True
    )
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        update = (
            pretraining(Path(folder), quick=quick)
            if name == "pretrain"
            else fine_tuning(quick=quick)
        )
        update()
        print(threads, flush=True)
        for line in sys.stdin:
            print(rate(update, float(line)), flush=True)
    os._exit(0)  # the batches made ahead are not waited for


def rate(update: Callable[[], int], seconds: float) -> float:
    """Tokens a second of the updates that begin within so many seconds. The first one, which is not
    counted, wakes the threads."""
    update()
    began, tokens = time.perf_counter(), 0
    while True:
        tokens += update()
        took = time.perf_counter() - began
        if took >= seconds:
            return tokens / took


# ------------------------------------------------------------------ beside it


class Side:
    """A process that trains when it is asked to."""

    def __init__(self, side: str, name: str, *, quick: bool) -> None:
        environment = {
            k: v
            for k, v in os.environ.items()
            if k not in (*OWN_CHOICES, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        }
        if side.startswith("spins "):
            environment["GOMP_SPINCOUNT"] = side.removeprefix("spins ")
        words = [sys.executable, __file__, "--worker", side, name, *(["quick"] if quick else [])]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.threads = int(self._answer())

    def __call__(self, seconds: float) -> float:
        assert self.process.stdin
        print(seconds, file=self.process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def end(self) -> None:
        self.process.communicate()


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that only count. They end with this one, however it ends."""
    code = (
        "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in "
        "range(10**6): pass"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(
    name: str, busy: int, sides: list[str], *, rounds: int, seconds: float, quick: bool
) -> dict[str, Any]:
    """Tokens a second of every side in every round, beside so many neighbours."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    with ExitStack() as held:
        held.enter_context(neighbours(busy))
        workers: dict[str, Side] = {}
        for side in sides:
            workers[side] = Side(side, name, quick=quick)
            held.callback(workers[side].end)
        bar = held.enter_context(
            Progress(rounds * len(sides), title=f"{name}, {busy} busy", unit="turns")
        )
        for k in range(rounds):
            for side in sides[:: 1 if k % 2 == 0 else -1]:
                rates[side].append(workers[side](seconds))
                bar.advance(1, side)
        threads = {side: worker.threads for side, worker in workers.items()}
    return {"work": name, "busy": busy, "threads": threads, "tokens_per_s": rates}


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    rates = result["tokens_per_s"]
    cells = []
    for side, found in rates.items():
        share = "1" if side == "one thread" else spread(ratios(found, rates["one thread"]))
        cells.append(
            [
                f"{result['work']}, {result['busy']} busy: {side}",
                str(result["threads"][side]),
                f"{statistics.median(found):,.0f}",
                share,
            ]
        )
    return cells


def main() -> None:
    if "--worker" in sys.argv:
        side, name, *quick = sys.argv[sys.argv.index("--worker") + 1 :]
        work(side, name, bool(quick))
        return
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--works", default=",".join(WORKS))
    p.add_argument("--busy", default="0,1,2", help="numbers of neighbours")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=4.0, help="of a side's turn")
    p.add_argument(
        "--spins", default="", help="also all threads with these values of GOMP_SPINCOUNT"
    )
    p.add_argument(
        "--quick",
        action="store_true",
        help="tiny models, one neighbour, one round, without `later`: does it run?",
    )
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    sides = [
        *(side for side in SIDES if side != "later" or not a.quick),
        *(f"spins {n}" for n in a.spins.split(",") if n),
    ]
    busy, rounds, seconds = (
        ([1], 1, 0.1) if a.quick else ([int(n) for n in a.busy.split(",")], a.rounds, a.seconds)
    )
    print(f"{cores()} cores\n")
    results = [
        measure(name, n, sides, rounds=rounds, seconds=seconds, quick=a.quick)
        for name in a.works.split(",")
        for n in busy
    ]
    print(
        table(
            ["work and side", "threads", "tokens/s", "of one thread's, in turns"],
            [row for r in results for row in rows_of(r)],
        )
    )
    write_json(a.json, results)


if __name__ == "__main__":
    main()
