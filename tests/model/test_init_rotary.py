"""Every line of the tables in model/init_rotary.py, and what they are for: a head that looks at an
offset."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from roomy import CUT, RELATIVE, close_to, roomy
from torch import Tensor, nn

from batches import SPECIAL, VOCABULARY, tiny
from electrify.build import Built, build
from electrify.model.attention import ContextsByKind
from electrify.model.blocks import GatedBlock
from electrify.model.encoder import Encoder
from electrify.model.heads import LMHead, NormedBinaryHead
from electrify.model.init import NOISE, head_offset, local_heads
from electrify.model.init_rotary import LOWEST, offset_amplitudes
from electrify.model.positions import Rotary
from electrify.tokens import from_sequences


def rotary(recipe: str = "electra-modernbert-tiny", **fields: Any) -> Built:
    return roomy(recipe, **(RELATIVE | fields))


def blocks_of(built: Built) -> list[tuple[GatedBlock, int]]:
    """Every block with the number of blocks of its encoder."""
    encoders = [part for part in built.objective.modules() if isinstance(part, Encoder)]
    return [(b, len(e.blocks)) for e in encoders for b in e.blocks]  # type: ignore[misc]


# ---------------------------------------------------------------- published


def test_published_table() -> None:
    built = rotary(init="published")
    seen: set[int] = set()

    def has(p: Tensor, std: float) -> None:
        seen.add(id(p))
        assert close_to(p, std * CUT)
        assert float(p.detach().abs().max()) <= 2 * std * (1 + 1e-6)

    has(built.discriminator.encoder.embeddings.words.weight, 0.02)
    for block, depth in blocks_of(built):
        has(block.qkv.weight, 0.02)
        has(block.up.weight, 0.02)
        has(block.out.weight, 0.02 / math.sqrt(2 * depth))
        has(block.down.weight, 0.02 / math.sqrt(2 * depth))
    for model in built.exports.values():
        head: Any = model.head
        has(head.dense.weight, 0.02 / math.sqrt(2 * len(model.encoder.blocks)))
        if isinstance(head, NormedBinaryHead):
            has(head.out.weight, 1 / math.sqrt(128))
    for part in built.objective.modules():
        for name, p in part.named_parameters(recurse=False):
            if isinstance(part, nn.LayerNorm):
                assert bool((p == 1).all())
            elif p.ndim == 1:
                assert name in ("bias", "bias_V")
                assert not p.any()
            else:
                assert id(p) in seen, (type(part), name)


# ---------------------------------------------------------------- local


def test_local_table() -> None:
    built = rotary(init="local")
    words = built.discriminator.encoder.embeddings.words.weight.detach()
    assert bool((words[:, 0] == 0.1).sum() == 599)
    assert words[SPECIAL.cls, 0] == 0
    assert close_to(words[:, 1:], 0.1 * CUT)
    r = 1 / math.sqrt(128)
    for block, depth in blocks_of(built):
        q, k, v = block.qkv.weight.detach().view(3, 4, 32, 128)
        near = local_heads(4)
        assert near == 2
        assert close_to(q[:near, :, 1:], NOISE * r)
        assert close_to(k[:near, :, 1:], NOISE * r)
        for other in (q[near:], k[near:], v, block.up.weight):
            assert close_to(other, r)
        for layer in (block.out, block.down):
            weight = layer.weight.detach()
            assert not weight[0].any()
            assert close_to(weight[1:], 1 / math.sqrt(layer.in_features) / math.sqrt(2 * depth))
    head: Any = built.discriminator.head
    assert close_to(head.dense.weight, r)
    assert close_to(head.out.weight, r)
    generator: Any = built.exports["generator"].head
    assert isinstance(generator, LMHead)


@pytest.mark.parametrize("theta", [10_000.0, 160_000.0])
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_amplitudes(theta: float, width: int) -> None:
    rotary = Rotary(theta, width)
    a_C = offset_amplitudes(rotary, 3.0)
    w_C = rotary.frequencies()
    assert float(a_C.square().sum() / math.sqrt(width)) == pytest.approx(12.0)
    assert bool(((a_C > 0) == (w_C >= LOWEST)).all())
    known = a_C > 0
    torch.testing.assert_close((a_C**2 / a_C[0] ** 2)[known], w_C[known].sqrt())


def mixed(encoder: Encoder, tokens: Any) -> list[Tensor]:
    """The attention weights [H, L, L] of every block, for one row."""
    contexts = encoder.contexts
    assert isinstance(contexts, ContextsByKind)
    x_TD = encoder.embed(tokens)
    made = contexts(tokens, x_TD.dtype, training=False)
    found = []
    with torch.no_grad():
        for block in encoder.blocks:
            assert isinstance(block, GatedBlock)
            context: Any = made[block.kind]
            qkv = block.qkv(block.norm1(x_TD)).view(len(x_TD), 3, block.heads, -1)
            q, k = context.turn(qkv[:, :2]).permute(1, 2, 0, 3)
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + context.where[0]
            found.append(scores.softmax(-1))
            x_TD = block(x_TD, made)
    return found


@pytest.mark.parametrize("direction", ["both", "left", "right"])
def test_a_head_looks_at_its_offset(direction: Any) -> None:
    """Whatever the words are: the position that most of its tokens look at most is the preferred
    one, in every block, global and local, and other heads have none."""
    recipe = "electra-modernbert-tiny" if direction == "both" else "electric-tiny"
    fields: dict[str, Any] = {"architecture": "modernbert", "init": "local", "local_attention": 32}
    built = rotary(recipe, **fields)
    encoder: Encoder = (
        built.discriminator.encoder
        if direction == "both"
        else getattr(built.objective.corruptor, direction)
    )
    rng = torch.Generator().manual_seed(0)
    ids = [SPECIAL.cls, *torch.randint(6, 600, (60,), generator=rng).tolist(), SPECIAL.sep]
    tokens = from_sequences([ids], row_length=len(ids), pad=SPECIAL.pad)
    inner = torch.arange(6, 56)  # where every neighbour is there
    weights = mixed(encoder.eval(), tokens)
    assert {b.kind for b in encoder.blocks} >= {"global"}  # type: ignore[union-attr]
    for a_HLL in weights:
        for head in range(2):
            offset = head_offset(head, direction)
            at = a_HLL[head, inner, inner + offset]
            assert float(at.mean()) > 0.5, (head, offset)
            best = a_HLL[head, inner].argmax(-1) - inner
            assert float((best == offset).float().mean()) > 0.7
        if direction == "both":
            assert float(a_HLL[2:, inner].amax(-1).mean()) < 0.5


def test_the_constant_survives_all_blocks() -> None:
    built = rotary(init="local", num_hidden_layers=6)
    encoder = built.discriminator.encoder.eval()
    encoder.norm = None
    tokens = from_sequences([list(range(6, 36))], row_length=30, pad=SPECIAL.pad)
    with torch.no_grad():
        before, after = encoder.embed(tokens), encoder(tokens)
    assert torch.equal(before[:, 0], after[:, 0])
    assert float((before - after).abs().max()) > 0.1


def test_words_from_the_corpus_leave_the_constant_alone() -> None:
    asked = []

    def vectors(k: int) -> Tensor:
        asked.append(k)
        return torch.ones(48, k)

    for init in ("local", "published"):
        config = tiny("bert-modernbert-tiny", init=init, init_words="cooccurrence")
        words = build(
            config, VOCABULARY, vectors=vectors
        ).discriminator.encoder.embeddings.words.weight
        if init == "local":
            assert bool((words[6:] == 0.1).all())
            assert words[SPECIAL.cls, 0] == 0
        else:
            assert bool((words == 0.02).all())
    assert asked == [31, 32]


def test_a_shared_table_and_shared_blocks_start_once() -> None:
    for tie, fields in (
        ("embeddings", {}),
        ("gdes", {}),
        ("lower", {"tie_layers": 1}),
        ("none", {"generator_size": 0.5}),
    ):
        built = rotary(init="local", tie=tie, **fields)
        for model in built.exports.values():
            words = model.encoder.embeddings.words.weight.detach()
            assert bool((words[6:, 0] == 0.1).all()), tie
            assert close_to(words[:, 1:], 0.1 * CUT), tie
        # A block that was turned twice would have less noise.
        q = built.discriminator.encoder.blocks[0].qkv.weight.detach()[:32]  # type: ignore[union-attr,operator]
        assert close_to(q[:, 1:], NOISE / math.sqrt(128)), tie
