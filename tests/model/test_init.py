"""Every line of the tables in model/init.py, and what they are for: heads that look at an
offset."""

import math
from typing import Any

import pytest
import torch
from scipy.stats import kstest, truncnorm
from torch import Tensor, nn

from batches import SPECIAL, VOCABULARY, built, from_sequences, tiny
from electrify.build import Built, Vocabulary, build
from electrify.model import attention, relative
from electrify.model.attention import Rotary
from electrify.model.embeddings import Shape
from electrify.model.encoder import Encoder, encoders_of
from electrify.model.heads import NormedBinaryHead
from electrify.model.init import (
    LOWEST,
    NOISE,
    OUTPUT_SCALE,
    TOKEN_SCALE,
    contexts_of,
    head_offset,
    local_heads,
    offset_amplitudes,
    position_subspace,
    rotation,
    row_of,
    subspace_width,
)

# The deviation of a standard normal that is cut at 2: what `std .02` and `.1` of the tables come
# out as.
CUT = 0.879626
# Networks that are wide enough for a look at the spread of their initial values.
VOCAB = 600
ROOMY = Vocabulary(VOCAB, SPECIAL)
# Heads 16 wide, a projection in both halves.
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "embedding_size": 48}
SIZES |= {"intermediate_size": 128}
# Heads that know distances, 32 wide; six blocks in both halves.
RELATIVE = {"hidden_size": 128, "embedding_size": 128, "num_attention_heads": 4}
RELATIVE |= {"intermediate_size": 96, "num_hidden_layers": 4, "generator_size": 1.0}
RELATIVE |= {"generator_num_hidden_layers": 2, "max_position_embeddings": 256}
NEAR = 2  # heads of four that look at an offset
TIES = ["none", "tokens", "embeddings", "all"]


def roomy(recipe: str, **fields: Any) -> Built:
    return build(tiny(recipe, **fields), ROOMY)


def electra(recipe: str = "electra-tiny", **fields: Any) -> Built:
    halves = {"generator_size": 1.0 if fields.get("tie") == "all" else 0.5}
    return roomy(recipe, **(SIZES | halves | fields))


def deberta(**fields: Any) -> Built:
    return roomy("electra-deberta-tiny", **(RELATIVE | fields))


def modernbert(**fields: Any) -> Built:
    return roomy("electra-modernbert-tiny", **(RELATIVE | fields))


def std(t: Tensor) -> float:
    """Root mean square."""
    return float(t.detach().double().pow(2).mean().sqrt())


def close_to(t: Tensor, expected: float) -> bool:
    """Root mean square within 4 standard errors."""
    return abs(std(t) / expected - 1) < 4 / math.sqrt(2 * t.numel())


def blocks_of(built: Built) -> list[tuple[Any, Encoder]]:
    """Every block with its encoder."""
    return [(block, e) for e in encoders_of(built.objective) for block in e.blocks]


PUBLISHED = {"init": "published", "tie": "embeddings"}


@pytest.mark.parametrize(
    ("made", "std", "most"),
    [
        *((lambda tie=tie: electra(tie=tie, init="bert"), 0.02 * CUT, 0.04) for tie in TIES),
        *((lambda h=h: deberta(rtd_head=h, **PUBLISHED), 0.02, 1.0) for h in ("dense", "v3")),
    ],
)
def test_table_of_bert_and_of_relative(made: Any, std: float, most: float) -> None:
    """DeBERTa's values are not cut."""
    seen = 0
    for part in made().objective.modules():
        for name, p in part.named_parameters(recurse=False):
            seen += 1
            if isinstance(part, nn.LayerNorm):
                assert bool((p == (name == "weight")).all())
            elif name == "weight":
                assert isinstance(part, nn.Linear | nn.Embedding)
                assert close_to(p, std), part
                largest = float(p.detach().abs().max())
                assert largest <= most + 1e-8
                assert most == 0.04 or p.numel() < 1000 or largest > 2.5 * 0.02
            else:
                assert name in ("bias", "bias_V")
                assert not p.any()
    assert seen >= 40


