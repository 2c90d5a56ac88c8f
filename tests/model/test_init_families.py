"""Every line of the tables in model/init.py for disentangled and gated blocks,
and what they are for: a head that looks at an offset."""

import math
from typing import Any

import pytest
import torch
from roomy import CUT, RELATIVE, close_to, roomy
from torch import Tensor, nn

from batches import SPECIAL, VOCABULARY, tiny
from electrify.build import Built, build
from electrify.model.attention import ContextsByKind
from electrify.model.blocks import DisentangledBlock, GatedBlock
from electrify.model.encoder import Encoder
from electrify.model.heads import NormedBinaryHead
from electrify.model.init import (
    LOWEST,
    NOISE,
    OUTPUT_SCALE,
    contexts_of,
    head_offset,
    local_heads,
    offset_amplitudes,
    row_of,
)
from electrify.model.positions import Rotary
from electrify.tokens import from_sequences

NEAR = 2  # heads of four that look at an offset


def relative(**fields: Any) -> Built:
    return roomy("electra-deberta-tiny", **(RELATIVE | fields))


def rotary(**fields: Any) -> Built:
    return roomy("electra-modernbert-tiny", **(RELATIVE | fields))


def blocks_of(built: Built) -> list[tuple[Any, Encoder]]:
    """Every block with its encoder."""
    encoders = [part for part in built.objective.modules() if isinstance(part, Encoder)]
    return [(block, encoder) for encoder in encoders for block in encoder.blocks]


def test_published_table_of_relative() -> None:
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


def test_published_table_of_rotary() -> None:
    built = rotary(init="published")
    seen: set[int] = set()

    def has(p: Tensor, std: float) -> None:
        seen.add(id(p))
        assert close_to(p, std * CUT)
        assert float(p.detach().abs().max()) <= 2 * std * (1 + 1e-6)

    has(built.discriminator.encoder.embeddings.words.weight, 0.02)
    for block, encoder in blocks_of(built):
        depth = len(encoder.blocks)
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


def test_a_shared_table_is_drawn_once_and_one_of_difference_not_at_all() -> None:
    for init in ("published", "local"):
        built = relative(init=init)
        words: Any = built.discriminator.encoder.embeddings.words
        assert not words.delta_VE.any()
        assert close_to(words.base.weight, 0.1 if init == "local" else 0.02)


def test_local_table_of_relative() -> None:
    built = relative(init="local", tie="embeddings")
    assert close_to(built.discriminator.encoder.embeddings.words.weight, 0.1)
    r = 1 / math.sqrt(128)
    size = math.sqrt(3.0 * 4 * math.sqrt(3 / 32))
    assert local_heads(4) == NEAR
    for block, encoder in blocks_of(built):
        contexts = contexts_of(encoder)
        assert close_to(contexts.table.weight, 0.1)
        q, k, v = block.qkv.weight.detach().view(3, 4, 32, 128)
        bias = block.qkv.bias.detach().view(3, 4, 32)
        assert close_to(q[:NEAR], NOISE * r)
        for head in range(NEAR):
            u = row_of(contexts, -head_offset(head)).detach() / 128
            assert close_to(k[head] - size * u, NOISE * r)
        for other in (q[NEAR:], k[NEAR:], v, block.up.weight):
            assert close_to(other, r)
        assert close_to(block.out.weight, OUTPUT_SCALE * r)
        assert close_to(block.down.weight, OUTPUT_SCALE / math.sqrt(96))
        assert bool((bias[0, :NEAR] == torch.tensor(size)).all())
        assert not bias[0, NEAR:].any()
        assert not bias[1:].any()


def test_local_table_of_rotary() -> None:
    built = rotary(init="local")
    words = built.discriminator.encoder.embeddings.words.weight.detach()
    assert bool((words[:, 0] == 0.1).sum() == 599)
    assert words[SPECIAL.cls, 0] == 0
    assert close_to(words[:, 1:], 0.1 * CUT)
    r = 1 / math.sqrt(128)
    for block, encoder in blocks_of(built):
        depth = len(encoder.blocks)
        q, k, v = block.qkv.weight.detach().view(3, 4, 32, 128)
        assert close_to(q[:NEAR, :, 1:], NOISE * r)
        assert close_to(k[:NEAR, :, 1:], NOISE * r)
        for other in (q[NEAR:], k[NEAR:], v, block.up.weight):
            assert close_to(other, r)
        for layer in (block.out, block.down):
            weight = layer.weight.detach()
            assert not weight[0].any()
            assert close_to(weight[1:], 1 / math.sqrt(layer.in_features) / math.sqrt(2 * depth))
    head: Any = built.discriminator.head
    assert close_to(head.dense.weight, r)
    assert close_to(head.out.weight, r)


