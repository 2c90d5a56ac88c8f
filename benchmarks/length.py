"""How speed and memory of a ModernBERT encoder go with the length of its rows, at equal tokens a
batch: ours against transformers' own (sdpa), forward and backward of masked language modelling.

    OMP_NUM_THREADS=1 python benchmarks/length.py [--size mini] [--lengths 512,1024,2048,4096,8192]
        [--tokens 8192] [--rounds 3] [--quick] [--json FILE] [--picture FILE.png]

Both have the shape of the recipe bert-modernbert-SIZE, the same weights, batch (full rows of one
sequence) and chosen tokens, of which alone logits are computed (`sparse_prediction` of the
library), autocast to bfloat16 where the device has it, and our setting of the C allocator. Their
first losses must agree. Each side of each length is a process of its own, which has the length's
peak of memory; the sides of a length take turns, and the ratio is the median over rounds of the
pair of one round.

Shape suffixes: R rows, L row length, T = R * L flat tokens, M chosen, V vocabulary, D width.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pairs import in_turns, ratios, spread, table, write_json
from sides import timed
from torch import Tensor

from electrify.architectures import architecture_named
from electrify.architectures.architecture import ExportedModel
from electrify.build import Vocabulary, build
from electrify.recipe import load, override
from electrify.tokens import Tokens
from electrify.train.machine import (
    describe,
    keep_memory,
    peak_memory_bytes,
    pick_device,
    supports_bf16,
)
from electrify.values import SpecialIds

SIDES = ("electrify", "transformers")
SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
CHOSEN = 0.15
AGREE = 0.02  # of two losses in bfloat16


class Batch:
    """Random ids, of which a share is chosen."""

    def __init__(self, rows: int, length: int, vocab_size: int) -> None:
        rng = torch.Generator().manual_seed(0)
        self.ids_RL = torch.randint(5, vocab_size, (rows, length), generator=rng)
        self.chosen_RL = torch.rand(rows, length, generator=rng) < CHOSEN
        self.masked_RL = self.ids_RL.masked_fill(self.chosen_RL, SPECIAL.mask)


def model_of(size: str, length: int, vocab_size: int) -> ExportedModel:
    """The encoder and the head that the recipe would train, with its initial values."""
    recipe = load(f"bert-modernbert-{size}")
    own = {"max_position_embeddings": length, "max_seq_length": length}
    config = override(recipe, own | {"dropout": 0.0, "attention_dropout": 0.0})
    return build(config, Vocabulary(vocab_size, SPECIAL)).discriminator


def ours(model: ExportedModel, batch: Batch, device: torch.device) -> Callable[[], Tensor]:
    encoder, head = model.encoder.to(device).train(), model.head.to(device).train()
    rows, length = batch.ids_RL.shape
    whole_T = torch.ones(rows * length, dtype=torch.long)  # a sequence fills its row
    place_T = torch.arange(length).repeat(rows)
    tokens = Tokens(
        batch.masked_RL.flatten(), whole_T, place_T, torch.zeros_like(whole_T), row_length=length
    ).to(device)
    at_M = batch.chosen_RL.flatten().nonzero()[:, 0].to(device)
    wanted_M = batch.ids_RL.flatten().to(device)[at_M]
    return lambda: F.cross_entropy(head(encoder(tokens)[at_M]).float(), wanted_M)


def theirs(model: ExportedModel, batch: Batch, device: torch.device) -> Callable[[], Tensor]:
    from transformers import ModernBertForMaskedLM

    shape = model.encoder.shape
    config = architecture_named("modernbert").hf_config(
        shape, "token", special=SPECIAL, dropout=0.0, attention_dropout=0.0
    )
    config.sparse_prediction = True
    config._attn_implementation = "sdpa"
    other: Any = ModernBertForMaskedLM(config)
    loaded = other.load_state_dict(model.exported(), strict=False)
    # Tied to the table of words.
    assert (loaded.missing_keys, loaded.unexpected_keys) == (["decoder.weight"], [])
    other.to(device).train()
    labels_RL = batch.ids_RL.masked_fill(~batch.chosen_RL, config.sparse_pred_ignore_index)
    given = {"input_ids": batch.masked_RL, "labels": labels_RL}
    given["attention_mask"] = torch.ones_like(batch.ids_RL)
    given = {name: x.to(device) for name, x in given.items()}
    return lambda: other(**given).loss


def work(side: str, size: str, rows: str, length: str, vocab: str, device_name: str) -> None:
    """The process of a side: answers its first loss, then each number of passes with the seconds of
    one, and at the end its peak memory in bytes."""
    keep_memory()
    torch.manual_seed(0)
    device = torch.device(device_name)
    model = model_of(size, int(length), int(vocab))
    batch = Batch(int(rows), int(length), int(vocab))
    loss_of = {"electrify": ours, "transformers": theirs}[side](model, batch, device)

    def loss() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=supports_bf16(device)):
            return loss_of()

    def step() -> None:
        loss().backward()

    first = loss()
    first.backward()
    print(float(first.detach()), flush=True)
    for line in sys.stdin:
        print(timed(step, int(line), device), flush=True)
    print(peak_memory_bytes(device))


class Worker:
    """A side in a process of its own."""

    def __init__(self, side: str, *words: Any) -> None:
        command = [sys.executable, __file__, "--worker", side, *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.loss = float(self.process.stdout.readline())

    def __call__(self) -> float:
        assert self.process.stdin
        assert self.process.stdout
        print(1, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def memory(self) -> int:
        """Ends it: peak memory in bytes."""
        return int(self.process.communicate()[0])


def measure(size: str, length: int, tokens: int, vocab: int, device: str, rounds: int) -> Any:
    rows = tokens // length
    workers = {side: Worker(side, size, rows, length, vocab, device) for side in SIDES}
    losses = [worker.loss for worker in workers.values()]
    assert abs(losses[0] - losses[1]) < AGREE, f"the sides compute other losses: {losses}"
    named: dict[str, Callable[[], float]] = dict(workers.items())
    seconds = in_turns(named, rounds=rounds, title=f"{rows} x {length}")
    memory = {side: worker.memory() for side, worker in workers.items()}
    return {"length": length, "rows": rows, "seconds": seconds, "peak_memory_bytes": memory}


def cells(found: dict[str, Any]) -> list[str]:
    seconds, memory = found["seconds"], found["peak_memory_bytes"]
    size = found["rows"] * found["length"]
    rates = [f"{size / statistics.median(seconds[side]):,.0f}" for side in SIDES]
    longer = spread(ratios(seconds["transformers"], seconds["electrify"]))
    gibibytes = [f"{memory[side] / 2**30:.2f} GiB" for side in SIDES]
    return [f"{found['rows']} x {found['length']}", *rates, longer, *gibibytes]


def draw(results: list[dict[str, Any]], title: str, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    lengths = [r["length"] for r in results]
    for side, color in zip(SIDES, ("C0", "C1"), strict=True):
        rates = [r["rows"] * r["length"] / statistics.median(r["seconds"][side]) for r in results]
        left.plot(lengths, rates, "o-", color=color, label=side)
        gibibytes = [r["peak_memory_bytes"][side] / 2**30 for r in results]
        right.plot(lengths, gibibytes, "o-", color=color, label=side)
    for panel, label in ((left, "tokens a second"), (right, "peak memory, GiB")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(lengths, [f"{n:,}" for n in lengths])
        panel.set(xlabel="tokens in a row", ylabel=label, ylim=(0, None))
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.legend(frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(picture, dpi=110)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--size", default="mini")
    p.add_argument("--lengths", default="512,1024,2048,4096,8192")
    p.add_argument("--tokens", type=int, default=8192, help="of a batch, at every length")
    p.add_argument("--vocab-size", type=int, default=30_522)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--device", default="auto")
    p.add_argument("--quick", action="store_true", help="two short lengths: does it run?")
    p.add_argument("--json", help="write the figures here too")
    p.add_argument("--picture")
    a = p.parse_args()
    device = pick_device(a.device)
    size, lengths, tokens, vocab, rounds = (
        ("tiny", "64,300", 600, 1000, 2)
        if a.quick
        else (a.size, a.lengths, a.tokens, a.vocab_size, a.rounds)
    )
    machine = describe(device)
    results = [
        measure(size, int(length), tokens, vocab, str(device), rounds)
        for length in lengths.split(",")
    ]
    header = ["batch", *(f"{side}, tokens/s" for side in SIDES), "transformers takes"]
    rows = [cells(found) for found in results]
    print(table([*header, *(f"{side}, memory" for side in SIDES)], rows))
    write_json(a.json, {"machine": machine, "size": size, "results": results})
    if a.picture:
        title = f"ModernBERT ({size}), {tokens:,} tokens a batch, {machine['device_name']}"
        draw(results, title, Path(a.picture))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
    else:
        main()