def test_bert_draws_a_truncated_normal() -> None:
    words = electra(init="bert").discriminator.encoder.embeddings.words.weight.detach()
    assert kstest(words.flatten().numpy(), truncnorm(-2, 2, scale=0.02).cdf).pvalue > 1e-3
    assert abs(float(words.mean())) < 4 * 0.02 / math.sqrt(words.numel())


@pytest.mark.parametrize(
    "recipe",
    ["electra-tiny", "bert-tiny", "all-tokens-mlm-tiny", "adversarial-tiny", "electric-tiny"],
)
def test_published_differs_from_bert_where_its_table_says(recipe: str) -> None:
    """In projections and layers with one output, which are uniform with the deviation sqrt(2 / (fan
    in + fan out)); the layer below the logit is not one of them."""
    size = {"embedding_size": 24} | ({"generator_size": 0.25} if recipe != "bert-tiny" else {})
    bert, published = (
        electra(recipe, init=init, **size).objective for init in ("bert", "published")
    )
    one, two = bert.state_dict(), published.state_dict()
    layers = {
        f"{n}.weight": m
        for n, m in published.named_modules()
        if isinstance(m, nn.Linear) and (n.endswith("project") or m.out_features == 1)
    }
    assert {n for n in one if not torch.equal(one[n], two[n])} == layers.keys() != set()
    for name, layer in layers.items():
        weight, deviation = layer.weight.detach(), math.sqrt(2 / sum(layer.weight.shape))
        assert close_to(weight, deviation), name
        edge = deviation * math.sqrt(3)  # of an even distribution
        assert float(weight.abs().max()) <= edge * 1.001
        assert kstest((weight.flatten() / edge / 2 + 0.5).numpy(), "uniform").pvalue > 1e-3
        assert not layer.bias.any()


def test_published_table_of_rotary() -> None:
    built = modernbert(init="published")
    seen: set[int] = set()

    def has(p: Tensor, std: float) -> None:
        seen.add(id(p))
        assert close_to(p, std * CUT)
        assert float(p.detach().abs().max()) <= 2 * std * (1 + 1e-6)

    has(built.discriminator.encoder.embeddings.words.weight, 0.02)
    for block, encoder in blocks_of(built):
        scaled = 0.02 / math.sqrt(2 * len(encoder.blocks))
        for layer, size in (("qkv", 0.02), ("up", 0.02), ("out", scaled), ("down", scaled)):
            has(getattr(block, layer).weight, size)
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
                assert not p.any()
            else:
                assert id(p) in seen, (type(part), name)


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
    assert at.pow(2).mean(1).tolist() == pytest.approx([1.0] * 600, rel=1e-5)
    for offset in (-3, -2, -1, 0, 1, 2, 3):
        turned = at @ rotation(offset, width).double().T
        inside = slice(max(0, -offset), 600 - max(0, offset))
        there = at[inside.start + offset : inside.stop + offset]
        torch.testing.assert_close(turned[inside], there, rtol=0, atol=2e-4)