@pytest.mark.parametrize("theta", [10_000.0, 160_000.0])
@pytest.mark.parametrize("width", [8, 64])
def test_amplitudes(theta: float, width: int) -> None:
    rotary = Rotary(theta, width)
    a_C = offset_amplitudes(rotary, 3.0)
    w_C = rotary.frequencies()
    assert float(a_C.square().sum() / math.sqrt(width)) == pytest.approx(12.0)
    assert bool(((a_C > 0) == (w_C >= LOWEST)).all())
    known = a_C > 0
    torch.testing.assert_close((a_C**2 / a_C[0] ** 2)[known], w_C[known].sqrt())


def mixed_by_distance(encoder: Encoder, tokens: Any) -> list[Tensor]:
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


def mixed_by_turning(encoder: Encoder, tokens: Any) -> list[Tensor]:
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
@pytest.mark.parametrize("architecture", ["deberta", "modernbert"])
def test_a_head_looks_at_its_offset(architecture: str, direction: Any) -> None:
    """Whatever the words are: the position that its tokens look at most is the preferred one, in
    every block, global and local, and other heads have none."""
    recipe = f"electra-{architecture}-tiny" if direction == "both" else "electric-tiny"
    own = {"architecture": architecture, "init": "local"}
    own |= {"local_attention": 32} if architecture == "modernbert" else {}
    built = roomy(recipe, **RELATIVE | own)
    encoder: Encoder = (
        built.discriminator.encoder
        if direction == "both"
        else getattr(built.objective.corruptor, direction)
    )
    rng = torch.Generator().manual_seed(0)
    ids = [SPECIAL.cls, *torch.randint(6, 600, (60,), generator=rng).tolist(), SPECIAL.sep]
    tokens = from_sequences([ids], row_length=len(ids), pad=SPECIAL.pad)
    inner = torch.arange(6, 56)  # where every neighbour is there
    mixed = mixed_by_distance if architecture == "deberta" else mixed_by_turning
    for a_HLL in mixed(encoder.eval(), tokens):
        torch.testing.assert_close(a_HLL.sum(-1), torch.ones(4, 62))
        for head in range(NEAR):
            offset = head_offset(head, direction)
            at = a_HLL[head, inner, inner + offset]
            assert float(at.mean()) > 0.5, (head, offset)
            best = a_HLL[head, inner].argmax(-1) - inner
            assert float((best == offset).float().mean()) > 0.7
        if direction == "both":
            assert float(a_HLL[NEAR:, inner].amax(-1).mean()) < 0.5


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


WAYS: list[tuple[str, dict[str, Any]]] = [
    ("embeddings", {}),
    ("gdes", {}),
    ("lower", {"tie_layers": 1}),
    ("none", {"generator_size": 0.5}),
]


@pytest.mark.parametrize(("tie", "fields"), WAYS)
def test_a_shared_table_and_shared_blocks_start_once(tie: str, fields: dict[str, Any]) -> None:
    """A block that was turned twice would have less noise."""
    for built in (
        relative(init="local", tie=tie, **fields),
        rotary(init="local", tie=tie, **fields),
    ):
        block: Any = built.discriminator.encoder.blocks[0]
        q = block.qkv.weight.detach()[:32]
        for model in built.exports.values():
            words = model.encoder.embeddings.words.weight.detach()
            if isinstance(block, DisentangledBlock):
                assert close_to(words, 0.1)
                assert close_to(contexts_of(model.encoder).table.weight, 0.1)
            else:
                assert bool((words[6:, 0] == 0.1).all())
                assert close_to(words[:, 1:], 0.1 * CUT)
        free = q if isinstance(block, DisentangledBlock) else q[:, 1:]
        assert close_to(free, NOISE / math.sqrt(128))
