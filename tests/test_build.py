import math
from typing import Any

import pytest
import torch
from torch import nn

from batches import SPECIAL, VOCAB, built, draws_of, ragged_batch, terms_of
from electrify.build import Built, discriminator_shape, generator_shape
from electrify.model.embeddings import Shape
from electrify.objectives.electra import Electra
from electrify.recipe import load

TIES = ["none", "tokens", "embeddings", "all"]


def tied(tie: str, **fields: Any) -> Built:
    return built(
        "electra-tiny", tie=tie, **({"generator_size": 1.0 if tie == "all" else 0.5} | fields)
    )


def ids_of(*modules: nn.Module) -> set[int]:
    return {id(p) for m in modules for p in m.parameters()}


@pytest.mark.parametrize("tie", TIES)
def test_ties_share_exactly_what_they_say(tie: str) -> None:
    b = tied(tie)
    g, d = b.exports["generator"], b.discriminator
    ge, de = g.encoder.embeddings, d.encoder.embeddings
    assert (g.encoder is d.encoder) == (tie == "all")
    assert (ge is de) == (tie in ("embeddings", "all"))
    assert (ge.words is de.words) == (tie != "none")
    shared = ids_of(g.encoder, g.head) & ids_of(d.encoder, d.head)
    assert (
        shared
        == {
            "none": set(),
            "tokens": {id(de.words.weight)},
            "embeddings": ids_of(de),
            "all": ids_of(d.encoder),
        }[tie]
    )
    # What is exported is what is trained.
    assert ids_of(b.objective) == ids_of(g.encoder, g.head, d.encoder, d.head)


@pytest.mark.parametrize("embedding_size", [16, 32])
def test_lower_blocks_are_the_same_objects(embedding_size: int) -> None:
    """Two of three blocks, and everything below them; each trains under both losses."""
    b = built(
        "electra-tiny",
        tie="lower",
        tie_layers=2,
        generator_size=1.0,
        num_hidden_layers=3,
        generator_num_hidden_layers=2,
        embedding_size=embedding_size,
        init="local",
    )
    g, d = b.exports["generator"].encoder, b.discriminator.encoder
    assert g.embeddings is d.embeddings
    assert g.project is d.project
    assert [len(e.blocks) for e in (g, d)] == [2, 3]
    assert [one is other for one, other in zip(g.blocks, d.blocks, strict=False)] == [True, True]
    for loss in ("generator", "rtd"):
        b.objective.zero_grad()
        tokens = ragged_batch()
        terms_of(b.objective, tokens, draws_of(tokens))[loss].sum.backward()
        assert all(p.grad is not None and bool(p.grad.any()) for p in g.parameters()), loss
        assert (d.blocks[2].up.weight.grad is not None) == (loss == "rtd")


def test_outputs_that_start_smaller_by_the_depth() -> None:
    plain, scaled = (
        built(
            "electra-tiny", num_hidden_layers=2, init="bert", init_scale=how
        ).discriminator.encoder
        for how in ("none", "depth")
    )
    for (name, p), q in zip(plain.named_parameters(), scaled.parameters(), strict=True):
        smaller = name.endswith(("out.weight", "down.weight"))
        torch.testing.assert_close(q, p * 0.5 if smaller else p)


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [("electra-tiny", {}), ("corrective-tiny", {"rtd_head": "linear"}), ("unigram-tiny", {})],
)
def test_the_detecting_head_starts_at_the_share_of_replaced_tokens(recipe, fields):
    """mask_rate .2: log-odds of 1 to 4. Its other values are those it has without."""
    given = fields | {"mask_rate": 0.2}
    b, plain = (
        built(recipe, init_rtd_bias=how, **given).discriminator.head for how in ("replaced", "zero")
    )
    assert float(b.out.bias.detach()) == pytest.approx(-math.log(4), rel=1e-6)
    assert float(plain.out.bias.detach()) == 0.0
    assert torch.equal(b.out.weight, plain.out.weight)


@pytest.mark.parametrize(("share", "rate"), [(0.7, 0.225), (0.0, 0.4)])
def test_the_bias_is_that_of_the_share_at_which_detection_begins(share: float, rate: float) -> None:
    """Of a mask rate that falls from .4 to .15, .7 of the way."""
    falls = {"mask_rate": 0.4, "mask_rate_end": 0.15, "mlm_share": share}
    head = built("corrective-tiny", init_rtd_bias="replaced", **falls).discriminator.head
    assert float(head.out.bias.detach().sigmoid()) == pytest.approx(rate, rel=1e-5)


def test_recipe_numbers_arrive() -> None:
    b = built(
        "electra-tiny",
        mask_rate=0.3,
        mask_mix=[0.7, 0.2, 0.1],
        temperature=1.5,
        dropout=0.1,
        attention_dropout=0.2,
    )
    assert isinstance(b.objective, Electra)
    corruptor = b.objective.corruptor
    assert (
        corruptor.chooser.rate,
        corruptor.mask.mix,
        corruptor.mask.mask_id,
        corruptor.sampling.temperature,
    ) == (0.3, (0.7, 0.2, 0.1), SPECIAL.mask, 1.5)
    for half in b.exports.values():
        assert half.encoder.embeddings.dropout == 0.1
        assert half.encoder.contexts.dropout == 0.2
        assert {block.dropout for block in half.encoder.blocks} == {0.1}
        assert half.encoder.shape.vocab_size == VOCAB


def widths(shape: Shape) -> tuple[int, int, int, int, int]:
    return (
        shape.num_hidden_layers,
        shape.hidden_size,
        shape.intermediate_size,
        shape.num_attention_heads,
        shape.embedding_size,
    )


@pytest.mark.parametrize(
    ("recipe", "kept", "generator"),
    [
        ("electra-small", (12, 256, 1024, 4, 128), (12, 64, 256, 1, 128)),
        ("electra-base", (12, 768, 3072, 12, 768), (12, 256, 1024, 4, 768)),
        ("electra-large", (24, 1024, 4096, 16, 1024), (24, 256, 1024, 4, 1024)),
        ("electra-tiny", (4, 128, 512, 4, 128), (4, 64, 256, 2, 128)),
    ],
)
def test_published_shapes(recipe: str, kept: tuple[int, ...], generator: tuple[int, ...]) -> None:
    """2003.10555, Table 6: generator 1/4, 1/3, 1/4 of width, heads and feed-forward; depth and
    embedding width kept."""
    model = load(recipe).model
    assert widths(discriminator_shape(model, 30522)) == kept
    assert widths(generator_shape(model, 30522)) == generator
    assert generator_shape(model, 30522).vocab_size == 30522
    assert generator_shape(model, 30522).head_width == discriminator_shape(model, 30522).head_width