def test_how_many_heads_are_local_and_how_wide_the_subspace_is() -> None:
    """The narrowest head, even, and at most half of embeddings and hidden states: a generator with
    one head would else pass no words through."""
    assert [local_heads(h) for h in (1, 2, 3, 4, 5, 8, 12)] == [1, 2, 2, 2, 2, 4, 6]
    assert [head_offset(h) for h in range(4)] == [-1, 1, -2, 2]
    assert [[head_offset(h, side) for h in range(3)] for side in ("left", "right")] == [
        [0, -1, -2],
        [0, 1, 2],
    ]
    sizes = {"num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8}
    for width, *shapes in (
        (32, (128, 128, 4), (128, 64, 2)),
        (32, (128, 256, 4), (128, 64, 1)),
        (4, (20, 20, 4)),
    ):
        made = [
            Shape(vocab_size=9, embedding_size=e, hidden_size=d, num_attention_heads=h, **sizes)
            for e, d, h in shapes
        ]
        assert subspace_width(*made) == width


@pytest.mark.parametrize("tie", TIES)
def test_local_embeddings_table(tie: str) -> None:
    """In both halves, whatever they share: each table scaled exactly once."""
    b = electra(tie=tie)
    p = 16
    for half in b.exports.values():
        e = half.encoder.embeddings
        assert not e.words.weight[:, :p].any()
        assert close_to(e.words.weight[:, p:], 0.1 * CUT), std(e.words.weight[:, p:])
        assert not e.segments.weight[:, :p].any()
        assert close_to(e.segments.weight[:, p:], 0.02 * CUT)
        at = e.positions.weight.detach()
        torch.testing.assert_close(at[1:, :p], 0.1 * position_subspace(64, p)[1:])
        assert std(at[1:, :p]) == pytest.approx(0.1, rel=1e-5)
        assert not at[0, :p].any()
        assert close_to(at[:, p:], 0.02 * CUT)


@pytest.mark.parametrize(("tie", "amplitude"), [("none", 1.0), ("embeddings", 3.0), ("all", 3.0)])
def test_local_blocks_table(tie: str, amplitude: float) -> None:
    b = electra(tie=tie, local_amplitude=amplitude)
    p = 16
    assert (NOISE, OUTPUT_SCALE, TOKEN_SCALE) == (0.3, 0.1, 0.1)
    for half in b.exports.values():
        project = half.encoder.project.weight.detach()  # type: ignore[union-attr]
        assert torch.equal(project[:p, :p], torch.eye(p))
        assert not project[:p, p:].any()
        assert not project[p:, :p].any()
        assert close_to(project[p:, p:], 1 / math.sqrt(48))
    for block, encoder in blocks_of(b):
        shape = encoder.shape
        w, d, heads = shape.head_width, shape.hidden_size, shape.num_attention_heads
        r, s = 1 / math.sqrt(d), math.sqrt(amplitude * 4 * math.sqrt(w) / p)
        q, k, v = block.qkv.weight.detach().view(3, heads, w, d)
        near = local_heads(heads)
        for h in range(near):
            rest_q, rest_k = q[h].clone(), k[h].clone()
            rest_q[:p, :p] -= s * rotation(head_offset(h), p)
            rest_k[:p, :p] -= s * torch.eye(p)
            for rest in (rest_q, rest_k, rest_q[:p, :p], rest_k[:p, :p]):
                assert close_to(rest, NOISE * r)
        for other in (*q[near:], *k[near:], v, block.up.weight):
            assert close_to(other, r)
        assert close_to(block.out.weight, OUTPUT_SCALE * r)
        assert close_to(block.down.weight, OUTPUT_SCALE / math.sqrt(shape.intermediate_size))
    head: Any = b.discriminator.head
    for layer in (head.dense, head.out):
        assert close_to(layer.weight, 1 / math.sqrt(layer.in_features))
    for name, p in b.objective.named_parameters():
        if p.ndim == 1:
            assert bool((p == ("norm" in name and name.endswith("weight"))).all()), name


def test_local_table_of_relative() -> None:
    built = deberta(init="local", tie="embeddings", rtd_head="v3")
    assert close_to(built.discriminator.encoder.embeddings.words.weight, 0.1)
    head: Any = built.discriminator.head
    assert close_to(head.dense.weight, 0.02)
    r, size = 1 / math.sqrt(128), math.sqrt(3.0 * 4 * math.sqrt(3 / 32))
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
    built = modernbert(init="local")
    words = built.discriminator.encoder.embeddings.words.weight.detach()
    assert bool((words[:, 0] == 0.1).sum() == 599)
    assert words[SPECIAL.cls, 0] == 0
    assert close_to(words[:, 1:], 0.1 * CUT)
    r = 1 / math.sqrt(128)
    for block, encoder in blocks_of(built):
        q, k, v = block.qkv.weight.detach().view(3, 4, 32, 128)
        assert close_to(q[:NEAR, :, 1:], NOISE * r)
        assert close_to(k[:NEAR, :, 1:], NOISE * r)
        for other in (q[NEAR:], k[NEAR:], v, block.up.weight):
            assert close_to(other, r)
        for layer in (block.out, block.down):
            weight, depth = layer.weight.detach(), len(encoder.blocks)
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
    known = a_C > 0
    assert torch.equal(known, w_C >= LOWEST)
    torch.testing.assert_close((a_C**2 / a_C[0] ** 2)[known], w_C[known].sqrt())


@torch.no_grad()
def weights_of(encoder: Encoder, patch: pytest.MonkeyPatch) -> list[Tensor]:
    """The attention weights [H, L, L] of every block, for one row of random words."""
    rng, found = torch.Generator().manual_seed(0), list[Tensor]()
    ids = [SPECIAL.cls, *torch.randint(6, VOCAB, (60,), generator=rng).tolist(), SPECIAL.sep]

    def kept(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, scale: Any = None, **how: Any
    ) -> Any:
        scores = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1])) + bias
        found.append(scores.softmax(-1).flatten(0, 1))
        return scores.softmax(-1) @ v

    for module in (attention, relative):
        patch.setattr(module, "attend", kept)
    encoder.eval()(from_sequences([ids], row_length=len(ids), pad=SPECIAL.pad))
    return found


