"""Shape suffixes as in model/attention.py: R rows, L row length, H heads, W head width."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from batches import packed_batches, ragged_batch, sequences_of
from electrify.model import attention
from electrify.model.attention import (
    AttentionContext,
    Backend,
    Direction,
    Reach,
    attend,
    run_starts,
    sequence_bias,
)
from electrify.model.positions import Rotary
from electrify.tokens import Tokens


def heads(
    tokens: Tokens, *, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (tokens.num_rows, 2, tokens.row_length, 8)
    rng = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(shape, generator=rng) for _ in range(3))
    return (
        (scale * q).to(dtype).requires_grad_(),
        k.to(dtype).requires_grad_(),
        v.to(dtype).requires_grad_(),
    )


def reference(q_RHLW: Tensor, k_RHLW: Tensor, v_RHLW: Tensor, tokens: Tokens) -> Tensor:
    """Each sequence for itself, in float64; padding stays 0."""
    out = torch.zeros_like(v_RHLW, dtype=torch.float64)
    for row, _, cut in sequences_of(tokens):
        inside = slice(cut.start - row * tokens.row_length, cut.stop - row * tokens.row_length)
        q, k, v = (t[row, :, inside].double() for t in (q_RHLW, k_RHLW, v_RHLW))
        out[row, :, inside] = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v
    return out


def real(tokens: Tokens) -> Tensor:
    return tokens.real_T.view(tokens.num_rows, 1, tokens.row_length, 1)


@given(packed_batches(), st.sampled_from([0.1, 1.0, 10.0]), st.integers(0, 1000))
@settings(max_examples=40)
def test_both_backends_compute_each_sequence_for_itself(tokens, scale, seed):
    q, k, v = heads(tokens, seed=seed, scale=scale)
    bias = sequence_bias(tokens, torch.float32)
    expected = reference(q, k, v, tokens).detach()
    for backend in ("matmul", "sdpa"):
        got = attend(q, k, v, bias, dropout=0.0, backend=backend).detach()
        assert bool(got.isfinite().all()), "also at padding"
        torch.testing.assert_close(got.double() * real(tokens), expected, rtol=1e-5, atol=1e-5)


def test_backends_agree_forward_and_backward_in_float32() -> None:
    tokens = ragged_batch()
    bias = sequence_bias(tokens, torch.float32)
    results = []
    for backend in ("matmul", "sdpa"):
        q, k, v = heads(tokens)
        out = attend(q, k, v, bias, dropout=0.0, backend=backend)
        (out * real(tokens) * torch.arange(8.0)).sum().backward()
        results.append((out, q.grad, k.grad, v.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["matmul", "sdpa"])
def test_bfloat16_is_near(backend: Backend) -> None:
    """The lowest bfloat16 number plus a score must not overflow to a row of nothing but -inf."""
    tokens = ragged_batch()
    q, k, v = heads(tokens, scale=4.0, dtype=torch.bfloat16)
    out = attend(q, k, v, sequence_bias(tokens, torch.bfloat16), dropout=0.0, backend=backend)
    assert out.dtype == torch.bfloat16
    assert bool(out.isfinite().all())
    error = (out.double() * real(tokens) - reference(q, k, v, tokens)).detach().abs()
    assert float(error.max()) < 0.1
    assert float(error.mean()) < 0.01
    out.float().sum().backward()
    assert all(t.grad is not None and bool(t.grad.isfinite().all()) for t in (q, k, v))


def test_by_hand() -> None:
    """Two sequences of 2 and 1 tokens and a pad, one head of width 1. Scores of token 0: 0 and ln
    3, so weights 1/4 and 3/4."""
    tokens = Tokens(
        torch.zeros(4, dtype=torch.long),
        torch.tensor([1, 1, 2, 0]),
        *torch.zeros(2, 4, dtype=torch.long),
        row_length=4,
    )
    q = torch.ones(1, 1, 4, 1)
    k = torch.tensor([0.0, math.log(3), 50.0, 60.0]).view(1, 1, 4, 1)
    v = torch.tensor([4.0, 8.0, 100.0, -7.0]).view(1, 1, 4, 1)
    for backend in ("matmul", "sdpa", "auto"):
        out = attend(q, k, v, sequence_bias(tokens, torch.float32), dropout=0.0, backend=backend)
        assert out.flatten().tolist() == pytest.approx([7, 7, 100, -7])


@pytest.mark.parametrize("backend", ["matmul", "sdpa"])
def test_dropout_is_on_the_weights(backend: Backend) -> None:
    """Kept weights are scaled up, so the mean over many rows stays; a single row changes."""
    rows = 4000
    none = torch.zeros(rows * 2, dtype=torch.long)
    tokens = Tokens(none, none + 1, none, none, row_length=2)
    q, k = torch.zeros(rows, 1, 2, 1), torch.zeros(rows, 1, 2, 1)
    v = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1).expand(rows, -1, -1, -1)
    torch.manual_seed(0)
    out = attend(q, k, v, sequence_bias(tokens, torch.float32), dropout=0.5, backend=backend)
    assert sorted({round(float(x), 4) for x in out.flatten()}) == [0.0, 1.0, 3.0, 4.0]
    assert float(out.mean()) == pytest.approx(2.0, abs=0.1)


def test_where_runs_begin_by_hand() -> None:
    """Two rows of six: sequences of 2 and 3 and a pad; a sequence of 6. Four runs, room for two
    more."""
    seq = torch.tensor([1, 1, 2, 2, 2, 0, 1, 1, 1, 1, 1, 1])
    tokens = Tokens(*torch.zeros(4, 12, dtype=torch.long), row_length=6)
    for runs, behind in ((4, []), (6, [12, 12])):
        found = run_starts(replace(tokens, seq_T=seq, runs=runs))
        assert found.tolist() == [0, 2, 5, 6, 12, *behind]
        assert found.dtype == torch.int32


def slow_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    longest: int,
    *,
    window: int | None,
    dropout: float,
) -> Tensor:
    """What the kernel for packed sequences computes, one run after the other."""
    assert not dropout
    out = torch.zeros_like(v)
    for a, b in pairwise(starts.tolist()):
        assert b - a <= longest
        scores = torch.einsum("qhw,khw->hqk", q[a:b], k[a:b]) / math.sqrt(q.shape[-1])
        if window is not None:
            far = (torch.arange(a, b)[:, None] - torch.arange(a, b)).abs() > window
            scores = scores.masked_fill(far, -math.inf)
        weights = scores.softmax(-1)
        out[a:b] = torch.einsum("hqk,khw->qhw", weights, v[a:b])
    return out


@pytest.mark.parametrize("width", [4, 8, 64])
def test_the_kernel_for_packed_sequences_has_a_gradient(width: int) -> None:
    """Of every operand, whatever the width of a head; without data, as no CPU has the kernel."""
    starts = torch.empty(5, dtype=torch.int32, device="meta")
    q, k, v = (torch.empty(32, 2, width, device="meta", requires_grad=True) for _ in range(3))
    mixed = attention.varlen(q, k, v, starts, 16, window=3, dropout=0.1)
    assert mixed.shape == (32, 2, width)
    mixed.sum().backward()
    assert [x.grad.shape for x in (q, k, v) if x.grad is not None] == 3 * [mixed.shape]


@pytest.mark.parametrize("window", [None, 3])
def test_both_layouts_turn_and_cut_alike(monkeypatch, window):
    """The kernel for packed sequences, its place taken by a loop, gets turned queries and keys and
    the window."""
    monkeypatch.setattr(attention, "varlen", slow_varlen)
    tokens = ragged_batch()
    runs = len(tokens.ids_T)
    qkv = torch.randn(len(tokens.ids_T), 3 * 16, generator=torch.Generator().manual_seed(0))
    reach = Reach(rotary=Rotary(100.0, 8), window=window)
    wanted = AttentionContext(tokens, torch.float32, backend="sdpa", reach=reach)(qkv, heads=2)
    for backend in ("matmul", "varlen"):
        made = AttentionContext(
            replace(tokens, runs=runs), torch.float32, backend=backend, reach=reach
        )
        torch.testing.assert_close(made(qkv, heads=2), wanted, atol=1e-5, rtol=1e-5)
    plain = AttentionContext(tokens, torch.float32, reach=Reach(window=window))(qkv, heads=2)
    assert float((plain - wanted).abs().max()) > 1e-2, "turned or not is seen"


def pair_by_pair(qkv_TX: Tensor, tokens: Tokens, window: int) -> Tensor:
    """[T, 16] of two heads, in float64: a token sees those of its sequence at a distance of at most
    the window, both edges included. Padding stays 0."""
    q_THW, k_THW, v_THW = qkv_TX.double().view(-1, 3, 2, 8).unbind(1)
    out_THW = torch.zeros_like(v_THW)
    for _, _, cut in sequences_of(tokens):
        for i in range(cut.start, cut.stop):
            seen = [j for j in range(cut.start, cut.stop) if -window <= i - j <= window]
            scores_HJ = torch.einsum("hw,jhw->hj", q_THW[i], k_THW[seen]) / math.sqrt(8)
            out_THW[i] = torch.einsum("hj,jhw->hw", scores_HJ.softmax(-1), v_THW[seen])
    return out_THW.flatten(1)


@pytest.mark.parametrize("backend", ["matmul", "sdpa", "blocks", "varlen", "auto"])
@pytest.mark.parametrize(
    ("window", "row_length"),
    [
        *((16, n) for n in (31, 33, 48)),  # blocks are as long as the window
        *((17, n) for n in (34, 51)),
        *((3, n) for n in (16, 33, 257)),  # and at least 16 long
    ],
)
def test_windows_pair_by_pair(monkeypatch, backend, window, row_length):
    """Every way to compute them in float64, for packed rows and a whole one. The kernel's place is
    taken by a loop, so of its way it is the runs that are compared."""
    monkeypatch.setattr(attention, "varlen", slow_varlen)
    tokens = random_rows(row_length, seed=row_length)
    tokens = replace(tokens, runs=len(tokens.ids_T))
    reach = Reach(window=window)
    rng = torch.Generator().manual_seed(window)
    qkv = torch.randn(2 * row_length, 48, generator=rng, dtype=torch.float64)
    context = AttentionContext(tokens, torch.float64, backend=backend, reach=reach)
    assert context.backend == ("blocks" if (backend, row_length) == ("auto", 257) else backend)
    found = context(qkv, heads=2)[tokens.real_T]
    wanted = pair_by_pair(qkv, tokens, window)[tokens.real_T]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    narrow = AttentionContext(tokens, torch.float32, backend=backend, reach=reach)(
        qkv.float(), heads=2
    )
    torch.testing.assert_close(narrow[tokens.real_T].double(), wanted, rtol=1e-5, atol=1e-5)


def random_rows(row_length: int, *, seed: int) -> Tokens:
    """Two rows: sequences of random lengths with pads behind them, and one that fills its row."""
    rng = torch.Generator().manual_seed(seed)
    seq = torch.ones(2, row_length, dtype=torch.long)
    cuts = torch.randint(1, row_length, (3,), generator=rng).sort().values
    seq[0] = torch.bucketize(torch.arange(row_length), cuts, right=True) + 1
    seq[0, int(row_length * 0.9) :] = 0
    none = torch.zeros(2 * row_length, dtype=torch.long)
    pos = torch.arange(row_length).repeat(2)
    return Tokens(none, seq.flatten(), pos, none, row_length=row_length)


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize("window", [1, 16, 17])
@pytest.mark.parametrize("row_length", [33, 128, 250])
def test_blocks_are_the_masked_row(direction: Direction, window: int, row_length: int) -> None:
    """Forward and backward, for rows that blocks do and do not divide."""
    tokens = random_rows(row_length, seed=window)
    reach = Reach(rotary=Rotary(100.0, 8), window=window)
    found = []
    for backend in ("matmul", "blocks"):
        context = AttentionContext(
            tokens, torch.float32, direction=direction, backend=backend, reach=reach
        )
        rng = torch.Generator().manual_seed(0)
        qkv = torch.randn(2 * row_length, 48, generator=rng).requires_grad_()
        out = context(qkv, heads=2)
        (out * tokens.real_T[:, None] * torch.arange(16.0)).sum().backward()
        assert bool(out.isfinite().all()), "also at padding"
        found.append((out[tokens.real_T], qkv.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_blocks_where_they_pay() -> None:
    """At most half of the products of the row; their memory grows with the length and not with its
    square."""
    kinds = {}
    for window, row_length in ((12, 255), (12, 256), (12, 512), (64, 383), (64, 384)):
        tokens = random_rows(row_length, seed=0)
        context = AttentionContext(tokens, torch.float32, reach=Reach(window=window))
        kinds[window, row_length] = context.backend, context.where.numel()
    assert kinds == {
        (12, 255): ("auto", 2 * 255 * 255),
        (12, 256): ("blocks", 2 * 256 * 48),
        (12, 512): ("blocks", 2 * 512 * 48),
        (64, 383): ("auto", 2 * 383 * 383),
        (64, 384): ("blocks", 2 * 384 * 192),
    }
    assert AttentionContext(random_rows(512, seed=0), torch.float32).backend == "auto"


def test_blocks_in_bfloat16_and_with_dropout() -> None:
    tokens = random_rows(256, seed=3)
    reach = Reach(window=16)
    qkv = torch.randn(512, 48, generator=torch.Generator().manual_seed(0)).bfloat16()
    near, far = (
        AttentionContext(tokens, torch.bfloat16, backend=backend, reach=reach)(qkv, heads=2)
        for backend in ("blocks", "matmul")
    )
    torch.testing.assert_close(near[tokens.real_T], far[tokens.real_T], rtol=0.05, atol=0.05)
    dropped = AttentionContext(tokens, torch.float32, dropout=0.5, reach=reach)
    assert dropped.backend == "blocks"
    assert not torch.equal(dropped(qkv.float(), heads=2), dropped(qkv.float(), heads=2))
