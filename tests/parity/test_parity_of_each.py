"""The encoders and heads of each architecture against transformers' classes on the same weights, in
float32."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from networks import HOW, PAD, SHAPES, Pair, ours, padded, shape_of, with_segments

from batches import shaken
from electrify.architectures import architecture_named
from electrify.architectures.architecture import to_ours
from electrify.model.heads import HeadKind
from published import DEBERTA_V3

KINDS: list[HeadKind] = ["token", "binary"]
EACH = [
    pytest.param(name, shape_of(name, **numbers), id=f"{name}-{k}")
    for name, shapes in SHAPES.items()
    for k, numbers in enumerate(shapes)
]
DEBERTA = [given for given in EACH if given.values[0] == "deberta"]


def second(name: str) -> Any:
    return shape_of(name, **SHAPES[name][1])


@pytest.mark.parametrize(("name", "shape"), EACH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers(name: str, shape: Any, kind: HeadKind, left: bool) -> None:
    pair = Pair.of(ours(name, shape, kind, seed=1))
    pair.must_agree(with_segments(padded([40, 39, 20, 3, 1], left=left), pair.own))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_their_weights_in_our_modules(name: str, kind: HeadKind) -> None:
    """A folder that the library trained: every weight is used, and read back as it was."""
    own = ours(name, second(name), kind, seed=8)
    known, table = own.architecture, own.table()
    config = known.hf_config(own.encoder.shape, kind, **HOW)
    model = getattr(transformers, known.classes[kind])(config).eval()
    shaken(model, 7)
    assert own.fill(to_ours(table.rows, model.state_dict())) == []
    Pair(own, model.base_model, model).must_agree(padded([33, 12]))


@pytest.mark.parametrize(
    ("name", "form"), [*((name, kind) for name in SHAPES for kind in KINDS), ("deberta", "decoder")]
)
def test_gradients_agree_too(name: str, form: str) -> None:
    """Of every parameter, to 1e-5 of the largest of its tensor. A mask decoder's by the class that
    reads the folders, with those of the table of positions."""
    pair, tokens = Pair.of(ours(name, second(name), form, seed=9)), padded([21, 13])
    for logits in (pair.own_logits(tokens), pair.logits(tokens)):
        logits.square().mean().backward()
    named = dict(pair.own.encoder.named_parameters(prefix="encoder"))
    named |= dict(pair.own.head.named_parameters(prefix="head"))
    grads = {n: p.grad for n, p in pair.theirs.named_parameters() if p.grad is not None}
    for row in pair.own.table().rows:
        mine, other = named[row.ours].grad, torch.cat([grads[n] for n in row.theirs])
        assert mine is not None
        if row.labels:
            other = other[1:]  # of the second label; the first one's logit is 0
        if row.ours.endswith("words.weight"):
            other[PAD] = mine[PAD]  # no gradient reaches [PAD] from their input
        assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(mine.abs().max()))


@pytest.mark.parametrize(("name", "shape"), DEBERTA)
@torch.no_grad()
def test_float64_tells_rounding_from_a_wrong_number(name: str, shape: Any) -> None:
    """The library rounds the root of a head's width to float32 in any type, and so do we: what is
    left is the rounding of float64, by which the check of an export decides."""
    pair, tokens = Pair.of(ours(name, shape, "token", seed=3)), padded([19, 7], seed=5)
    for part in (pair.own.encoder, pair.own.head, pair.theirs):
        part.double()
    assert float((pair.own_logits(tokens) - pair.logits(tokens)).abs().max()) < 1e-11


@pytest.mark.parametrize(("name", "shape"), EACH)
def test_a_configuration_says_the_shape(name: str, shape: Any, tmp_path: Any) -> None:
    known = architecture_named(name)
    known.hf_config(shape, "token", **HOW).save_pretrained(tmp_path)
    read = transformers.AutoConfig.from_pretrained(tmp_path)
    known.must_compute_the_same("it", read)
    assert known.shape_of(read) == shape
    assert read.pad_token_id == PAD
    if name != "electra":
        assert (read.bos_token_id, read.eos_token_id) == (2, 3)


BASE = {"hidden_size": 768, "num_attention_heads": 12}


def test_the_library_s_own_configurations() -> None:
    """Without our note, the period is read off the layers; as on the Hub, the first form of the
    configuration says it."""
    known, base = architecture_named("modernbert"), transformers.ModernBertConfig()
    sizes = {"vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152}
    wanted = shape_of("modernbert", **BASE, **sizes, max_position_embeddings=8192)
    old = transformers.ModernBertConfig(global_attn_every_n_layers=5, local_rope_theta=99.0)
    changed = replace(wanted, global_attn_every_n_layers=5, local_rope_theta=99.0)
    for config, shape in ((base, wanted), (old, changed)):
        known.must_compute_the_same("it", config)
        assert known.shape_of(config) == shape


def test_the_published_configuration_of_deberta() -> None:
    """It does not name its class, nor the form of the language model's head."""
    known, config = architecture_named("deberta"), transformers.DebertaV2Config(**DEBERTA_V3)
    known.must_compute_the_same("it", config)
    assert config.legacy
    assert not known.as_read(config).legacy
    sizes = {"vocab_size": 128_100, "num_hidden_layers": 12, "intermediate_size": 3072}
    wanted = shape_of("deberta", **BASE, **sizes, max_position_embeddings=512)
    assert known.shape_of(config) == wanted
    same = transformers.DebertaV2Config(**DEBERTA_V3 | {"max_relative_positions": 512})
    known.must_compute_the_same("it", same)
