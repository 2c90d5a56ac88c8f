"""What only DeBERTa's architecture has: blocks, FLOPs, recipes, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from batches import built, ragged_batch
from electrify.flop_counts import passes_flops
from electrify.model import costs
from electrify.model.blocks import DisentangledBlock
from electrify.model.costs import Pass
from electrify.model.encoder import Encoder, Top
from electrify.recipe import load, names

WIDE: dict[str, Any] = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
DEBERTA: dict[str, Any] = {"architecture": "deberta", "position_buckets": 16}


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


class Told:
    """In the place of a context: keeps what a block gives to it."""

    def __init__(self, rows_ND: Tensor) -> None:
        self.rows_ND = rows_ND
        self.relative_NX = rows_ND

    def __call__(self, qkv_TX: Tensor, relative_NX: Tensor, heads: int) -> Tensor:
        self.relative_NX = relative_NX
        return qkv_TX[:, : qkv_TX.shape[1] // 3]


def test_each_block_projects_the_rows_with_its_own_weights() -> None:
    """By those of queries and keys, with their biases, and in training with its own dropout."""
    encoder = built("bert-deberta-tiny", dropout=0.5).discriminator.encoder
    rows_ND = torch.randn(9, 32, generator=torch.Generator().manual_seed(0))
    for block in encoder.blocks:
        assert isinstance(block, DisentangledBlock)
        with torch.no_grad():
            block.qkv.bias.copy_(torch.arange(96))
        told: Any = Told(rows_ND)
        block.eval()(torch.zeros(4, 32), told)
        torch.testing.assert_close(told.relative_NX, block.qkv(rows_ND)[:, :64])
        given = [told.relative_NX]
        block.train()
        for _ in range(2):
            block(torch.zeros(4, 32), told)
            given.append(told.relative_NX)
        assert all(not torch.equal(one, other) for one, other in pairwise(given))


# ---------------------------------------------------------------- FLOPs


def counted(encoder: Encoder, tokens: Any) -> int:
    contexts: Any = encoder.contexts
    contexts.backend = "matmul"  # torch's counter does not look into the fused kernel of a CPU
    with FlopCounterMode(display=False) as counter:
        encoder(tokens)
    return counter.get_total_flops()


@pytest.mark.parametrize("buckets", [4, 16, 256])
def test_hardware_is_what_torch_counts(buckets: int) -> None:
    """To the operation, with the rows of the table that this row length reaches."""
    fields = DEBERTA | {"position_buckets": buckets}
    encoder = built("bert-tiny", init="local", **fields).discriminator.encoder
    tokens = ragged_batch()
    how: dict[str, Any] = {
        "row_length": 32,
        "convention": "hardware",
        "batch_rows": tokens.num_rows,
    }
    ours = passes_flops([Pass(encoder, 1.0, False)], **how)
    assert len(tokens.ids_T) * ours == pytest.approx(counted(encoder, tokens), rel=1e-12)


def test_the_top_of_an_encoder_is_counted_too() -> None:
    encoder = built(
        "bert-tiny", init="local", **DEBERTA | {"num_hidden_layers": 3}
    ).discriminator.encoder
    how: dict[str, Any] = {"row_length": 32, "convention": "hardware", "batch_rows": 2}
    whole, top = (
        passes_flops([Pass(one, 1.0, False)], **how) for one in (encoder, Top(encoder, 1))
    )
    assert top == pytest.approx(whole * 2 / 3, rel=1e-12)


def test_the_paper_s_convention_by_hand() -> None:
    """Of one block of width 8 with 2 heads and feed-forward 6, in rows of 10."""
    sizes = costs.Sizes(width=8, layers=1, length=10, vocab=50, heads=2, feed_forward=6)
    distances = 2 * (2 * 8 * 20)  # of queries and of keys
    added = 2 * 2 * 10
    assert costs.relative_layer_flops(sizes) == costs.layer_flops(sizes) + distances + added


# ---------------------------------------------------------------- recipes, and what is refused

SIZES = ("tiny", "mini", "small", "base")
MODELS = {"bert": "bert", "electra": "gdes", "corrective": "corrective"}


def test_recipes_differ_from_their_models_in_the_encoder_only() -> None:
    for objective, like in MODELS.items():
        for size in SIZES:
            name = f"{objective}-deberta-{size}"
            assert name in names()
            ours = load(name)
            model = load(f"{like}-{'base' if size == 'small' else size}")
            assert (ours.data, ours.objective, ours.corruption, ours.train) == (
                model.data,
                model.objective,
                model.corruption,
                model.train,
            )
            assert ours.model.tie == model.model.tie == ("gdes" if like == "gdes" else "embeddings")
            assert (ours.model.init == "local") == (size in ("tiny", "mini"))


def test_generators_have_the_width_and_half_the_depth() -> None:
    for objective in ("electra", "corrective"):
        for size in SIZES:
            m = load(f"{objective}-deberta-{size}").model
            own = m.generator_numbers()
            assert own["num_hidden_layers"] == m.num_hidden_layers / 2
            del own["num_hidden_layers"]
            assert all(getattr(m, name) == n for name, n in own.items())


def test_the_published_shapes() -> None:
    """2111.09543, Table 2 and the published configurations."""
    wide = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    for size, blocks in (("small", 6), ("base", 12)):
        m = load(f"electra-deberta-{size}").model
        assert {name: getattr(m, name) for name in wide} == wide
        assert (m.num_hidden_layers, m.generator_num_hidden_layers) == (blocks, blocks // 2)
        assert (m.max_position_embeddings, m.position_buckets) == (512, 256)
