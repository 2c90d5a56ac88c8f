"""The encoders and heads of each architecture against transformers' classes on the same weights,
float32; and ModernBERT's against one written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from by_hand import states_by_hand
from families import FAMILIES, MODERNBERT, modernbert_shape
from two_networks import (
    KINDS,
    PAD,
    Family,
    as_counted,
    close,
    numbers,
    padded,
    same_gradients,
    shaken,
    side_by_side,
    with_segments,
)

from electrify.architectures.keys import to_ours, without_tied
from electrify.exporting.agreement import _NoRounding
from electrify.model.heads import HeadKind

SHAPES = [
    pytest.param(family, shape, id=f"{family.name}-{k}")
    for family in FAMILIES
    for k, shape in enumerate(family.shapes)
]


@pytest.mark.parametrize(("family", "shape"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers(family: Family, shape: Any, kind: HeadKind, left: bool) -> None:
    own = family.ours(shape, kind, seed=1)
    tokens = with_segments(padded([40, 39, 20, 3, 1], left=left), own)
    theirs = family.their_numbers(family.theirs(own), own, tokens)
    close(numbers(own, as_counted(tokens, own)), theirs)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@pytest.mark.parametrize("kind", KINDS)
def test_their_weights_in_our_modules(family: Family, kind: HeadKind) -> None:
    """A folder that the library trained: every weight is used, and read back as it was."""
    shape = family.shapes[1]
    model = getattr(transformers, family.architecture.classes[kind])
    model = model(family.config_of(shape, kind)).eval()
    shaken(model, 7)
    own = family.ours(shape, kind, seed=8)
    table = own.table()
    left = own.fill(to_ours(table.rows, without_tied(table, model.state_dict())))
    assert left == []
    tokens = padded([33, 12])
    close(numbers(own, tokens), family.their_numbers(model, own, tokens))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_too(family: Family, kind: HeadKind) -> None:
    own = family.ours(family.shapes[1], kind, seed=9, dropout=0.0)
    model, tokens = family.theirs(own), padded([21, 13])
    own.head(own.encoder(tokens))[tokens.real_T].square().mean().backward()
    logits = family.logits(model(**family.architecture.inputs(tokens)), kind)
    logits.flatten(0, 1)[tokens.real_T].square().mean().backward()
    same_gradients(own, model)


@pytest.mark.parametrize(("family", "shape"), SHAPES)
def test_a_configuration_says_the_shape(family: Family, shape: Any, tmp_path: Any) -> None:
    family.config_of(shape, "token").save_pretrained(tmp_path)
    read = transformers.AutoConfig.from_pretrained(tmp_path)
    family.architecture.must_compute_the_same("it", read)
    assert family.architecture.shape_of(read) == shape
    assert read.pad_token_id == PAD
    if family.name != "electra":
        assert (read.bos_token_id, read.eos_token_id) == (2, 3)


# -------------------- ModernBERT's encoder against one written by hand, in float64


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


@pytest.mark.parametrize("length", [1, 4, 5, 17, 100])
def test_an_encoder_written_by_hand(length: int) -> None:
    """Windows, rotary positions, and a lowest block that takes the embeddings as they are; at 100,
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


@pytest.mark.parametrize("row_length", [40, 128])
def test_packed_rows_by_hand(row_length: int) -> None:
    """Each sequence by itself; in the longer row, attention is that of blocks, whose edges are at
    multiples of 16."""
    own, _, weights = doubled(seed=2)
    lengths = [15, 2, 1, 7] if row_length == 40 else [15, 18, 31, 1, 50]
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
