"""Every line of the tables in model/init.py."""

import math
from typing import Any

import pytest
import torch
from roomy import CUT, ROOMY_VOCABULARY, VOCAB, close_to, roomy, std
from scipy.stats import kstest, truncnorm
from torch import Tensor, nn

from batches import built, encoder_of, pack, tiny
from electrify.build import Built, build
from electrify.model.attention import AttentionContext
from electrify.model.encoder import Encoder
from electrify.model.heads import BinaryHead
from electrify.model.init import (
    NOISE,
    OUTPUT_SCALE,
    TOKEN_SCALE,
    head_offset,
    init_bert,
    init_local_blocks,
    init_local_embeddings,
    local_heads,
    position_subspace,
    rotation,
    subspace_width,
)
from electrify.model.shape import Shape
from electrify.recipe import load, override

SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "embedding_size": 48,
    "intermediate_size": 128,
}  # heads 16 wide, a projection in both halves
TIES = ["none", "tokens", "embeddings", "all"]


def electra(recipe: str = "electra-tiny", **fields: Any) -> Built:
    return roomy(recipe, **(SIZES | fields))


@pytest.mark.parametrize("tie", TIES)
def test_bert_table(tie: str) -> None:
    b = electra(tie=tie, init="bert", generator_size=1.0 if tie == "all" else 0.5)
    seen = 0
    for part in b.objective.modules():
        for name, p in part.named_parameters(recurse=False):
            seen += 1
            if isinstance(part, nn.LayerNorm):
                assert bool((p == (1.0 if name == "weight" else 0.0)).all())
            elif name == "weight":
                assert isinstance(part, (nn.Linear, nn.Embedding))
                assert float(p.detach().abs().max()) <= 0.04 + 1e-8
                assert close_to(p, 0.02 * CUT), (part, std(p))
            else:
                assert name in ("bias", "bias_V")
                assert not p.any()
    assert seen >= 40


def test_bert_draws_a_truncated_normal() -> None:
    words = electra(init="bert").discriminator.encoder.embeddings.words.weight.detach()
    assert kstest(words.flatten().numpy(), truncnorm(-2, 2, scale=0.02).cdf).pvalue > 1e-3
    assert abs(float(words.mean())) < 4 * 0.02 / math.sqrt(words.numel())


# 2003.10555's public code: sqrt(2 / (fan in + fan out)) of ELECTRA-Small's projections 128 -> 256
# and 128 -> 64 and of its logit 256 -> 1.
GLOROT = {"discriminator.project": 0.0722, "generator.project": 0.1021, "logit": 0.0882}


def test_published_layers_of_electra_small() -> None:
    fields = {"num_hidden_layers": 1, "max_seq_length": 32, "init": "published"}
    b = build(override(load("electra-small"), fields), ROOMY_VOCABULARY)
    head = b.discriminator.head
    assert isinstance(head, BinaryHead)
    found: dict[str, Any] = {
        f"{name}.project": half.encoder.project for name, half in b.exports.items()
    } | {"logit": head.out}
    for name, layer in found.items():
        assert math.sqrt(2 / sum(layer.weight.shape)) == pytest.approx(GLOROT[name], abs=5e-5)
        assert close_to(layer.weight, GLOROT[name]), name
        edge = GLOROT[name] * math.sqrt(3)  # of an even distribution
        assert float(layer.weight.detach().abs().max()) <= edge * 1.001
        assert (
            kstest((layer.weight.detach().flatten() / edge / 2 + 0.5).numpy(), "uniform").pvalue
            > 1e-3
        )
        assert not layer.bias.any()


