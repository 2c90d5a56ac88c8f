"""The sides of the benchmarks of a step: one update of ours, and of the composition that users
write; each runs in a process of its own.

    python benchmarks/sides.py SIDE SIZE ROWS LENGTH VOCAB DROPOUT DEVICE

reads a number of updates a line and answers with the seconds of one.
"""

from __future__ import annotations

import logging
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
from torch import Tensor, nn

from electrify.architectures import architecture_named
from electrify.build import Vocabulary, build, discriminator_shape, generator_shape
from electrify.data.loader import Loader
from electrify.data.phases import phases_of
from electrify.flop_counts import recipe_flops
from electrify.model.embeddings import Shape
from electrify.model.heads import HeadKind
from electrify.recipe import Recipe, load, names, override
from electrify.text.corpus import Corpus
from electrify.train.dist import World
from electrify.train.job import Job, TrainingData
from electrify.train.loop import Run
from electrify.train.machine import keep_memory, peak_memory_bytes, supports_bf16
from electrify.values import SpecialIds

sys.path.append(str(Path(__file__).parent.parent / "tests" / "data"))
from corpora import lognormal_lengths, write_corpus

QUICK = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "embedding_size": 32,
    "generator_size": 0.5,
}
WARM = 5  # updates that compile, and grow the memory


@dataclass(frozen=True)
class Case:
    """What the sides run. size: of a recipe electra-SIZE (tiny, ..., large, modernbert-small, ...),
    the name of another recipe, or quick."""

    size: str
    rows: int
    length: int
    vocab_size: int
    dropout: float
    device: torch.device

    @property
    def name(self) -> str:
        return (
            f"{self.size}, {self.rows} x {self.length}, {self.vocab_size} words, dropout "
            f"{self.dropout:g}"
        )

    @property
    def words(self) -> list[str]:
        """The case on a command line."""
        return [
            self.size,
            *map(str, (self.rows, self.length, self.vocab_size, self.dropout, self.device)),
        ]

    @property
    def bf16(self) -> bool:
        """Whether both sides compute in bfloat16, as a run does by default."""
        return supports_bf16(self.device)

    def config(self, **fields: Any) -> Recipe:
        shape = QUICK if self.size == "quick" else {}
        size = "small" if self.size == "quick" else self.size
        recipe = load(size if size in names() else f"electra-{size}")
        own = {
            "train_batch_size": self.rows,
            "max_seq_length": self.length,
            "dropout": self.dropout,
            "attention_dropout": self.dropout,
        }
        own["bf16"] = self.bf16
        own["max_position_embeddings"] = max(512, self.length)
        return override(recipe, shape | own | {"optim": "adamw", "init_words": "random"} | fields)

    def flops(self) -> float:
        """Of the matrix products of an update."""
        return recipe_flops(self.config(), vocab_size=self.vocab_size, convention="hardware").step