def sized(heads: int, hidden: int, embedding: int, amplitude: float) -> dict[str, Any]:
    own = {"num_attention_heads": heads, "hidden_size": hidden, "embedding_size": embedding}
    return RELATIVE | own | {"intermediate_size": 2 * hidden, "local_amplitude": amplitude}


# Fields; how much of the attention of the first block lies on the preferred position, as measured;
# how much at least in deeper blocks, and for what share of the tokens that is the most.
LOOKS: list[tuple[dict[str, Any], float, float, float, float]] = [
    (sized(4, 128, 128, 1.0), 0.25, 0.45, 0.0, 0.8),
    (sized(2, 64, 128, 3.0), 0.75, 0.9, 0.0, 0.8),
    (sized(8, 256, 256, 3.0), 0.75, 0.9, 0.0, 0.8),
    (RELATIVE | {"architecture": "deberta"}, 0.5, 1.0, 0.5, 0.7),
    (RELATIVE | {"architecture": "modernbert", "local_attention": 32}, 0.5, 1.0, 0.5, 0.7),
]


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize(("fields", "low", "high", "deep", "best"), LOOKS, ids=str)
def test_a_head_looks_at_its_offset(monkeypatch, fields, low, high, deep, best, direction):
    """Whatever the words are: the position that its tokens look at most is the preferred one, in
    every block, global and local, and other heads have none."""
    recipe = "electra-tiny" if direction == "both" else "electric-tiny"
    built = roomy(recipe, **fields | {"init": "local"})
    both = direction == "both"
    encoder = built.discriminator.encoder if both else getattr(built.objective.corruptor, direction)
    inner = torch.arange(6, 56)  # where every neighbour is there
    for depth, a_HLL in enumerate(weights_of(encoder, monkeypatch)):
        near = local_heads(len(a_HLL))
        for head in range(near):
            offset = head_offset(head, direction)
            at = float(a_HLL[head, inner, inner + offset].mean())
            assert (low < at < high) if depth == 0 and both else at > deep, (depth, head, at)
            looked = a_HLL[head, inner].argmax(-1) - inner
            assert float((looked == offset).float().mean()) > best, (depth, head)
        assert not both or not deep or float(a_HLL[near:, inner].amax(-1).mean()) < 0.5