@pytest.mark.parametrize(
    "recipe",
    ["electra-tiny", "bert-tiny", "all-tokens-mlm-tiny", "adversarial-tiny", "electric-tiny"],
)
def test_published_differs_from_bert_where_its_table_says(recipe: str) -> None:
    """In projections and layers with one output; the layer below the logit is not one of them."""
    size = {"embedding_size": 24} | ({"generator_size": 0.25} if recipe != "bert-tiny" else {})
    bert, published = (
        electra(recipe, init=init, **size).objective for init in ("bert", "published")
    )
    one, two = bert.state_dict(), published.state_dict()
    want = {
        f"{n}.weight"
        for n, m in published.named_modules()
        if isinstance(m, nn.Linear) and (n.endswith("project") or m.out_features == 1)
    }
    assert {n for n in one if not torch.equal(one[n], two[n])} == want
    assert len(want) >= 1


@pytest.mark.parametrize("init", ["bert", "local"])
def test_the_seed_alone_decides(init: str) -> None:
    found = []
    for global_seed, own in ((1, {}), (2, {}), (2, {"seed": 1})):
        torch.manual_seed(global_seed)
        found.append(built("electra-tiny", init=init, **own).objective.state_dict())
    one, two, other = found
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(one[n], other[n]) for n in one)


def test_position_subspace_by_hand() -> None:
    """One pair: a quarter turn a position, root 2 long. Two pairs: the second turns sqrt(32) times
    slower."""
    r2, turn = math.sqrt(2), 3 * math.pi / 2 / 32**0.5
    expected = torch.tensor([[0, r2], [r2, 0], [0, -r2], [-r2, 0], [0, r2]])
    torch.testing.assert_close(position_subspace(5, 2), expected, rtol=0, atol=1e-6)
    second = position_subspace(4, 4)[3, 2:].tolist()
    assert second == pytest.approx([r2 * math.sin(turn), r2 * math.cos(turn)], abs=1e-6)


@pytest.mark.parametrize("width", [2, 32])
def test_position_subspace_and_rotation(width: int) -> None:
    at = position_subspace(600, width).double()
    torch.testing.assert_close(
        at.pow(2).mean(1), torch.ones(600, dtype=torch.float64), rtol=1e-5, atol=0
    )
    for offset in (-3, -2, -1, 0, 1, 2, 3):
        turned = at @ rotation(offset, width).double().T
        inside = slice(max(0, -offset), 600 - max(0, offset))
        torch.testing.assert_close(
            turned[inside], at[inside.start + offset : inside.stop + offset], rtol=0, atol=2e-4
        )
    assert torch.equal(rotation(0, width), torch.eye(width))


def test_how_many_heads_are_local() -> None:
    assert [local_heads(h) for h in (1, 2, 3, 4, 5, 8, 12)] == [1, 2, 2, 2, 2, 4, 6]


