"""Every way to compute attention against a softmax over the whole flat batch; attention by content
and distance. Shape suffixes as in model/attention.py and model/relative.py."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from batches import packed_batches, ragged_batch, sequences_of
from electrify.model import attention
from electrify.model.attention import AttentionContext, Backend, Direction, Reach, Rotary
from electrify.model.relative import RelativeContexts, buckets_of
from electrify.tokens import Tokens

ROTARY = Rotary(100.0, 8)


def pair_by_pair(
    qkv_TX: Tensor,
    tokens: Tokens,
    *,
    window: int | None = None,
    direction: Direction = "both",
    rotary: Rotary | None = None,
) -> Tensor:
    """[real tokens, 16] of two heads, in float64: a token sees those of its sequence at a distance
    of at most the window, both edges included, and on one side only those up to itself."""
    qkv_T3HW = qkv_TX.double().view(-1, 3, 2, 8)
    if rotary is not None:
        turn = rotary.turn(tokens.pos_T, torch.float64)
        qkv_T3HW = torch.cat([turn(qkv_T3HW[:, :2]), qkv_T3HW[:, 2:]], 1)
    q_HTW, k_HTW, v_HTW = qkv_T3HW[tokens.real_T].permute(1, 2, 0, 3)
    at_T = torch.arange(len(tokens.ids_T))
    name_T = at_T // tokens.row_length * 1000 + tokens.seq_T
    after_TT = at_T - at_T[:, None]
    seen_TT = name_T == name_T[:, None]
    if window is not None:
        seen_TT &= after_TT.abs() <= window
    if direction != "both":
        seen_TT &= (after_TT <= 0) if direction == "left" else (after_TT >= 0)
    seen_TT = seen_TT[tokens.real_T][:, tokens.real_T]
    scores_HTT = (q_HTW @ k_HTW.transpose(1, 2) / math.sqrt(8)).masked_fill(~seen_TT, -math.inf)
    return (scores_HTT.softmax(-1) @ v_HTW).transpose(0, 1).flatten(1)


def random_qkv(tokens: Tokens, dtype: torch.dtype = torch.float64, *, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(len(tokens.ids_T), 48, generator=rng, dtype=torch.float64).to(dtype)


def agree(
    tokens: Tokens, qkv_TX: Tensor, backend: Backend, *, within: float, **how: Any
) -> AttentionContext:
    """Fails where values or gradients differ from `pair_by_pair`, or padding is not finite."""
    direction = how.get("direction", "both")
    reach = Reach(rotary=how.get("rotary"), window=how.get("window"))
    context = AttentionContext(
        tokens, qkv_TX.dtype, backend=backend, direction=direction, reach=reach
    )
    ours, theirs = (qkv_TX.clone().requires_grad_() for _ in range(2))
    found_TD, wanted_TD = context(ours, heads=2), pair_by_pair(theirs, tokens, **how)
    assert found_TD.dtype == qkv_TX.dtype
    assert bool(found_TD.isfinite().all()), "also at padding"
    slope_TD = torch.arange(16.0, dtype=qkv_TX.dtype)
    (found_TD[tokens.real_T] * slope_TD).sum().backward()
    (wanted_TD * slope_TD).sum().backward()
    for one, other in ((found_TD[tokens.real_T], wanted_TD), (ours.grad, theirs.grad)):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one.double(), other.double(), rtol=within, atol=within)
    return context


@given(packed_batches(), st.sampled_from([0.1, 1.0, 10.0]), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_each_sequence_by_itself(tokens, scale, seed):
    qkv_TX = random_qkv(tokens, seed=seed)
    qkv_TX[:, :16] *= scale
    for backend in ("matmul", "sdpa"):
        agree(tokens, qkv_TX, backend, within=1e-10)
        narrow = AttentionContext(tokens, torch.float32, backend=backend)(qkv_TX.float(), 2)
        wanted = pair_by_pair(qkv_TX, tokens).float()
        torch.testing.assert_close(narrow[tokens.real_T], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["matmul", "sdpa"])
def test_dropout_is_on_the_weights(backend: Backend) -> None:
    """Kept weights are scaled up, so the mean over many rows stays; a single row changes."""
    none = torch.zeros(4000 * 2, dtype=torch.long)
    tokens = Tokens(none, none + 1, none, none, row_length=2)
    qkv_TX = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]).repeat(4000, 1)
    torch.manual_seed(0)
    out = AttentionContext(tokens, torch.float32, dropout=0.5, backend=backend)(qkv_TX, heads=1)
    assert sorted({round(float(x), 4) for x in out.flatten()}) == [0.0, 1.0, 3.0, 4.0]
    assert float(out.mean()) == pytest.approx(2.0, abs=0.1)


def slow_varlen(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, *, window: Any, dropout: float
) -> Tensor:
    """What the kernel for packed sequences computes, one run after the other."""
    assert not dropout
    assert starts.dtype == torch.int32
    out = []
    for a, b in pairwise(starts.tolist()):
        assert b - a <= longest
        scores = torch.einsum("qhw,khw->hqk", q[a:b], k[a:b]) / math.sqrt(q.shape[-1])
        if window is not None:
            far = (torch.arange(a, b)[:, None] - torch.arange(a, b)).abs() > window
            scores = scores.masked_fill(far, -math.inf)
        out.append(torch.einsum("hqk,khw->qhw", scores.softmax(-1), v[a:b]))
    return torch.cat(out)


@pytest.mark.parametrize("width", [4, 8, 64])
def test_the_kernel_for_packed_sequences_has_a_gradient(width: int) -> None:
    """Of every operand, whatever the width of a head; without data, as no CPU has the kernel."""
    starts = torch.empty(5, dtype=torch.int32, device="meta")
    q, k, v = (torch.empty(32, 2, width, device="meta", requires_grad=True) for _ in range(3))
    mixed = attention.varlen(q, k, v, starts, 16, window=3, dropout=0.1)
    assert mixed.shape == (32, 2, width)
    mixed.sum().backward()
    assert [x.grad.shape for x in (q, k, v) if x.grad is not None] == 3 * [mixed.shape]


def random_rows(row_length: int, *, seed: int) -> Tokens:
    """Two rows: sequences of random lengths with pads behind them, and one that fills its row."""
    rng = torch.Generator().manual_seed(seed)
    seq = torch.ones(2, row_length, dtype=torch.long)
    cuts = torch.randint(1, row_length, (3,), generator=rng).sort().values
    seq[0] = torch.bucketize(torch.arange(row_length), cuts, right=True) + 1
    seq[0, int(row_length * 0.9) :] = 0
    none = torch.zeros(2 * row_length, dtype=torch.long)
    pos = torch.arange(row_length).repeat(2)
    return Tokens(none, seq.flatten(), pos, none, row_length=row_length, runs=2 * row_length)


# Blocks are as long as the window, and at least 16 long; they do and do not divide the row.
WINDOWS = [
    *((None, 33), (1, 33), (1, 250)),
    *((16, n) for n in (31, 33, 48, 128)),
    *((17, n) for n in (34, 51, 250)),
    *((3, n) for n in (16, 33, 257)),
]


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize(("window", "row_length"), WINDOWS)
def test_windows_pair_by_pair(monkeypatch, direction, window, row_length):
    """Every way to compute them, for packed rows and a whole one, with rotary positions. The
    kernel's place is taken by a loop, so of its way it is the runs that are compared."""
    monkeypatch.setattr(attention, "varlen", slow_varlen)
    tokens = random_rows(row_length, seed=row_length)
    qkv_TX = random_qkv(tokens)
    backends: list[Backend] = ["matmul", "sdpa", "auto"]
    backends += ["varlen"] if direction == "both" else []
    backends += ["blocks"] if window else []
    how: dict[str, Any] = {"window": window, "direction": direction, "rotary": ROTARY}
    for backend in backends:
        made = agree(tokens, qkv_TX, backend, within=1e-10, **how)
        assert made.backend == ("blocks" if (backend, row_length) == ("auto", 257) else backend)
        agree(tokens, qkv_TX.float(), backend, within=1e-4, **how)


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


