"""What only one architecture has: blocks, FLOPs, and what is refused."""

from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from batches import built
from counted import exactly
from electrify.errors import UserError
from electrify.flop_counts import passes_flops
from electrify.model import costs
from electrify.model.attention import ContextsByKind
from electrify.model.blocks import DisentangledBlock, GatedBlock
from electrify.model.costs import Pass
from electrify.model.encoder import Top

WIDE: dict[str, Any] = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
DEBERTA: dict[str, Any] = {"architecture": "deberta", "position_buckets": 16}
MODERN: dict[str, Any] = {"architecture": "modernbert", "local_attention": 8}


def test_shared_blocks_read_one_table() -> None:
    """Of two encoders that share their lowest blocks, and of the branches of one encoder; others
    have a table each."""
    for recipe, fields, shared in (
        ("electra-tiny", {"tie": "lower", "tie_layers": 1, **WIDE}, True),
        ("electra-tiny", {"tie": "all", "generator_size": 1.0}, True),
        ("electra-tiny", {"tie": "embeddings", **WIDE}, False),
    ):
        made = built(recipe, **DEBERTA | fields)
        tables = {id(m.encoder.contexts.table) for m in made.exports.values()}  # type: ignore[union-attr]
        assert (len(tables) == 1) == shared, fields
    teams = built("teams-tiny", **DEBERTA | WIDE)
    kept, selector = (teams.exports[n].encoder.contexts for n in ("discriminator", "selector"))
    assert kept is selector


def test_each_block_projects_the_rows_with_its_own_weights() -> None:
    """By those of queries and keys, with their biases, and in training with its own dropout."""
    encoder = built("bert-deberta-tiny", dropout=0.5).discriminator.encoder
    rows_ND = torch.randn(9, 32, generator=torch.Generator().manual_seed(0))
    for block in encoder.blocks:
        assert isinstance(block, DisentangledBlock)
        with torch.no_grad():
            block.qkv.bias.copy_(torch.arange(96))
        context = Mock(rows_ND=rows_ND, side_effect=lambda qkv_TX, *_: qkv_TX[:, :32])
        for training in (False, True, True):
            block.train(training)(torch.zeros(4, 32), context)
        given = [call.args[1] for call in context.call_args_list]
        block.eval()
        torch.testing.assert_close(given[0], block.qkv(rows_ND)[:, :64])
        assert all(not torch.equal(one, other) for one, other in pairwise(given))


def test_blocks_alternate_and_the_lowest_has_no_norm() -> None:
    fields = {"num_hidden_layers": 5, "global_attn_every_n_layers": 2}
    encoder = built("bert-modernbert-tiny", **fields).discriminator.encoder
    blocks = [b for b in encoder.blocks if isinstance(b, GatedBlock)]
    assert [b.kind for b in blocks] == ["global", "local", "global", "local", "global"]
    assert [b.window for b in blocks] == [None, 16, None, 16, None]
    names = [n for n, _ in encoder.named_parameters() if "norm1" in n]
    assert names == [f"blocks.{n}.norm1.weight" for n in range(1, 5)]
    assert torch.equal(blocks[0].norm1(x := torch.randn(3, 32)), x)
    other = built("bert-tiny", init="local", **MODERN).discriminator.encoder
    for contexts, of_global in ((encoder.contexts, 10_000.0), (other.contexts, 160_000.0)):
        assert isinstance(contexts, ContextsByKind)
        thetas = {kind: one.rotary and one.rotary.theta for kind, one in contexts.reaches.items()}
        assert thetas == {"global": of_global, "local": 10_000.0}


# Where no window is narrower than a row; the rows of the table that this row length reaches.
SHAPES = [MODERN | {"local_attention": 64}, *(DEBERTA | {"position_buckets": n} for n in (4, 256))]


@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_hardware_is_what_torch_counts(fields: dict[str, Any]) -> None:
    theirs, ours = exactly("bert-tiny", row_length=32, fields=fields)
    assert ours == theirs


def test_the_top_of_an_encoder_is_counted_too() -> None:
    deep = DEBERTA | {"num_hidden_layers": 3}
    encoder = built("bert-tiny", init="local", **deep).discriminator.encoder
    how: dict[str, Any] = {"row_length": 32, "convention": "hardware", "batch_rows": 2}
    whole, top = (
        passes_flops([Pass(one, 1.0, False)], **how) for one in (encoder, Top(encoder, 1))
    )
    assert top == pytest.approx(whole * 2 / 3, rel=1e-12)


def test_the_paper_s_convention_of_deberta() -> None:
    """Of one block of width 8 with 2 heads and feed-forward 6, in rows of 10."""
    sizes = costs.Sizes(width=8, layers=1, length=10, vocab=50, heads=2, feed_forward=6)
    distances = 2 * (2 * 8 * 20)  # of queries and of keys
    added = 2 * 2 * 10
    assert costs.relative_layer_flops(sizes) == costs.layer_flops(sizes) + distances + added


def test_the_paper_s_convention_of_modernbert() -> None:
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


def test_a_linear_head_has_no_class() -> None:
    """Every head of the library's classes normalises the states; so coco-lm's, of one row, cannot
    be exported, and the run is refused before it begins."""
    with pytest.raises(UserError, match="discriminator could not be exported"):
        built("corrective-tiny", rtd_head="linear", **MODERN | WIDE)