def test_subspace_width() -> None:
    """The narrowest head, even, and at most half of embeddings and hidden states: a generator with
    one head would else pass no words through."""

    def shape(e: int, d: int, h: int) -> Shape:
        sizes = {"num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8}
        names = {"vocab_size": 9, "embedding_size": e, "hidden_size": d, "num_attention_heads": h}
        return Shape(**sizes | names)

    assert subspace_width(shape(128, 128, 4), shape(128, 64, 2)) == 32
    assert subspace_width(shape(128, 256, 4)) == 64
    assert subspace_width(shape(128, 256, 4), shape(128, 64, 1)) == 32
    assert subspace_width(shape(64, 128, 2)) == 32
    assert subspace_width(shape(20, 20, 4)) == 4


@pytest.mark.parametrize("tie", TIES)
def test_local_embeddings_table(tie: str) -> None:
    """In both halves, whatever they share: each table scaled exactly once."""
    b = electra(tie=tie, generator_size=1.0 if tie == "all" else 0.5)
    p = 16
    for half in b.exports.values():
        e = half.encoder.embeddings
        assert not e.words.weight[:, :p].any()
        assert close_to(e.words.weight[:, p:], 0.1 * CUT), std(e.words.weight[:, p:])
        assert not e.segments.weight[:, :p].any()
        assert close_to(e.segments.weight[:, p:], 0.02 * CUT)
        torch.testing.assert_close(
            e.positions.weight[1:, :p].detach(), TOKEN_SCALE * position_subspace(64, p)[1:]
        )
        assert std(e.positions.weight[1:, :p]) == pytest.approx(0.1, rel=1e-5)
        assert not e.positions.weight[0, :p].any()
        assert close_to(e.positions.weight[:, p:], 0.02 * CUT)
        assert bool((e.norm.weight == 1).all())
        assert not e.norm.bias.any()


@pytest.mark.parametrize(("tie", "amplitude"), [("none", 1.0), ("embeddings", 3.0), ("all", 3.0)])
def test_local_blocks_table(tie: str, amplitude: float) -> None:
    b = electra(tie=tie, generator_size=1.0 if tie == "all" else 0.5, local_amplitude=amplitude)
    p = 16
    for half in b.exports.values():
        shape = half.encoder.shape
        w, d, heads = shape.head_width, shape.hidden_size, shape.num_attention_heads
        assert half.encoder.project is not None
        project = half.encoder.project.weight.detach()
        assert torch.equal(project[:p, :p], torch.eye(p))
        assert not project[:p, p:].any()
        assert not project[p:, :p].any()
        assert close_to(project[p:, p:], 1 / math.sqrt(48))
        s = math.sqrt(amplitude * 4 * math.sqrt(w) / p)
        for block in half.encoder.blocks:
            q, k, v = block.qkv.weight.detach().view(3, heads, w, d)  # type: ignore[union-attr]
            for free in range(local_heads(heads), heads):
                assert close_to(q[free], 1 / math.sqrt(d))
                assert close_to(k[free], 1 / math.sqrt(d))
            for h in range(local_heads(heads)):
                rest_q, rest_k = q[h].clone(), k[h].clone()
                rest_q[:p, :p] -= s * rotation(head_offset(h), p)
                rest_k[:p, :p] -= s * torch.eye(p)
                for rest in (rest_q, rest_k, rest_q[:p, :p], rest_k[:p, :p]):
                    assert close_to(rest, NOISE / math.sqrt(d))
            assert close_to(v, 1 / math.sqrt(d))
            assert close_to(block.up.weight, 1 / math.sqrt(d))  # type: ignore[union-attr]
            assert close_to(block.out.weight, OUTPUT_SCALE / math.sqrt(d))  # type: ignore[union-attr]
            assert close_to(block.down.weight, OUTPUT_SCALE / math.sqrt(shape.intermediate_size))  # type: ignore[union-attr]
    head: Any = b.discriminator.head
    for layer in (head.dense, head.out):
        assert close_to(layer.weight, 1 / math.sqrt(layer.in_features))
    for name, p in b.objective.named_parameters():
        if p.ndim == 1:
            assert bool((p == ("norm" in name and name.endswith("weight"))).all()), name
    assert (NOISE, OUTPUT_SCALE, TOKEN_SCALE) == (0.3, 0.1, 0.1)


def local_encoder(*, amplitude: float, heads: int, hidden: int, embedding: int) -> Encoder:
    shape = Shape(
        vocab_size=500,
        embedding_size=embedding,
        hidden_size=hidden,
        num_hidden_layers=4,
        num_attention_heads=heads,
        intermediate_size=2 * hidden,
        max_position_embeddings=128,
    )
    encoder = encoder_of(shape, dropout=0.0, attention_dropout=0.0)
    rng = torch.Generator().manual_seed(0)
    init_bert(encoder, rng)
    init_local_embeddings(encoder.embeddings, encoder.embeddings.words, subspace_width(shape))
    init_local_blocks(encoder, subspace_width(shape), rng, amplitude=amplitude)
    return encoder


@torch.no_grad()
def attention_weights(encoder: Encoder, length: int = 64) -> list[Tensor]:
    """[H, L, L] of every layer, on one sequence of random words."""
    ids = torch.randint(6, 500, (length,), generator=torch.Generator().manual_seed(1)).tolist()
    tokens = pack([[ids]], row_length=length)
    x, heads, found = encoder.embed(tokens), encoder.shape.num_attention_heads, []
    for block in encoder.blocks:
        q, k, _ = block.qkv(x).view(length, 3, heads, -1).permute(1, 2, 0, 3)  # type: ignore[operator]
        found.append((q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1))
        x = block(x, AttentionContext(tokens, x.dtype))
    return found


@pytest.mark.parametrize(
    ("amplitude", "low", "high", "heads", "hidden", "embedding"),
    [(1.0, 0.25, 0.45, 4, 128, 128), (3.0, 0.75, 0.9, 2, 64, 128), (3.0, 0.75, 0.9, 8, 256, 256)],
)
def test_head_j_looks_at_its_neighbour(amplitude, low, high, heads, hidden, embedding):
    """Layer 0: weight .3 (amplitude 1) to .8 (amplitude 3) on position i + o_j, as measured; deeper
    layers still prefer it."""
    layers = attention_weights(
        local_encoder(amplitude=amplitude, heads=heads, hidden=hidden, embedding=embedding)
    )
    for depth, weights in enumerate(layers):
        for head in range(local_heads(heads)):
            offset = head_offset(head)
            preferred = weights[head].diagonal(offset)[1:]
            if depth == 0:
                assert low < float(preferred.mean()) < high, (head, float(preferred.mean()))
            inside = slice(
                max(1, 1 - offset), 64 - max(0, offset)
            )  # of the positions that neither are nor look at position 0
            best = weights[head].argmax(-1)[inside] - torch.arange(64)[inside]
            assert float((best == offset).float().mean()) > 0.8, (depth, head)


def test_position_0_looks_at_all_of_the_sequence() -> None:
    """What a classifier reads: no head of it prefers a neighbour, and a free head spreads its
    attention wherever it stands."""
    first = attention_weights(local_encoder(amplitude=3.0, heads=4, hidden=128, embedding=128))[0]
    assert float(first[:, 0].max()) < 0.25  # of 64
    assert float(first[2:].amax(-1).mean()) < 0.25
    assert float(first[:2, 8:].amax(-1).mean()) > 0.6


@pytest.mark.parametrize(("init", "width", "scale"), [("bert", 0, 0.02), ("local", 16, 0.1)])
@pytest.mark.parametrize("tie", ["none", "embeddings"])
def test_words_start_from_vectors(tie: str, init: str, width: int, scale: float) -> None:
    """Behind the position subspace, in every table of words; a word without a vector and everything
    else stay as they were."""
    fields: dict[str, Any] = {"tie": tie, "init": init}
    asked: list[int] = []

    def vectors(dimensions: int) -> Tensor:
        asked.append(dimensions)
        found = torch.randn(VOCAB, dimensions, generator=torch.Generator().manual_seed(0))
        found[7] = 0
        return found

    config = tiny("electra-tiny", **(SIZES | fields | {"init_words": "cooccurrence"}))
    b = build(config, ROOMY_VOCABULARY, vectors=vectors)
    plain = electra(**fields, init_words="random")
    assert set(asked) == {48 - width}
    for name, half in b.exports.items():
        words, before = (
            half.encoder.embeddings.words.weight.detach(),
            plain.exports[name].encoder.embeddings.words.weight.detach(),
        )
        known = torch.arange(VOCAB) != 7
        torch.testing.assert_close(words[known, width:], scale * vectors(48 - width)[known])
        assert torch.equal(words[7], before[7])
        assert torch.equal(words[:, :width], before[:, :width])
    one, other = b.objective.state_dict(), plain.objective.state_dict()
    assert {n for n in one if not torch.equal(one[n], other[n])} == {
        n for n in one if one[n].shape == (VOCAB, 48)
    }