@pytest.mark.parametrize(("backend", "window"), [("matmul", None), ("sdpa", None), ("blocks", 16)])
def test_bfloat16_is_near(backend: Backend, window: int | None) -> None:
    """The lowest bfloat16 number plus a score must not overflow to a row of nothing but -inf."""
    tokens = random_rows(256, seed=3)
    qkv_TX = random_qkv(tokens, torch.bfloat16)
    qkv_TX[:, :16] *= 4
    qkv_TX.requires_grad_()
    how: dict[str, Any] = {"backend": backend, "reach": Reach(window=window)}
    out_TD = AttentionContext(tokens, torch.bfloat16, **how)(qkv_TX, heads=2)
    assert out_TD.dtype == torch.bfloat16
    wanted = pair_by_pair(qkv_TX, tokens, window=window)
    error = (out_TD[tokens.real_T].double() - wanted).detach().abs()
    assert float(error.max()) < 0.1
    assert float(error.mean()) < 0.01
    out_TD.float().sum().backward()
    assert bool(out_TD.isfinite().all())
    assert qkv_TX.grad is not None
    assert bool(qkv_TX.grad.isfinite().all())
    dropped = AttentionContext(tokens, torch.bfloat16, dropout=0.5, **how)
    assert not torch.equal(dropped(qkv_TX, heads=2), dropped(qkv_TX, heads=2))


