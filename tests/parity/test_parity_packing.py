"""Several sequences in one row compute what each computes alone: hidden states and logits, forward
and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from batches import encoder_of
from electrify.model.encoder import Encoder
from electrify.model.heads import BinaryHead, LMHead
from electrify.model.shape import Shape
from electrify.tokens import Tokens

SHAPE = Shape(
    vocab_size=30,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=16,
    max_position_embeddings=24,
)


def modules(backend: str) -> tuple[Encoder, LMHead, BinaryHead]:
    encoder = encoder_of(SHAPE, dropout=0.0, attention_dropout=0.0, backend=backend)  # type: ignore[arg-type]
    parts = encoder, LMHead(SHAPE, encoder.embeddings.words), BinaryHead(SHAPE)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in nn.ModuleList(parts).named_parameters():
            p.copy_(
                torch.randn(p.shape, generator=rng) * 0.4
                + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
            )
    return parts


def laid_out(rows: list[list[int]], row_length: int, sequences: list[torch.Tensor]) -> Tokens:
    """Rows of sequences by number, one behind the other, then padding."""
    fields = [torch.zeros(len(rows), row_length, dtype=torch.long) for _ in range(4)]
    ids_RL, seq_RL, pos_RL, segment_RL = fields
    for r, row in enumerate(rows):
        start = 0
        for n, k in enumerate(row, 1):
            cut = slice(start, start := start + len(sequences[k]))
            ids_RL[r, cut], seq_RL[r, cut], pos_RL[r, cut] = (
                sequences[k],
                n,
                torch.arange(len(sequences[k])),
            )
            segment_RL[r, cut] = (torch.arange(len(sequences[k])) > len(sequences[k]) // 2).long()
    return Tokens(*(f.flatten() for f in fields), row_length=row_length)


@pytest.mark.parametrize("backend", ["auto", "matmul", "sdpa"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=2, max_size=7),
    slack=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_packed_equals_unpacked(backend, lengths, slack, seed):
    rng = torch.Generator().manual_seed(seed)
    sequences = [torch.randint(SHAPE.vocab_size, (n,), generator=rng) for n in lengths]
    half = len(lengths) // 2
    packed = laid_out(
        [list(range(half)), list(range(half, len(lengths)))],
        max(sum(lengths[:half]), sum(lengths[half:])) + slack,
        sequences,
    )
    alone = laid_out([[k] for k in range(len(lengths))], 9, sequences)
    encoder, *heads = modules(backend)
    with torch.no_grad():
        one, two = encoder(packed)[packed.real_T], encoder(alone)[alone.real_T]
        for a, b in ((one, two), *((head(one), head(two)) for head in heads)):
            assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(a.abs().max()))


def test_a_neighbour_changes_nothing():
    """Other tokens in the neighbouring sequence and in the padding leave every bit of a sequence as
    it is; in the sequence itself they do not."""
    rng = torch.Generator().manual_seed(0)
    sequences = [torch.randint(SHAPE.vocab_size, (n,), generator=rng) for n in (5, 6)]
    tokens = laid_out([[0, 1]], 13, sequences)
    encoder = modules("sdpa")[0]
    with torch.no_grad():
        base = encoder(tokens)[:5]
        outside, inside = tokens.ids_T.clone(), tokens.ids_T.clone()
        outside[5:] = (outside[5:] + 7) % 30
        inside[4] = (inside[4] + 7) % 30
        assert torch.equal(encoder(tokens.with_ids(outside))[:5], base)
        assert not torch.allclose(encoder(tokens.with_ids(inside))[:5], base, atol=1e-2)
