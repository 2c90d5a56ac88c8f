"""The encoders and heads of each architecture against transformers' classes on the same weights, in
float32."""

from typing import Any

import pytest
import transformers
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
    with_segments,
)

from electrify.architectures.keys import to_ours, without_tied
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


def test_the_library_s_own_configurations() -> None:
    """Without our note, the period is read off the layers; as on the Hub, the first form of the
    configuration says it."""
    known = MODERNBERT.architecture
    base = transformers.ModernBertConfig()
    shape = known.shape_of(base)
    known.must_compute_the_same("it", base)
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
    known.must_compute_the_same("it", old)
    found: Any = known.shape_of(old)
    assert (found.global_attn_every_n_layers, found.local_rope_theta) == (5, 99.0)