# Buckets, and tokens of the longest row: the published ones, more distances than fit, fewer than
# have buckets of their own, and the least.
SIZES = [(256, 512), (256, 8192), (32, 512), (8, 600), (256, 160), (256, 100), (64, 33), (2, 40)]


@pytest.mark.parametrize(("buckets", "longest"), SIZES)
def test_buckets_are_the_library_s(buckets: int, longest: int) -> None:
    every = torch.arange(-longest + 1, longest)
    theirs = make_log_bucket_position(every, buckets, longest).long()
    assert torch.equal(buckets_of(every, buckets=buckets, longest=longest), theirs)


def contexts_of(
    *, width: int = 6, buckets: int = 8, longest: int = 64, direction: Direction = "both"
) -> RelativeContexts:
    made = RelativeContexts(
        width=width, buckets=buckets, longest=longest, eps=1e-7, direction=direction
    )
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=rng))
    return made.double()


@pytest.mark.parametrize("buckets", [2, 8, 256])
@pytest.mark.parametrize("direction", ["both", "left", "right"])
@torch.no_grad()
def test_attention_by_distance_is_its_definition(buckets: int, direction: Direction) -> None:
    """(q_i . k_j + q_i . kr(i - j) + k_j . qr(i - j)) / sqrt(3 W), sequence by sequence, in float64
    with 2 heads of width 3."""
    tokens, made = ragged_batch(), contexts_of(buckets=buckets, direction=direction)
    rng = torch.Generator().manual_seed(4)
    weight, bias, qkv_TX = (
        torch.randn(shape, generator=rng, dtype=torch.float64)
        for shape in ((12, 6), (12,), (len(tokens.ids_T), 18))
    )
    context = made(tokens, torch.float64, training=False)
    ours = context(qkv_TX, context.rows_ND @ weight.T + bias, 2)
    assert bool(ours.isfinite().all()), "also at padding"
    table = (made.norm(made.table.weight) @ weight.T + bias).view(-1, 2, 2, 3)
    for _, _, cut in sequences_of(tokens):
        q_LHW, k_LHW, v_LHW = qkv_TX[cut].view(-1, 3, 2, 3).unbind(1)
        at_L = torch.arange(len(q_LHW))
        distance_LL = at_L[:, None] - at_L
        rows_LL = buckets + buckets_of(distance_LL, buckets=buckets, longest=64)
        rq_LLHW, rk_LLHW = table[rows_LL].unbind(2)
        q, k = q_LHW[:, None], k_LHW[None]
        scores_LLH = (q * k + q * rk_LLHW + k * rq_LLHW).sum(-1) / math.sqrt(9)
        if direction != "both":
            hidden_LL = distance_LL < 0 if direction == "left" else distance_LL > 0
            scores_LLH = scores_LLH.masked_fill(hidden_LL[:, :, None], -math.inf)
        wanted = torch.einsum("qkh,khw->qhw", scores_LLH.softmax(1), v_LHW).flatten(1)
        torch.testing.assert_close(ours[cut], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_only_reachable_rows_are_given(length: int) -> None:
    """Those of the distances of a row of this length, and no other gets a gradient."""
    made = contexts_of()
    none = torch.zeros(length, dtype=torch.long)
    tokens = Tokens(none, none + 1, none, none, row_length=length)
    context = made(tokens, torch.float64, training=False)
    reached = set(buckets_of(torch.arange(1 - length, length), buckets=8, longest=64).tolist())
    assert len(context.rows_ND) == len(reached)
    context.rows_ND.square().sum().backward()
    grad = made.table.weight.grad
    assert grad is not None
    assert {int(n) - 8 for n in grad.any(1).nonzero()} == reached
