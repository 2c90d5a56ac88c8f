"""What only a GPU can show: that an update never waits for the device, and that its numbers are
those of the CPU. Skipped where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import running
import torch
from torch import Tensor

from batches import text_batch
from electrify.model.attention import AttentionContext, Reach, Rotary
from electrify.recipe import Recipe
from electrify.tokens import Tokens, mapped
from electrify.train.graphs import WARM
from electrify.train.loop import Run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
KINDS = "bert electra electra-15 replace-mlm all-tokens-mlm corrective teams amos adversarial"
KINDS += " electric unigram electra-modernbert electra-deberta"
RECIPES = [f"{kind}-tiny" for kind in KINDS.split()]


def recipe(name: str, **fields: Any) -> Recipe:
    own = {"max_steps": 20, "train_batch_size": 8, "init_words": "random"}
    return running.recipe(name, **own | fields)


def after(
    steps: int, device: str, data: Path, folder: Path, recipe: Recipe, *, micro_rows: int = 4
) -> Run:
    """A run after so many updates."""
    run = running.run_of(data, folder, recipe, micro_rows=micro_rows, device=device)
    for step in range(steps):
        run.update(run.batch(step))
    return run


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
    config = recipe(name, optim=optim, bf16=True, dropout=0.1, attention_dropout=0.1)
    run = after(3, "cuda", small_data, tmp_path, config)
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
        config = recipe(name, torch_compile=compiled and device == "cuda")
        found.append(after(3, device, small_data, tmp_path, config).state.sums.means())
    assert found[0] == pytest.approx(found[1], rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("optim", ["adamw", "electra_adam"])
@pytest.mark.parametrize("name", ["electra-tiny", "bert-tiny", "corrective-tiny"])
def test_a_graph_has_the_numbers_of_the_loop(
    small_data: Path, tmp_path: Path, name: str, optim: str
) -> None:
    """Compiled, in float32 and with dropout: the same draws, so only the order of sums differs. The
    replay of a graph never waits."""
    fields = {"torch_compile": True, "dropout": 0.1, "attention_dropout": 0.1, "optim": optim}
    how = {"micro_rows": 8}
    runs = [after(0, "cuda", small_data, tmp_path, recipe(name, **fields), **how) for _ in range(2)]
    runs[1].graphs = None
    for run in runs:
        for step in range(WARM + 3):
            run.update(run.batch(step))
    assert runs[0].graphs is not None, "the capture has failed"
    assert len(runs[0].graphs.captured) == 1
    losses = [[float(figures[2]) for _, figures in run.state.guard._unread] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert len(set(losses[0])) == len(losses[0])
    means = [run.state.sums.means() for run in runs]
    assert means[0] == pytest.approx(means[1], rel=2e-3, abs=1e-4)
    for n, p in runs[0].state.named.items():
        torch.testing.assert_close(p, runs[1].state.named[n], rtol=1e-3, atol=1e-4, msg=n)
    batch = runs[0].batch(WARM + 3)
    with nobody_waits():
        runs[0].update(batch)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["electra-tiny", "bert-tiny", "electra-modernbert-tiny"])
def test_bfloat16_on_a_gpu_is_that_of_the_cpu(
    small_data: Path, tmp_path: Path, name: str, compiled: bool
) -> None:
    """Losses and norms of three updates to 2 %. Draws from logits that are rounded otherwise may
    differ. Compiled, the gradients of biases are summed elsewhere (train/rewrites.py)."""
    found = []
    for device in ("cpu", "cuda"):
        compile_it = compiled and device == "cuda"
        config = recipe(name, bf16=True, torch_compile=compile_it, max_seq_length=32)
        run = after(3, device, small_data, tmp_path, config, micro_rows=8)  # 256 tokens
        means = run.state.sums.means()
        found.append({k: means[k] for k in (*run.weights, "grad_norm")})
    assert found[0] == pytest.approx(found[1], rel=0.02)


@pytest.mark.parametrize("graphs", [False, True])
def test_memory_of_a_long_run_does_not_grow(small_data: Path, tmp_path: Path, graphs: bool) -> None:
    config = recipe("electra-tiny", bf16=True, torch_compile=graphs)
    run = after(5, "cuda", small_data, tmp_path, config, micro_rows=8)
    before = torch.cuda.memory_allocated()
    for step in range(5, 20):
        run.update(run.batch(step))
    assert torch.cuda.memory_allocated() <= before * 1.05


@pytest.mark.parametrize("window", [1, 4, None])
def test_the_kernel_for_packed_sequences_has_our_windows(window: int | None) -> None:
    """The same keys at the edges as the mask, and the same gradient, in bfloat16, with turned
    queries and keys."""
    tokens = mapped(replace(text_batch(seed=0, rows=3, row_length=64), runs=96), Tensor.cuda)
    reach = Reach(rotary=Rotary(10_000.0, 16), window=window)
    rng = torch.Generator().manual_seed(0)
    given = torch.randn(len(tokens.ids_T), 3 * 32, generator=rng).to("cuda", torch.bfloat16)
    results = []
    for dtype, backend in ((torch.bfloat16, "varlen"), (torch.float32, "sdpa")):
        made = AttentionContext(tokens, dtype, reach=reach)
        if dtype == torch.float32:
            made = AttentionContext(tokens, dtype, backend="sdpa", reach=reach)
        assert made.backend == backend
        qkv = given.to(dtype, copy=True).requires_grad_()
        out = made(qkv, heads=2)
        (out * tokens.real_T[:, None]).sum().backward()
        assert qkv.grad is not None
        results.append((out[tokens.real_T].float(), qkv.grad[tokens.real_T].float()))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, atol=0.03, rtol=0.03)


def dropped(tokens: Tokens, qkv: Tensor, seed: int, rate: float = 0.25) -> Tensor:
    """[T, H, W]: what that kernel makes of queries, keys and values."""
    torch.manual_seed(seed)
    made = AttentionContext(tokens, torch.bfloat16, dropout=rate)
    assert made.backend == "varlen"
    return made(qkv, heads=2).view(len(qkv), 2, -1)


def test_dropout_of_that_kernel_on_single_weights() -> None:
    """Each token is a sequence of its own, so its one weight is 1: kept or not, in the forward and
    in the backward pass, by each head on its own."""
    size = 64 * 64
    alone = torch.arange(64).repeat(64) + 1
    tokens = replace(text_batch(seed=0, rows=64, row_length=64), seq_T=alone, runs=size)
    tokens = mapped(tokens, Tensor.cuda)
    rng = torch.Generator().manual_seed(0)
    qkv = torch.randn(size, 3 * 32, generator=rng).to("cuda", torch.bfloat16).requires_grad_()
    v_THW = qkv.detach().view(size, 3, 2, 16)[:, 2]
    out_THW = dropped(tokens, qkv, seed=0)
    kept_TH = out_THW.ne(0).any(-1)
    torch.testing.assert_close(
        out_THW, v_THW * kept_TH[:, :, None] / 0.75, rtol=0.02, atol=0.02, check_dtype=False
    )
    assert kept_TH.float().mean().item() == pytest.approx(0.75, abs=0.02)
    differ = (kept_TH[:, 0] != kept_TH[:, 1]).float().mean().item()
    assert differ == pytest.approx(2 * 0.75 * 0.25, abs=0.03)
    out_THW.sum().backward()
    assert qkv.grad is not None
    slope_THW = qkv.grad.view(size, 3, 2, 16)[:, 2].float()
    torch.testing.assert_close(
        slope_THW, (kept_TH[:, :, None] / 0.75).expand_as(slope_THW), rtol=0.02, atol=0.02
    )
    again, another = (dropped(tokens, qkv, seed=seed).ne(0).any(-1) for seed in (0, 1))
    assert torch.equal(again, kept_TH)
    assert not torch.equal(another, kept_TH)


def test_dropout_of_that_kernel_in_packed_rows() -> None:
    """Its mean over many draws is the result without dropout. The result is linear in the values,
    so both passes have dropped the same weights if <out, g> = <v, gradient of v>."""
    tokens = mapped(replace(text_batch(seed=0, rows=3, row_length=64), runs=96), Tensor.cuda)
    rng = torch.Generator().manual_seed(0)
    qkv = torch.randn(len(tokens.ids_T), 3 * 32, generator=rng).to("cuda", torch.bfloat16)
    qkv.requires_grad_()
    out_THW = dropped(tokens, qkv, seed=0)
    g_THW = torch.randn(out_THW.shape, generator=rng).to("cuda", torch.bfloat16)
    out_THW.backward(g_THW)
    assert qkv.grad is not None
    v_THW, slope_THW = (x.view(-1, 3, 2, 16)[:, 2].double() for x in (qkv.detach(), qkv.grad))
    assert (v_THW * slope_THW).sum().item() == pytest.approx(
        (out_THW.double() * g_THW.double()).sum().item(), rel=0.02, abs=2.0
    )
    with torch.no_grad():
        mean_THW = torch.stack([dropped(tokens, qkv, seed).float() for seed in range(400)]).mean(0)
        plain_THW = dropped(tokens, qkv, seed=0, rate=0.0).float()
    # The standard deviation of a mean is at most 3 / sqrt(3 * 400) for values of size 3.
    assert (mean_THW - plain_THW).abs().mean().item() < 0.05
    assert (out_THW.float() - plain_THW).abs().mean().item() > 0.02


def test_windows_without_that_kernel_are_computed_by_blocks() -> None:
    """In float32: the numbers of the masked row, and memory that grows with the row's length."""
    found, peaks = [], []
    for backend, length in (("auto", 1024), ("sdpa", 1024), ("auto", 8192)):
        tokens = mapped(text_batch(seed=0, rows=1, row_length=length), Tensor.cuda)
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
