"""ModernBERT's encoder against one written by hand, in float64; and configurations: what the
library's own say, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from by_hand import states_by_hand
from families import MODERNBERT, modernbert_shape
from two_networks import numbers, padded, side_by_side

from electrify.exporting.agreement import _NoRounding

KNOWN = MODERNBERT.architecture
# With heads of 8, frequencies are powers of two. So no angle is rounded to float32, but its cosine
# is: it leaves 1e-7 of a difference, or less.
NEAR = modernbert_shape(local_attention=6, global_rope_theta=2.0**8, local_rope_theta=2.0**4)
ROUNDED = 1e-6


def doubled(*, seed: int) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """Our network and the library's in float64, and the weights by which the latter computes."""
    own = MODERNBERT.ours(NEAR, "token", seed=seed)
    model = MODERNBERT.theirs(own).double()
    for part in (own.encoder, own.head):
        part.double()
    return own, model, dict(model.model.state_dict())


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 17, 257])
def test_an_encoder_written_by_hand(length: int) -> None:
    """Windows, rotary positions, and a lowest block that takes the embeddings as they are; at 257,
    our attention is that of blocks."""
    own, model, weights = doubled(seed=1)
    tokens = padded([length], seed=length)
    wanted = states_by_hand(weights, NEAR, tokens.ids_T)
    with _NoRounding():
        theirs = MODERNBERT.their_numbers(model, own, tokens)[0]
    for found in (numbers(own, tokens)[0], theirs):
        assert float((found - wanted).abs().max()) < ROUNDED
    others = [states_by_hand(weights, NEAR, tokens.ids_T, lowest_normed=True)]
    if length > 4:  # some pair of tokens is farther apart than the window
        shapes = [replace(NEAR, local_attention=width) for width in (4, 8)]
        others += [states_by_hand(weights, shape, tokens.ids_T) for shape in shapes]
    for other in others:
        assert float((other - wanted).abs().max()) > 1e3 * ROUNDED


@pytest.mark.parametrize("row_length", [40, 256])
def test_packed_rows_by_hand(row_length: int) -> None:
    """Each sequence by itself; in the longer row, attention is that of blocks, whose edges are at
    multiples of 16."""
    own, _, weights = doubled(seed=2)
    lengths = [15, 2, 1, 7] if row_length == 40 else [15, 18, 31, 1, 64, 80]
    single = padded(lengths, seed=3)
    found = numbers(own, side_by_side(single, lengths, row_length=row_length))[0]
    ids = single.ids_T.view(len(lengths), -1)
    wanted = [states_by_hand(weights, NEAR, ids[k, :n]) for k, n in enumerate(lengths)]
    assert float((found - torch.cat(wanted)).abs().max()) < ROUNDED


def test_the_library_s_own_configurations() -> None:
    """Without our note, the period is read off the layers; as on the Hub, the first form of the
    configuration says it."""
    base = transformers.ModernBertConfig()
    shape = KNOWN.shape_of(base)
    KNOWN.must_compute_the_same("it", base)
    assert shape == modernbert_shape(
        vocab_size=50368,
        embedding_size=768,
        hidden_size=768,
        num_hidden_layers=22,
        num_attention_heads=12,
        intermediate_size=1152,
        max_position_embeddings=8192,
    )
    old = transformers.ModernBertConfig(global_attn_every_n_layers=5, local_rope_theta=99.0)
    KNOWN.must_compute_the_same("it", old)
    found: Any = KNOWN.shape_of(old)
    assert (found.global_attn_every_n_layers, found.local_rope_theta) == (5, 99.0)