class Ours:
    """One update of `electrify pretrain`: batch, draws, forward, backward, clipping, optimiser, the
    sums for the log."""

    def __init__(
        self, case: Case, folder: Path, *, compiled: bool = False, world: World | None = None
    ) -> None:
        keep_memory()
        config = case.config(torch_compile=compiled)
        world = world or World(rank=0, size=1, device=case.device)
        corpus = write_corpus(
            folder / f"data-{world.rank}",
            [lognormal_lengths(500 if case.size == "quick" else 20_000)],
            vocab_size=case.vocab_size,
        )
        built = build(config, Vocabulary(case.vocab_size, corpus.manifest.special_ids))
        loader = Loader(
            Corpus(corpus.folder, "train"),
            phases=phases_of(config),
            num_segments=config.data.num_segments,
            seed=0,
        )
        data = TrainingData(loader, None, unigram_entropy=9.0)
        job = Job(config, folder, world, case.rows // world.size)
        self.run = Run(built.objective, job, data, discriminator=built.discriminator_names())

    def __call__(self) -> None:
        self.run.update(self.run.batch(self.run.step))


def electra_pair(case: Case) -> tuple[Any, Any]:
    """ELECTRA's generator and discriminator as transformers has them, with one table."""
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    model = case.config().model
    common: dict[str, Any] = {
        "vocab_size": case.vocab_size, "embedding_size": model.embedding_size,
        "max_position_embeddings": model.max_position_embeddings,
        "hidden_dropout_prob": case.dropout, "attention_probs_dropout_prob": case.dropout,
        "num_hidden_layers": model.num_hidden_layers,
    }  # fmt: skip
    own = model.generator_numbers()
    numbers = ("hidden_size", "num_attention_heads", "intermediate_size")
    generator = ElectraForMaskedLM(ElectraConfig(**common, **{k: own[k] for k in numbers}))
    discriminator = ElectraForPreTraining(
        ElectraConfig(**common, **{k: getattr(model, k) for k in numbers})
    )
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    discriminator.label_dtype = torch.float32
    return generator, discriminator


def labelled_pair(case: Case) -> tuple[Any, Any]:
    """Two networks of transformers for the architecture of the case, of which the second gives two
    labels a token."""
    import transformers

    model = case.config().model
    architecture = architecture_named(model.architecture)
    special = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    shapes: dict[HeadKind, Shape] = {
        "token": generator_shape(model, case.vocab_size),
        "binary": discriminator_shape(model, case.vocab_size),
    }
    generator, discriminator = (
        getattr(transformers, architecture.classes[kind])(
            architecture.hf_config(
                shape, kind, special=special, dropout=case.dropout, attention_dropout=case.dropout
            )
        )
        for kind, shape in shapes.items()
    )
    discriminator.label_dtype = torch.long
    return generator, discriminator


def modernbert_pair(case: Case) -> tuple[Any, Any]:
    """Two ModernBERTs of transformers with one table."""
    generator, discriminator = labelled_pair(case)
    generator.model.embeddings = discriminator.model.embeddings
    generator.decoder.weight = discriminator.model.embeddings.tok_embeddings.weight
    return generator, discriminator


def deberta_pair(case: Case) -> tuple[Any, Any]:
    """Two DeBERTas of transformers with one table, which both train: ours also keeps a table of
    differences."""
    generator, discriminator = labelled_pair(case)
    generator.deberta.embeddings = discriminator.deberta.embeddings
    return generator, discriminator


PAIRS: dict[str, Callable[[Case], tuple[Any, Any]]] = {
    "electra": electra_pair,
    "modernbert": modernbert_pair,
    "deberta": deberta_pair,
}


class Composition:
    """Generator and discriminator of transformers, and the update around them."""

    def __init__(self, case: Case, *, compiled: bool = False) -> None:
        self.device, self.case = case.device, case
        self.generator, self.discriminator = PAIRS[case.config().model.architecture](case)
        both = nn.ModuleList([self.generator, self.discriminator]).to(case.device).train()
        self.parameters = list(both.parameters())
        self.bf16 = case.bf16
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, weight_decay=0.01)
        self.ids = torch.from_numpy(
            np.random.default_rng(0).integers(5, case.vocab_size, (64, case.rows, case.length))
        ).to(case.device)
        self.ids[:, :, 0], self.ids[:, :, -1], self.at = 2, 3, 0
        self.g: Callable[..., Any] = torch.compile(self.generator) if compiled else self.generator
        self.d: Callable[..., Any] = (
            torch.compile(self.discriminator) if compiled else self.discriminator
        )

    def loss(self) -> Tensor:
        ids, self.at = self.ids[self.at % 64], self.at + 1
        attention = torch.ones_like(ids)
        chosen = (torch.rand(ids.shape, device=self.device) < 0.15) & (ids > 4)
        chosen[:, 1] = True  # a short batch may have drawn none, and there is no sample of none
        masked = torch.where(chosen & (torch.rand(ids.shape, device=self.device) < 0.85), 4, ids)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            mlm = self.g(
                input_ids=masked, attention_mask=attention, labels=torch.where(chosen, ids, -100)
            )
            with torch.no_grad():
                sampled = torch.distributions.Categorical(
                    logits=mlm.logits[chosen].float()
                ).sample()
            replaced = ids.masked_scatter(chosen, sampled)
            labels = (replaced != ids).to(self.discriminator.label_dtype)
            rtd = self.d(input_ids=replaced, attention_mask=attention, labels=labels)
        return mlm.loss + 50 * rtd.loss

    def __call__(self) -> None:
        loss = self.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


SIDES = (
    "electrify",
    "electrify compiled",
    "transformers",
    "transformers compiled",
    "transformers, memory kept",
)


def side_of(name: str, case: Case, folder: Path) -> Callable[[], None]:
    """memory kept: with the setting of the allocator that ours makes."""
    if name.endswith("memory kept"):
        keep_memory()
    compiled = name.endswith("compiled")
    return (
        Ours(case, folder, compiled=compiled)
        if name.startswith("electrify")
        else Composition(case, compiled=compiled)
    )


class Worker:
    """A process of its own for a side, so that neither lives with the other's settings, caches and
    memory. `ready` waits until it is warm, so several can be started side by side."""

    def __init__(self, case: Case, side: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, side, *case.words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.send(WARM)

    def ready(self) -> None:
        self.receive()

    def __call__(self, updates: int) -> float:
        """Seconds of one of so many updates."""
        self.send(updates)
        return self.receive()

    def send(self, updates: int) -> None:
        assert self.process.stdin
        print(updates, file=self.process.stdin, flush=True)

    def receive(self) -> float:
        assert self.process.stdout
        return float(self.process.stdout.readline())

    def memory(self) -> int:
        """Ends it: peak memory in bytes."""
        return int(self.process.communicate()[0])


def timed(step: Callable[[], None], updates: int, device: torch.device) -> float:
    """Seconds of one of so many updates."""
    wait(device)
    began = time.perf_counter()
    for _ in range(updates):
        step()
    wait(device)
    return (time.perf_counter() - began) / updates


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(
    side: str, size: str, rows: str, length: str, vocab: str, dropout: str, device: str
) -> None:
    logging.disable(logging.WARNING)
    case = Case(size, int(rows), int(length), int(vocab), float(dropout), torch.device(device))
    with tempfile.TemporaryDirectory() as folder:
        step = side_of(side, case, Path(folder))
        for line in sys.stdin:
            print(timed(step, int(line), case.device), flush=True)
    print(peak_memory_bytes(case.device))


if __name__ == "__main__":
    main(*sys.argv[1:])
