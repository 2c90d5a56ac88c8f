"""Buckets of distances against a reference in float64, and attention by content and distance
against a sum that is written pair by pair. Shape suffixes as in model/relative.py."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from batches import packed_batches, ragged_batch, sequences_of
from electrify.model.attention import Direction
from electrify.model.relative import RelativeContexts, buckets_of
from electrify.tokens import Tokens

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


def pair_by_pair(
    tokens: Tokens, qkv_TX: Tensor, of_row: Any, heads: int, *, direction: Direction = "both"
) -> Tensor:
    """The definition: (q_i . k_j + q_i . kr(i - j) + k_j . qr(i - j)) / sqrt(3 W), sequence by
    sequence. of_row: distance -> query and key [H, W] of its row of the table."""
    q_THW, k_THW, v_THW = qkv_TX.view(len(qkv_TX), 3, heads, -1).unbind(1)
    out = torch.zeros_like(q_THW)
    for _, _, cut in sequences_of(tokens):
        for i in range(cut.start, cut.stop):
            seen = {
                "both": (cut.start, cut.stop),
                "left": (cut.start, i + 1),
                "right": (i, cut.stop),
            }
            at = range(*seen[direction])
            scores = []
            for j in at:
                rq_HW, rk_HW = of_row(i - j)
                one = q_THW[i] * k_THW[j] + q_THW[i] * rk_HW + k_THW[j] * rq_HW
                scores.append(one.sum(-1) / math.sqrt(3 * q_THW.shape[-1]))
            weights_NH = torch.stack(scores).softmax(0)
            out[i] = (weights_NH[:, :, None] * v_THW[at.start : at.stop]).sum(0)
    return out.flatten(1)


def both(
    tokens: Tokens, *, buckets: int = 8, direction: Direction = "both"
) -> tuple[Tensor, Tensor, Tensor]:
    """Ours, the definition, and what is real of them, in float64 with 2 heads of width 3."""
    made = contexts_of(buckets=buckets, direction=direction)
    rng = torch.Generator().manual_seed(4)
    weight = torch.randn(12, 6, generator=rng).double()
    bias = torch.randn(12, generator=rng).double()
    qkv_TX = torch.randn(len(tokens.ids_T), 18, generator=rng).double()
    with torch.no_grad():
        context = made(tokens, torch.float64, training=False)
        ours = context(qkv_TX, context.rows_ND @ weight.T + bias, 2)
        table = made.norm(made.table.weight) @ weight.T + bias

        def of_row(distance: int) -> tuple[Tensor, Tensor]:
            row = int(buckets_of(torch.tensor([distance]), buckets=buckets, longest=64))
            q_HW, k_HW = table[buckets + row].view(2, 2, 3).unbind(0)
            return q_HW, k_HW

        expected = pair_by_pair(tokens, qkv_TX, of_row, 2, direction=direction)
    return ours, expected, tokens.real_T


@pytest.mark.parametrize("buckets", [2, 8, 256])
@pytest.mark.parametrize("direction", ["both", "left", "right"])
def test_attention_is_its_definition(buckets: int, direction: Direction) -> None:
    tokens = ragged_batch()
    ours, expected, real_T = both(tokens, buckets=buckets, direction=direction)
    torch.testing.assert_close(ours[real_T], expected[real_T], rtol=1e-12, atol=1e-12)
    assert bool(ours.isfinite().all()), "also at padding"


@given(packed_batches(row_length=12, max_rows=2))
@settings(max_examples=15, deadline=None)
def test_packed_rows_are_the_sequences_by_themselves(tokens: Tokens) -> None:
    ours, expected, real_T = both(tokens)
    torch.testing.assert_close(ours[real_T], expected[real_T], rtol=1e-12, atol=1e-12)


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
