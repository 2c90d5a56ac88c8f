"""The pre-training step against the composition that users write from transformers: same shapes, dropout, precision and updates.

    OMP_NUM_THREADS=1 python benchmarks/step.py [--sizes small,base] [--batches 16x128] [--dropout 0,0.1] [--rounds 9] [--quick] [--json FILE]

The other side is ElectraForMaskedLM and ElectraForPreTraining with tied embeddings, labels for the masked positions, samples from
torch.distributions.Categorical, AdamW and bf16 autocast, as written in the issues and repositories that ask for ELECTRA pre-training; eager and
compiled. Its rows are full, ours are packed from documents (so ours also keeps sequences apart), and ours includes the loader, the logged rates and
the check of the gradient norm. Each side is a process of its own (ours sets the allocator of its process), and they take turns; ratios are medians
over rounds of the pair of one round. Share of peak: FLOPs of the matrix products that the method asks for, over those of plain products here.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pairs import in_turns, ratios, spread, table, write_json
from torch import Tensor, nn

from electrify.build import Vocabulary, build
from electrify.config.pretrain import PretrainConfig, load_recipe, override
from electrify.data.loader import Loader
from electrify.data.phases import phases_of
from electrify.flops.count import recipe_flops
from electrify.running import kept_names
from electrify.text.shards import Corpus
from electrify.train.allocator import keep_memory
from electrify.train.device import describe, peak_memory_bytes, pick_device
from electrify.train.dist import World
from electrify.train.loop import Run
from electrify.train.peak import measure_peak

sys.path.append(str(Path(__file__).parent.parent / "tests" / "data"))
from corpora import lognormal_lengths, write_corpus

VOCAB = 30_522
TINY = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128, "embedding_size": 32, "generator_size": 0.5}


@dataclass(frozen=True)
class Case:
    """What both sides run."""

    size: str
    rows: int
    length: int
    dropout: float
    device: torch.device

    @property
    def name(self) -> str:
        return f"{self.size}, {self.rows} x {self.length}, dropout {self.dropout:g}"

    def config(self, **fields: Any) -> PretrainConfig:
        shape = TINY | {"max_position_embeddings": max(128, self.length)} if self.size == "quick" else {}
        recipe = load_recipe(f"electra-{'small' if self.size == 'quick' else self.size}")
        own = {"train_batch_size": self.rows, "max_seq_length": self.length, "dropout": self.dropout, "attention_dropout": self.dropout}
        return override(recipe, shape | own | {"optim": "adamw", "eval_steps": 0, "report_to": "none"} | fields)


class Ours:
    """One update of `electrify pretrain`."""

    def __init__(self, case: Case, folder: Path, *, compiled: bool = False) -> None:
        keep_memory()
        config = case.config(torch_compile=compiled)
        data = folder / "data"
        corpus = Corpus(data, "train") if data.exists() else write_corpus(data, [lognormal_lengths(20_000)], vocab_size=VOCAB)
        built = build(config, Vocabulary(VOCAB, corpus.manifest.special_ids))
        loader = Loader(corpus, phases=phases_of(config), num_segments=config.data.num_segments, seed=0)
        world = World(rank=0, size=1, local_rank=0, device=case.device)
        more: dict[str, Any] = {"kept": kept_names(built), "valid": None, "folder": folder, "world": world, "micro_rows": case.rows}
        weights = config.objective.term_weights
        self.run = Run(built.objective, config.train, weights=weights, loader=loader, fingerprint={}, unigram_entropy=9.0, **more)

    def __call__(self) -> None:
        self.run.update(self.run.batch(self.run.step))


class Composition(nn.Module):
    """Generator and discriminator of transformers, and the update around them."""

    def __init__(self, case: Case, *, compiled: bool = False) -> None:
        from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

        super().__init__()
        model, self.device, self.case = case.config().model, case.device, case
        common: dict[str, Any] = {
            "vocab_size": VOCAB, "embedding_size": model.embedding_size, "max_position_embeddings": model.max_position_embeddings,
            "hidden_dropout_prob": case.dropout, "attention_probs_dropout_prob": case.dropout, "num_hidden_layers": model.num_hidden_layers,
        }  # fmt: skip
        own = model.generator_numbers()
        numbers = ("hidden_size", "num_attention_heads", "intermediate_size")
        self.generator = ElectraForMaskedLM(ElectraConfig(**common, **{k: own[k] for k in numbers}))
        self.discriminator = ElectraForPreTraining(ElectraConfig(**common, **{k: getattr(model, k) for k in numbers}))
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight
        self.to(case.device).train()
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=1e-4, weight_decay=0.01)
        self.ids = torch.from_numpy(np.random.default_rng(0).integers(5, VOCAB, (64, case.rows, case.length))).to(case.device)
        self.ids[:, :, 0], self.ids[:, :, -1], self.at = 2, 3, 0
        self.g: Callable[..., Any] = torch.compile(self.generator) if compiled else self.generator
        self.d: Callable[..., Any] = torch.compile(self.discriminator) if compiled else self.discriminator

    def forward(self) -> Tensor:
        ids, self.at = self.ids[self.at % 64], self.at + 1
        attention = torch.ones_like(ids)
        chosen = (torch.rand(ids.shape, device=self.device) < 0.15) & (ids > 4)
        masked = torch.where(chosen & (torch.rand(ids.shape, device=self.device) < 0.85), 4, ids)
        with torch.autocast(self.device.type, torch.bfloat16):
            mlm = self.g(input_ids=masked, attention_mask=attention, labels=torch.where(chosen, ids, -100))
            with torch.no_grad():
                sampled = torch.distributions.Categorical(logits=mlm.logits[chosen].float()).sample()
            replaced = ids.masked_scatter(chosen, sampled)
            rtd = self.d(input_ids=replaced, attention_mask=attention, labels=(replaced != ids).float())
        return mlm.loss + 50 * rtd.loss

    def __call__(self) -> None:
        loss = self.forward()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def side_of(name: str, case: Case, folder: Path) -> Callable[[], None]:
    compiled = name.endswith("compiled")
    return Ours(case, folder, compiled=compiled) if name.startswith("electrify") else Composition(case, compiled=compiled)


def work(step: Callable[[], None], device: torch.device) -> None:
    """Takes as many updates as each line of the input says and answers with the seconds of one; at the end of the input with the peak memory."""
    for line in sys.stdin:
        repeats = int(line)
        wait(device)
        began = time.perf_counter()
        for _ in range(repeats):
            step()
        wait(device)
        print((time.perf_counter() - began) / repeats, flush=True)
    print(peak_memory_bytes(device))


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Worker:
    """A process of its own for a side, so that neither lives with the other's settings, caches and memory."""

    def __init__(self, case: Case, side: str) -> None:
        words = [sys.executable, __file__, "--worker", side, "--sizes", case.size, "--batches", f"{case.rows}x{case.length}"]
        words += ["--dropout", str(case.dropout), "--device", str(case.device)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, repeats: int) -> float:
        assert self.process.stdin
        assert self.process.stdout
        print(repeats, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def memory(self) -> int:
        return int(self.process.communicate()[0])


def measure(case: Case, sides: list[str], *, rounds: int, repeats: int) -> dict[str, Any]:
    workers = {name: Worker(case, name) for name in sides}
    for worker in workers.values():
        worker(5)  # the first updates compile, and grow the memory
    seconds = in_turns({name: lambda w=worker: w(repeats) for name, worker in workers.items()}, rounds=rounds, title=case.name)
    memory = {name: worker.memory() for name, worker in workers.items()}
    flops = recipe_flops(case.config(), vocab_size=VOCAB, convention="hardware").step
    return {"case": case.name, "tokens": case.rows * case.length, "flops": flops, "seconds": seconds, "peak_memory_bytes": memory}


def report(result: dict[str, Any], peak: float) -> str:
    base = result["seconds"]["electrify"] if "electrify" in result["seconds"] else next(iter(result["seconds"].values()))
    rows = []
    for name, times in result["seconds"].items():
        median = statistics.median(times)
        rows.append(
            [
                name,
                f"{result['tokens'] / median:,.0f}",
                "1" if times is base else spread(ratios(times, base)),
                f"{100 * result['flops'] / median / peak:.0f} %",
                f"{result['peak_memory_bytes'][name] / 2**30:.2f} GB",
            ]
        )
    header = [result["case"], "tokens/s", "time, in electrify's", "of the peak", "memory"]
    return table(header, rows)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sizes", default="small")
    p.add_argument("--batches", default="16x128", help="ROWSxLENGTH,...")
    p.add_argument("--dropout", default="0,0.1")
    p.add_argument("--sides", default=";".join(("electrify", "transformers", "transformers, compiled")), help="names between semicolons")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--repeats", type=int, default=1, help="updates of each side in a round")
    p.add_argument("--device", default="auto")
    p.add_argument("--quick", action="store_true", help="a tiny model and two rounds: does it run?")
    p.add_argument("--json", help="write the figures here too")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    a = p.parse_args()
    logging.disable(logging.WARNING)
    device = pick_device(a.device)
    sizes, batches, rounds = ("quick", "4x32", 2) if a.quick else (a.sizes, a.batches, a.rounds)
    shapes = [tuple(int(n) for n in batch.split("x")) for batch in batches.split(",")]
    cases = [Case(size, *shape, float(drop), device) for size in sizes.split(",") for shape in shapes for drop in a.dropout.split(",")]
    if a.worker:
        with tempfile.TemporaryDirectory() as folder:
            work(side_of(a.worker, cases[0], Path(folder)), device)
        return
    sides = [name for name in a.sides.split(";") if not a.quick or "compiled" not in name]
    machine = describe(device)
    peak = measure_peak(device, torch.bfloat16, seconds=0.2 if a.quick else 2.0)
    print(
        f"{machine['device_name']}, {machine['threads']} threads, torch {machine['torch']}, bf16; peak of plain products {peak / 1e9:,.0f} GFLOP/s\n"
    )
    results = []
    for case in cases:
        results.append(measure(case, sides, rounds=rounds, repeats=a.repeats))
        print(report(results[-1], peak) + "\n", flush=True)
    write_json(a.json, {"machine": machine, "peak": peak, "results": results})


if __name__ == "__main__":
    main()
