"""ModernBERT in rows of 2,048 tokens, sixteen windows long: the exported folder against ours."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import transformers
from families import MODERNBERT, modernbert_shape
from two_networks import KINDS, SPECIAL, close, numbers, padded, side_by_side

from electrify.export.hf import write_model
from electrify.model.heads import HeadKind

LONG = modernbert_shape(max_position_embeddings=2048, hidden_size=48, embedding_size=48)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_an_exported_folder_at_2048(kind: HeadKind, left: bool, tmp_path: Any) -> None:
    """By the folder, as `export` writes and the library reads it; one sequence fills the row. On
    the left the library counts padding as positions. Only distances matter, but angles of float32
    at position 2,000 are rounded to 1e-4: ours, which begin at 0, are compared less closely."""
    own = MODERNBERT.ours(LONG, kind, seed=10)
    write_model(tmp_path, own, special=SPECIAL, dropout=0.0, attention_dropout=0.0)
    cls = getattr(transformers, MODERNBERT.architecture.classes[kind])
    model, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    tokens = padded([2048, 2047, 1100, 130], left=left, seed=2048)
    expected = MODERNBERT.their_numbers(model.eval(), own, tokens)
    counted = dataclasses.replace(tokens, pos_T=torch.arange(2048).repeat(4)) if left else tokens
    close(numbers(own, counted), expected)
    for a, b in zip(numbers(own, tokens), expected, strict=True):
        assert float((a - b).abs().max()) <= 1e-4 * float(a.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_of_2048(kind: HeadKind) -> None:
    """Sequences of all lengths side by side in one row, the longest longer than many windows."""
    own = MODERNBERT.ours(LONG, kind, seed=11)
    lengths = [1200, 600, 129, 90, 1]
    single = padded(lengths, seed=12)
    packed = side_by_side(single, lengths, row_length=2048)
    close(numbers(own, packed), MODERNBERT.their_numbers(MODERNBERT.theirs(own), own, single))
