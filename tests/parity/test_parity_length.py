"""ModernBERT's positions in rows of 2,048 tokens, sixteen windows long. That its folders give our
numbers at this length is in test_parity_folders.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import transformers
from families import MODERNBERT, modernbert_shape
from two_networks import KINDS, SPECIAL, close, numbers, padded

from electrify.exporting.agreement import _NoRounding
from electrify.exporting.folder import write_model
from electrify.model.heads import HeadKind

LONG = modernbert_shape(max_position_embeddings=2048, hidden_size=48, embedding_size=48)
# With heads of 16, every frequency is a power of two: no angle is rounded.
EXACT = dataclasses.replace(LONG, global_rope_theta=2.0**16, local_rope_theta=2.0**8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [LONG, EXACT], ids=["usual", "exact"])
def test_padding_on_the_left_at_2048(shape: Any, kind: HeadKind, tmp_path: Any) -> None:
    """The library counts it as positions, and our own begin at 0. Only distances matter, so the
    numbers are the same but for the rounding of angles to float32, 1e-4 at position 2,000. Where
    none is rounded, a tenth of the difference is left."""
    own = MODERNBERT.ours(shape, kind, seed=11)
    write_model(tmp_path, own, special=SPECIAL, dropout=0.0, attention_dropout=0.0)
    cls = getattr(transformers, MODERNBERT.architecture.classes[kind])
    model = cls.from_pretrained(tmp_path).eval()
    tokens = padded([2048, 2047, 1100, 130], left=True, seed=2048)
    found, expected = numbers(own, tokens), MODERNBERT.their_numbers(model, own, tokens)
    close(found, expected)
    if shape is EXACT:
        for reach in shape.reaches.values():
            assert set(reach.rotary.frequencies().log2().frac().tolist()) == {0.0}
        for a, b in zip(found, expected, strict=True):
            assert float((a - b).abs().max()) <= 2e-6 * max(1.0, float(a.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
def test_float64_tells_rounding_from_a_wrong_number(kind: HeadKind) -> None:
    """At lengths beyond the window, where blocks pay too, in either type of padding: with the
    library's positions, only the rounding of float64 is left."""
    own = MODERNBERT.ours(LONG, kind, seed=12)
    model = MODERNBERT.theirs(own).double()
    for part in (own.encoder, own.head):
        part.double()
    for length in (131, 383, 384, 450):
        for left in (False, True):
            tokens = padded([length, length // 2], left=left, seed=length)
            counted = dataclasses.replace(tokens, pos_T=torch.arange(length).repeat(2))
            with _NoRounding():
                expected = MODERNBERT.their_numbers(model, own, tokens)
            for a, b in zip(numbers(own, counted), expected, strict=True):
                assert float((a - b).abs().max()) < 1e-11
