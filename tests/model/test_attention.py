"""Shape suffixes as in model/attention.py: R rows, L row length, H heads, W head width."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from batches import packed_batches, ragged_batch, sequences_of
from electrify.model.attention import Backend, attend, sequence_bias
from electrify.tokens import Tokens


def heads(tokens: Tokens, *, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    shape = (tokens.num_rows, 2, tokens.row_length, 8)
    rng = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(shape, generator=rng) for _ in range(3))
    return (scale * q).to(dtype).requires_grad_(), k.to(dtype).requires_grad_(), v.to(dtype).requires_grad_()


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
def test_both_backends_compute_each_sequence_for_itself(tokens: Tokens, scale: float, seed: int) -> None:
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
    """Two sequences of 2 and 1 tokens and a pad, one head of width 1. Scores of token 0: 0 and ln 3, so weights 1/4 and 3/4."""
    tokens = Tokens(torch.zeros(4, dtype=torch.long), torch.tensor([1, 1, 2, 0]), *torch.zeros(2, 4, dtype=torch.long), row_length=4)
    q = torch.ones(1, 1, 4, 1)
    k = torch.tensor([0.0, math.log(3), 50.0, 60.0]).view(1, 1, 4, 1)
    v = torch.tensor([4.0, 8.0, 100.0, -7.0]).view(1, 1, 4, 1)
    for backend in ("matmul", "sdpa", "auto"):
        out = attend(q, k, v, sequence_bias(tokens, torch.float32), dropout=0.0, backend=backend)
        assert out.flatten().tolist() == pytest.approx([7, 7, 100, -7])


def test_bias_by_hand() -> None:
    tokens = Tokens(torch.zeros(4, dtype=torch.long), torch.tensor([1, 1, 2, 0]), *torch.zeros(2, 4, dtype=torch.long), row_length=4)
    open_ = sequence_bias(tokens, torch.float32)[0, 0] == 0
    assert open_.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert float(sequence_bias(tokens, torch.bfloat16).min()) == torch.finfo(torch.bfloat16).min


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