def test_position_0_looks_at_all_of_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a classifier reads: no head of it prefers a neighbour, and a free head spreads its
    attention wherever it stands."""
    built = roomy("electra-tiny", **sized(4, 128, 128, 3.0))
    first = weights_of(built.discriminator.encoder, monkeypatch)[0]
    assert float(first[:, 0].max()) < 0.25  # of 62
    assert float(first[2:].amax(-1).mean()) < 0.25
    assert float(first[:2, 8:].amax(-1).mean()) > 0.6


def test_the_constant_survives_all_blocks() -> None:
    encoder = modernbert(init="local", num_hidden_layers=6).discriminator.encoder.eval()
    encoder.norm = None
    tokens = from_sequences([list(range(6, 36))], row_length=30, pad=SPECIAL.pad)
    with torch.no_grad():
        before, after = encoder.embed(tokens), encoder(tokens)
    assert torch.equal(before[:, 0], after[:, 0])
    assert float((before - after).abs().max()) > 0.1


@pytest.mark.parametrize(("init", "width", "scale"), [("bert", 0, 0.02), ("local", 16, 0.1)])
@pytest.mark.parametrize("tie", ["none", "embeddings"])
def test_words_start_from_vectors(tie: str, init: str, width: int, scale: float) -> None:
    """Behind the position subspace, in every table of words; a word without a vector and everything
    else stay as they were."""
    fields: dict[str, Any] = {"tie": tie, "init": init, "generator_size": 0.5}
    asked: list[int] = []

    def vectors(dimensions: int) -> Tensor:
        asked.append(dimensions)
        found = torch.randn(VOCAB, dimensions, generator=torch.Generator().manual_seed(0))
        found[7] = 0
        return found

    config = tiny("electra-tiny", **(SIZES | fields | {"init_words": "cooccurrence"}))
    b = build(config, ROOMY, vectors=vectors)
    one = b.objective.state_dict()
    other = electra(**fields, init_words="random").objective.state_dict()
    assert set(asked) == {48 - width}
    tables = {n for n in one if one[n].shape == (VOCAB, 48)}
    assert {n for n in one if not torch.equal(one[n], other[n])} == tables
    known = torch.arange(VOCAB) != 7
    for name in tables:
        torch.testing.assert_close(one[name][known, width:], scale * vectors(48 - width)[known])
        assert torch.equal(one[name][7], other[name][7])
        assert torch.equal(one[name][:, :width], other[name][:, :width])


def test_words_from_the_corpus_leave_the_constant_alone() -> None:
    for init, size in (("local", 0.1), ("published", 0.02)):
        config = tiny("bert-modernbert-tiny", init=init, init_words="cooccurrence")
        made = build(config, VOCABULARY, vectors=lambda k: torch.ones(48, k))
        words = made.discriminator.encoder.embeddings.words.weight
        assert bool((words[6:] == size).all())
        assert (words[SPECIAL.cls, 0] == 0) == (init == "local")


WAYS: list[tuple[str, dict[str, Any]]] = [
    ("embeddings", {}),
    ("gdes", {}),
    ("lower", {"tie_layers": 1}),
    ("none", {"generator_size": 0.5}),
]


@pytest.mark.parametrize(("tie", "fields"), WAYS)
def test_a_shared_table_and_shared_blocks_start_once(tie: str, fields: dict[str, Any]) -> None:
    """A block that was turned twice would have less noise. A table of differences starts at 0."""
    starts = {"electra": (32, 0.1 * CUT), "modernbert": (1, 0.1 * CUT), "deberta": (0, 0.1)}
    for name, (first, size) in starts.items():
        own = {"architecture": name, "init": "local", "tie": tie}
        built = roomy("electra-tiny", **RELATIVE | own | fields)
        for model in built.exports.values():
            words: Any = model.encoder.embeddings.words
            assert not getattr(words, "delta_VE", torch.zeros(1)).any()
            assert close_to(words.weight[:, first:], size)
            if name == "deberta":
                assert close_to(contexts_of(model.encoder).table.weight, 0.1)
        block: Any = built.discriminator.encoder.blocks[0]
        assert close_to(block.qkv.weight[:32, first:], NOISE / math.sqrt(128))
