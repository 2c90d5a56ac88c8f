"""Fine-tuning against transformers' Trainer, as its example script `run_glue.py` sets it up: same
model, task, batch, precision, updates.

    OMP_NUM_THREADS=1 python benchmarks/finetune.py MODEL --task sst2 --data-dir GLUE \
        [--examples 2048] [--rounds 5] [--quick] [--json result.json]

The sides take turns in one process; each round is one epoch over the same examples, timed without
loading and tokenising. Ratios are medians over rounds of the pair of one round. The script pads
every example to 128 tokens by default; padding to the longest of a batch is its option, and the
third side. Needs `accelerate` (a dependency of Trainer, not of electrify).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from electrify.finetuning import loop
from electrify.finetuning.known import read_task
from electrify.finetuning.model import (
    computing_in_bf16,
    default_rates,
    learning_rates,
    load_encoder,
)
from electrify.finetuning.options import FinetuneSettings
from electrify.finetuning.problems import Texts
from electrify.finetuning.tasks import TaskData, tasks_named
from electrify.train.machine import pick_device

BATCH, LENGTH = 32, 128


def ours(
    model: str, task: TaskData, examples: list[Any], *, bf16: bool, device: torch.device
) -> float:
    """Seconds of an epoch."""
    reader = load_encoder(model, device=device)
    problem = Texts(reader, task.kind, task.labels, max_seq_length=LENGTH)
    net = problem.net(dropout=0.1)
    if bf16:
        computing_in_bf16(net.encoder)
    peak, decay = default_rates(reader.width)
    rates = learning_rates(net, peak=peak, decay=decay)
    rows = problem.training(examples)
    settings = FinetuneSettings(per_device_train_batch_size=BATCH)
    began = time.perf_counter()
    for _ in loop.train(net, problem, rows, settings, rates=rates, epochs=1, seed=0):
        pass
    return time.perf_counter() - began


def trainer(
    model: str,
    task: TaskData,
    examples: list[Any],
    *,
    bf16: bool,
    padding: str,
    device: torch.device,
) -> float:
    """Seconds of an epoch. padding: max_length (the script's default) or longest."""
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        default_data_collator,
    )

    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(task.labels))
    pairs = [e.pair for e in examples] if examples[0].pair is not None else None
    whole = {"padding": "max_length"} if padding == "max_length" else {}
    rows = dict(
        tokenizer([e.text for e in examples], pairs, truncation=True, max_length=LENGTH, **whole)
    )
    data = Dataset.from_dict({**rows, "label": [int(e.label) for e in examples]})
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=3e-4,
            bf16=bf16, use_cpu=device.type == "cpu",
            report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        collate = (
            default_data_collator if padding == "max_length" else DataCollatorWithPadding(tokenizer)
        )
        run = Trainer(
            model=net,
            args=options,
            train_dataset=data,
            processing_class=tokenizer,
            data_collator=collate,
        )
        began = time.perf_counter()
        run.train()
        return time.perf_counter() - began


def table(seconds: dict[str, list[float]], n: int) -> str:
    lines = ["| side | examples/s | ratio to electrify |", "|---|---:|---:|"]
    first = next(iter(seconds.values()))
    for name, times in seconds.items():
        ratios = sorted(t / own for t, own in zip(times, first, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})"
        lines.append(f"| {name} | {n / statistics.median(times):,.0f} | {spread} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("model")
    p.add_argument("--task", default="sst2")
    p.add_argument("--data-dir", required=True)
    p.add_argument("--examples", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--quick", action="store_true", help="64 examples, one round: does it run?")
    p.add_argument("--json", help="write the result here too")
    a = p.parse_args()
    logging.disable(logging.WARNING)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    task = read_task(tasks_named([a.task])[0], a.data_dir)
    n, rounds = (64, 1) if a.quick else (a.examples, a.rounds)
    examples: list[Any] = list(task.train[:n])
    device = pick_device("auto")
    common: dict[str, Any] = {"bf16": loop.computes_in_bf16("auto", device), "device": device}
    sides: dict[str, Callable[[], float]] = {
        "electrify": lambda: ours(a.model, task, examples, **common),
        "Trainer, padded to 128 (the script's default)": lambda: trainer(
            a.model, task, examples, padding="max_length", **common
        ),
        "Trainer, padded to the longest": lambda: trainer(
            a.model, task, examples, padding="longest", **common
        ),
    }
    if not a.quick:
        for side in sides.values():  # the first call of each pays for imports and allocations
            side()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(rounds):
        order = list(sides) if k % 2 == 0 else list(sides)[::-1]
        for name in order:
            seconds[name].append(sides[name]())
    shown = (
        f"{a.task}, {len(examples):,} examples, batch {BATCH}, "
        f"{'bf16' if common['bf16'] else 'float32'}, {device}, {torch.get_num_threads()} threads"
    )
    print(shown + "\n\n" + table(seconds, len(examples)))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as stream:
            json.dump({"what": shown, "seconds": seconds}, stream, indent=1)


if __name__ == "__main__":
    main()
