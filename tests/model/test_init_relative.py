"""Every line of the tables in model/init_relative.py, and what they are for: a head that looks at
an offset."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from roomy import RELATIVE, close_to, roomy
from torch import Tensor, nn

from batches import SPECIAL
from electrify.build import Built
from electrify.model.blocks import DisentangledBlock
from electrify.model.encoder import Encoder
from electrify.model.init import NOISE, OUTPUT_SCALE, head_offset, local_heads
from electrify.model.init_relative import contexts_of, row_of
from electrify.tokens import from_sequences


def relative(recipe: str = "electra-deberta-tiny", **fields: Any) -> Built:
    return roomy(recipe, **(RELATIVE | fields))


def encoders_of(built: Built) -> list[Encoder]:
    return [part for part in built.objective.modules() if isinstance(part, Encoder)]


# ---------------------------------------------------------------- published


def test_published_table() -> None:
    built = relative(init="published", tie="embeddings")
    for part in built.objective.modules():
        for name, p in part.named_parameters(recurse=False):
            if isinstance(part, nn.LayerNorm):
                assert bool((p == (name == "weight")).all())
            elif name == "weight":
                assert close_to(p, 0.02)
                few = p.numel() < 1000
                assert few or float(p.detach().abs().max()) > 2.5 * 0.02, "not cut"
            else:
                assert not p.any(), (type(part), name)


def test_a_shared_table_is_drawn_once_and_one_of_difference_not_at_all() -> None:
    for init in ("published", "local"):
        built = relative(init=init)
        words: Any = built.discriminator.encoder.embeddings.words
        assert not words.delta_VE.any()
        assert close_to(words.base.weight, 0.1 if init == "local" else 0.02)


# ---------------------------------------------------------------- local


def test_local_table() -> None:
    built = relative(init="local", tie="embeddings")
    assert close_to(built.discriminator.encoder.embeddings.words.weight, 0.1)
    r = 1 / math.sqrt(128)
    size = math.sqrt(3.0 * 4 * math.sqrt(3 / 32))
    near = local_heads(4)
    assert near == 2
    for encoder in encoders_of(built):
        contexts = contexts_of(encoder)
        assert close_to(contexts.table.weight, 0.1)
        for block in encoder.blocks:
            assert isinstance(block, DisentangledBlock)
            q, k, v = block.qkv.weight.detach().view(3, 4, 32, 128)
            bias = block.qkv.bias.detach().view(3, 4, 32)
            assert close_to(q[:near], NOISE * r)
            for head in range(near):
                u = row_of(contexts, -head_offset(head)).detach() / 128
                assert close_to(k[head] - size * u, NOISE * r)
            for other in (q[near:], k[near:], v, block.up.weight):
                assert close_to(other, r)
            assert close_to(block.out.weight, OUTPUT_SCALE * r)
            assert close_to(block.down.weight, OUTPUT_SCALE / math.sqrt(96))
            assert bool((bias[0, :near] == torch.tensor(size)).all())
            assert not bias[0, near:].any()
            assert not bias[1:].any()


def test_the_row_of_a_distance() -> None:
    """Normalised as the context gives it; a distance beyond the longest row has the last one."""
    encoder = relative(init="local").discriminator.encoder
    contexts = contexts_of(encoder)
    tokens = from_sequences([list(range(6, 36))], row_length=30, pad=SPECIAL.pad)
    with torch.no_grad():
        given = contexts(tokens, torch.float32, training=False).rows_ND
        for distance in (-29, -1, 0, 1, 7):
            torch.testing.assert_close(given[29 + distance], row_of(contexts, distance))
        assert torch.equal(row_of(contexts, 10**6), row_of(contexts, 255))


def mixed(encoder: Encoder, tokens: Any) -> list[Tensor]:
    """The attention weights [H, L, L] of every block, for one row: the result for values that tell
    the positions."""
    length = tokens.row_length
    found = []
    with torch.no_grad():
        x_TD = encoder.embed(tokens)
        context = encoder.context(tokens, x_TD)
        for block in encoder.blocks:
            assert isinstance(block, DisentangledBlock)
            both = 2 * x_TD.shape[1]
            qkv = block.qkv(x_TD).view(length, 3, block.heads, -1)
            relative = (context.rows_ND @ block.qkv.weight[:both].T) + block.qkv.bias[:both]
            weights = []
            for first in range(0, length, qkv.shape[-1]):
                asked = qkv.clone()
                told = torch.eye(length)[:, first : first + qkv.shape[-1]]
                asked[:, 2] = 0
                asked[:, 2, :, : told.shape[1]] = told[:, None]
                out = context(asked.view(length, -1), relative, block.heads)
                weights.append(out.view(length, block.heads, -1)[:, :, : told.shape[1]])
            found.append(torch.cat(weights, -1).transpose(0, 1))
            x_TD = block(x_TD, context)
    return found


@pytest.mark.parametrize("direction", ["both", "left", "right"])
def test_a_head_looks_at_its_offset(direction: Any) -> None:
    """Whatever the words are: the position that its tokens look at most is the preferred one, in
    every block, and other heads have none."""
    recipe = "electra-deberta-tiny" if direction == "both" else "electric-tiny"
    built = relative(recipe, architecture="deberta", init="local")
    encoder: Encoder = (
        built.discriminator.encoder
        if direction == "both"
        else getattr(built.objective.corruptor, direction)
    )
    rng = torch.Generator().manual_seed(0)
    ids = [SPECIAL.cls, *torch.randint(6, 600, (60,), generator=rng).tolist(), SPECIAL.sep]
    tokens = from_sequences([ids], row_length=len(ids), pad=SPECIAL.pad)
    inner = torch.arange(6, 56)  # where every neighbour is there
    for a_HLL in mixed(encoder.eval(), tokens):
        torch.testing.assert_close(a_HLL.sum(-1), torch.ones(4, 62))
        for head in range(2):
            offset = head_offset(head, direction)
            at = a_HLL[head, inner, inner + offset]
            assert float(at.mean()) > 0.5, (head, offset)
            best = a_HLL[head, inner].argmax(-1) - inner
            assert float((best == offset).float().mean()) > 0.7
        if direction == "both":
            assert float(a_HLL[2:, inner].amax(-1).mean()) < 0.5


def test_a_shared_table_and_shared_blocks_start_once() -> None:
    ways: dict[str, dict[str, Any]] = {
        "embeddings": {},
        "gdes": {},
        "lower": {"tie_layers": 1},
        "all": {"generator_num_hidden_layers": 4},
        "none": {"generator_size": 0.5},
    }
    for tie, fields in ways.items():
        built = relative(init="local", tie=tie, **fields)
        for model in built.exports.values():
            assert close_to(model.encoder.embeddings.words.weight, 0.1), tie
            assert close_to(contexts_of(model.encoder).table.weight, 0.1), tie
        # A block that was turned twice would have less noise.
        q = built.discriminator.encoder.blocks[0].qkv.weight.detach()[:32]  # type: ignore[union-attr,operator]
        assert close_to(q, NOISE / math.sqrt(128)), tie
