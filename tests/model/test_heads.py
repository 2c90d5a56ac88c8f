from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from batches import VOCAB, built, ragged_batch, text_batch
from electrify.model.heads import BinaryHead, LMHead, MaskedLM
from electrify.model.shape import Shape

SHAPE = Shape(
    vocab_size=3,
    embedding_size=2,
    hidden_size=2,
    num_hidden_layers=1,
    num_attention_heads=1,
    intermediate_size=2,
    max_position_embeddings=8,
)


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def test_binary_head_by_hand() -> None:
    """w . gelu(W h) with biases: h = (1, -1), W h + b = (2, .5), out 3 gelu(2) - gelu(.5) + .25."""
    head = BinaryHead(SHAPE)
    with torch.no_grad():
        head.dense.weight.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.5]]))
        head.dense.bias.copy_(torch.tensor([0.0, 1.0]))
        head.out.weight.copy_(torch.tensor([[3.0, -1.0]]))
        head.out.bias.fill_(0.25)
    logits = head(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))
    assert logits.shape == (2,)
    assert logits[0].item() == pytest.approx(3 * 1.954500 - 0.345731 + 0.25, abs=1e-5)
    assert logits[1].item() == pytest.approx(3 * gelu(0) - gelu(1) + 0.25, abs=1e-6)


def test_lm_head_by_hand() -> None:
    """Width 2, so LayerNorm leaves (1, -1) before its weight (2, 3) and bias (0, 1): (2, -2). Words
    (1, 0), (0, 1), (1, 1), bias (0, 0, 10)."""
    words = nn.Embedding(3, 2)
    head = LMHead(SHAPE, words)
    assert head.bias_V.tolist() == [0, 0, 0]
    with torch.no_grad():
        words.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        head.dense.weight.copy_(torch.eye(2))
        head.dense.bias.zero_()
        head.norm.weight.copy_(torch.tensor([2.0, 3.0]))
        head.norm.bias.copy_(torch.tensor([0.0, 1.0]))
        head.bias_V[2] = 10.0
    assert head(torch.tensor([[3.0, 1.0]]))[0].tolist() == pytest.approx([2, -2, 10], abs=1e-5)


def test_input_and_output_table_are_one() -> None:
    lm = built("bert-tiny").kept
    assert isinstance(lm.head, LMHead)
    assert lm.head.words is lm.encoder.embeddings.words
    assert (
        sum(
            p.shape == lm.head.words.weight.shape for p in built("bert-tiny").objective.parameters()
        )
        == 1
    )


def test_logits_only_where_asked() -> None:
    half = built("bert-tiny").kept
    assert isinstance(half.head, LMHead)
    tokens = ragged_batch()
    at = torch.tensor([3, 7, 33])
    logits = MaskedLM(half.encoder, half.head)(tokens, at)
    assert logits.shape == (3, VOCAB)
    torch.testing.assert_close(logits, half.head(half.encoder(tokens))[at], rtol=1e-5, atol=1e-6)
    assert MaskedLM(half.encoder, half.head)(tokens, at[:0]).shape == (0, VOCAB)


def test_heads_run_under_autocast() -> None:
    b = built("electra-tiny")
    tokens = text_batch(seed=0, rows=2, row_length=32)
    for half in b.exports.values():
        exact = half.head(half.encoder(tokens))
        with torch.autocast("cpu", torch.bfloat16):
            near = half.head(half.encoder(tokens))
        assert (
            float((near.float() - exact).abs().max().detach())
            < 0.1 * float(exact.abs().max().detach()) + 0.02
        )
