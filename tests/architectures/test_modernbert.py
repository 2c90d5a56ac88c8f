"""What only ModernBERT's architecture has: blocks, FLOPs, recipes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from batches import built, ragged_batch
from electrify.errors import UserError
from electrify.flop_counts import passes_flops
from electrify.model import costs
from electrify.model.attention import ContextsByKind
from electrify.model.blocks import GatedBlock
from electrify.model.costs import Pass
from electrify.model.encoder import Encoder
from electrify.recipe import load, names, override

WIDE: dict[str, Any] = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
MODERN: dict[str, Any] = {"architecture": "modernbert", "local_attention": 8}


def test_blocks_alternate_and_the_lowest_has_no_norm() -> None:
    fields = {"num_hidden_layers": 5, "global_attn_every_n_layers": 2}
    encoder = built("bert-modernbert-tiny", **fields).discriminator.encoder
    blocks = [b for b in encoder.blocks if isinstance(b, GatedBlock)]
    assert [b.kind for b in blocks] == ["global", "local", "global", "local", "global"]
    assert [b.window for b in blocks] == [None, 16, None, 16, None]
    names = [n for n, _ in encoder.named_parameters() if "norm1" in n]
    assert names == [f"blocks.{n}.norm1.weight" for n in range(1, 5)]
    assert torch.equal(blocks[0].norm1(x := torch.randn(3, 32)), x)
    contexts = encoder.contexts
    assert isinstance(contexts, ContextsByKind)
    thetas = {kind: one.rotary and one.rotary.theta for kind, one in contexts.reaches.items()}
    assert thetas == {"global": 10_000.0, "local": 10_000.0}
    other = built("bert-tiny", init="local", **MODERN).discriminator.encoder.contexts
    assert isinstance(other, ContextsByKind)
    theta = {kind: one.rotary and one.rotary.theta for kind, one in other.reaches.items()}
    assert theta == {"global": 160_000.0, "local": 10_000.0}


# ---------------------------------------------------------------- FLOPs


def counted(encoder: Encoder, tokens: Any) -> int:
    contexts: Any = encoder.contexts
    contexts.backend = "matmul"  # torch's counter does not look into the fused kernel of a CPU
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(tokens)
    return counter.get_total_flops()


def test_hardware_is_what_torch_counts() -> None:
    """Where no window is narrower than a row."""
    encoder = built(
        "bert-tiny", init="local", **MODERN | {"local_attention": 64}
    ).discriminator.encoder
    tokens = ragged_batch()
    ours = passes_flops([Pass(encoder, 1.0, False)], row_length=32, convention="hardware")
    assert len(tokens.ids_T) * ours == counted(encoder, tokens)


def test_the_paper_s_convention_by_hand() -> None:
    """Of one block of width 8 with 2 heads and feed-forward 6, in rows of 10, a window of 2."""
    sizes = costs.Sizes(width=8, layers=1, length=10, vocab=50, heads=2, feed_forward=6)
    qkv, turns = 3 * 2 * 64, 2 * 3 * 8
    scores = 2 * 8 * 5 + 2 * 5 * (5 + 4 + 1)
    mixed = 2 * 8 * 5 + 2 * 64
    up, act, down = 2 * 8 * 12, 6 * 8 + 6, 2 * 6 * 8
    rests = 2 * (4 * 8 + 8 + 5 * 8)  # dropout, residual, norm
    want = qkv + turns + scores + mixed + up + act + down + rests
    assert costs.gated_layer_flops(sizes, keys=5) == want
    assert costs.words_flops(sizes) == 2 * 8 * 50 + 9 * 8


# ---------------------------------------------------------------- recipes, and what is refused

SIZES = ("tiny", "mini", "small", "base")


def test_recipes_differ_from_their_models_in_the_encoder_only() -> None:
    for objective in ("bert", "electra", "corrective"):
        for size in SIZES:
            name = f"{objective}-modernbert-{size}"
            assert name in names()
            ours, model = load(name), load(f"{objective}-{size}")
            assert (ours.data, ours.objective, ours.corruption, ours.train) == (
                model.data,
                model.objective,
                model.corruption,
                model.train,
            )
            alone = override(ours, {"architecture": "electra"}).model
            assert alone.tie == model.model.tie
            assert ours.model.init == {"bert": "published"}.get(model.model.init, "local")


def test_feed_forward_layers_have_the_parameters_of_the_models() -> None:
    """Three matrices in the place of two: within 2 %, but of the published shape."""
    for size in SIZES[:-1]:
        gated, plain = (load(f"{n}-{size}").model for n in ("bert-modernbert", "bert"))
        share = 3 * gated.intermediate_size / (2 * plain.intermediate_size)
        assert share == pytest.approx(1, abs=0.02)


def test_a_linear_head_has_no_class() -> None:
    """Every head of the library's classes normalises the states; so coco-lm's, of one row, cannot
    be exported, and the run is refused before it begins."""
    with pytest.raises(UserError, match="discriminator could not be exported"):
        built("corrective-tiny", rtd_head="linear", **MODERN | WIDE)
