"""What only a GPU can show: that an update never waits for the device, and that its numbers are
those of the CPU. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from batches import text_batch
from electrify.build import Vocabulary, build
from electrify.data.loader import Loader
from electrify.data.phases import phases_of
from electrify.model.attention import AttentionContext, Reach
from electrify.model.positions import Rotary
from electrify.recipe import Recipe, load, override
from electrify.text.corpus import Corpus
from electrify.train.dist import World
from electrify.train.loop import Run
from electrify.train.start import discriminator_names
from electrify.train.state import RunContext, TrainingData
from small import SMALL

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
KINDS = "bert electra electra-15 replace-mlm all-tokens-mlm corrective teams amos adversarial"
KINDS += " electric unigram electra-modernbert electra-deberta"
RECIPES = [f"{kind}-tiny" for kind in KINDS.split()]


def recipe(name: str, **fields: Any) -> Recipe:
    return override(
        load(name),
        SMALL | {"max_steps": 20, "train_batch_size": 8, "init_words": "random"} | fields,
    )


def run_on(device: str, data: Path, folder: Path, config: Recipe) -> Run:
    corpus = Corpus(data, "train")
    built = build(
        config,
        Vocabulary(
            corpus.manifest.vocab_size,
            corpus.manifest.special_ids,
            counts_V=torch.from_numpy(corpus.unigram()),
        ),
    )
    world = World(rank=0, size=1, device=torch.device(device))
    loader = Loader(corpus, phases=phases_of(config), num_segments=config.data.num_segments, seed=0)
    read, context = TrainingData(loader, None, 4, unigram_entropy=6.0), RunContext(world, folder)
    return Run(built.objective, config, read, context, discriminator=discriminator_names(built))


@contextmanager
def nobody_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("optim", ["adamw", "electra_adam"])
@pytest.mark.parametrize("name", RECIPES)
def test_an_update_never_waits(small_data: Path, tmp_path: Path, name: str, optim: str) -> None:
    run = run_on(
        "cuda",
        small_data,
        tmp_path,
        recipe(name, optim=optim, bf16=True, dropout=0.1, attention_dropout=0.1),
    )
    for step in range(3):
        run.update(run.batch(step))
    batch = run.batch(3)
    with nobody_waits():
        run.update(batch)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", RECIPES)
def test_the_numbers_are_those_of_the_cpu(
    small_data: Path, tmp_path: Path, name: str, compiled: bool
) -> None:
    """Losses and norms of three updates in float32; the draws agree to the bit, so only rounding
    differs."""
    found = []
    for device in ("cpu", "cuda"):
        run = run_on(
            device,
            small_data,
            tmp_path / device,
            recipe(name, torch_compile=compiled and device == "cuda"),
        )
        for step in range(3):
            run.update(run.batch(step))
        found.append(run.state.sums.means())
    assert found[0] == pytest.approx(found[1], rel=2e-3, abs=1e-4)


def test_memory_of_a_long_run_does_not_grow(small_data: Path, tmp_path: Path) -> None:
    run = run_on("cuda", small_data, tmp_path, recipe("electra-tiny", bf16=True))
    for step in range(5):
        run.update(run.batch(step))
    before = torch.cuda.memory_allocated()
    for step in range(5, 20):
        run.update(run.batch(step))
    assert torch.cuda.memory_allocated() <= before * 1.05


@pytest.mark.parametrize("window", [1, 4, None])
def test_the_kernel_for_packed_sequences_has_our_windows(window: int | None) -> None:
    """The same keys at the edges as the mask, in bfloat16, with turned queries and keys."""
    tokens = replace(text_batch(seed=0, rows=3, row_length=64), runs=96).to("cuda")
    reach = Reach(rotary=Rotary(10_000.0, 16), window=window)
    rng = torch.Generator().manual_seed(0)
    qkv = torch.randn(len(tokens.ids_T), 3 * 32, generator=rng).to("cuda", torch.bfloat16)
    made = AttentionContext(tokens, torch.bfloat16, reach=reach)
    assert made.backend == "varlen"
    masked = AttentionContext(tokens, torch.float32, backend="sdpa", reach=reach)
    found, wanted = made(qkv, heads=2).float(), masked(qkv.float(), heads=2)
    torch.testing.assert_close(found[tokens.real_T], wanted[tokens.real_T], atol=0.03, rtol=0.03)


def test_windows_without_that_kernel_are_computed_by_blocks() -> None:
    """In float32: the numbers of the masked row, and memory that grows with the row's length."""
    found, peaks = [], []
    for backend, length in (("auto", 1024), ("sdpa", 1024), ("auto", 8192)):
        tokens = text_batch(seed=0, rows=1, row_length=length).to("cuda")
        rng = torch.Generator().manual_seed(0)
        qkv = torch.randn(length, 3 * 32, generator=rng).cuda().requires_grad_()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        made = AttentionContext(tokens, torch.float32, backend=backend, reach=Reach(window=16))
        out = made(qkv, heads=2)
        (out * tokens.real_T[:, None]).sum().backward()
        assert made.backend == ("blocks" if backend == "auto" else "sdpa")
        found.append((out[tokens.real_T].detach(), qkv.grad))
        peaks.append(torch.cuda.max_memory_allocated() - before)
    for one, other in zip(found[0], found[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert peaks[2] < 12 * peaks[0]
