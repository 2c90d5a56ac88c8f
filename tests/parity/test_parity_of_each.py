"""The encoders and heads of ModernBERT and DeBERTa against transformers' classes on the same
weights, float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from families import FAMILIES
from two_networks import KINDS, PAD, Family, close, numbers, padded, shaken

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
    tokens = padded([40, 39, 20, 3, 1], left=left)
    close(numbers(own, tokens), family.their_numbers(family.theirs(own), own, tokens))


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
    named = dict(own.encoder.named_parameters(prefix="encoder"))
    named |= dict(own.head.named_parameters(prefix="head"))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for row in own.table().rows:
        mine, other = named[row.ours].grad, torch.cat([grads[n] for n in row.theirs])
        if row.ours.startswith("head.out."):
            other = other[1:]  # of the second label; the first one's logit is 0
        if row.ours.endswith("words.weight"):
            other[PAD] = mine[PAD]  # no gradient reaches [PAD] from their input
        assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(mine.abs().max()))


@pytest.mark.parametrize(("family", "shape"), SHAPES)
def test_a_configuration_says_the_shape(family: Family, shape: Any, tmp_path: Any) -> None:
    family.config_of(shape, "token").save_pretrained(tmp_path)
    read = transformers.AutoConfig.from_pretrained(tmp_path)
    family.architecture.must_compute_the_same("it", read)
    assert family.architecture.shape_of(read) == shape
    assert (read.pad_token_id, read.bos_token_id, read.eos_token_id) == (PAD, 2, 3)
