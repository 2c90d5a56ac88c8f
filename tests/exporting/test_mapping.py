"""The tables: reversible, complete, and strict."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from runs import MLM, RTD, random_built, table_of, with_model

from electrify.architectures.electra import (
    bert_for_masked_lm,
    electra_for_masked_lm,
    electra_for_pre_training,
)
from electrify.architectures.exported import ExportedModel
from electrify.architectures.keys import KeyMismatchError, to_ours, to_theirs, without_tied


def halves() -> list[ExportedModel]:
    same_width = with_model(RTD, embedding_size=16, generator_size=1.0)
    built = [
        random_built(c)
        for c in (
            RTD,
            MLM,
            same_width,
            with_model(RTD, tie="none"),
            with_model(same_width, tie="all"),
        )
    ]
    return [half for b in built for half in b.exports.values()]


def test_there_and_back_is_the_identity():
    for half in halves():
        ours = half.parameters()
        rows = table_of(half).rows
        back = to_ours(rows, to_theirs(rows, ours))
        assert back.keys() == ours.keys()
        assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_the_head_decides_the_class():
    rtd, mlm = random_built(RTD), random_built(MLM)
    names = {name: table_of(half).name for name, half in rtd.exports.items()}
    assert names == {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
    assert table_of(mlm.kept).name == "ElectraForMaskedLM"


def test_the_fused_projection_is_cut_into_query_key_value():
    half = random_built(RTD).kept
    theirs = to_theirs(table_of(half).rows, half.parameters())
    for n, which in enumerate(("query", "key", "value")):
        got = theirs[f"electra.encoder.layer.1.attention.self.{which}.weight"]
        assert torch.equal(got, half.encoder.blocks[1].qkv.weight[16 * n : 16 * (n + 1)])
        assert got.is_contiguous()
        assert got.untyped_storage().nbytes() == got.numel() * 4, (
            "a view would write the whole fused tensor"
        )


BERT = [partial(bert_for_masked_lm, kind=kind) for kind in ("token", "binary")]


@pytest.mark.parametrize("table", [electra_for_pre_training, electra_for_masked_lm, *BERT])
def test_every_key_appears_once(table):
    rows = table(random_built(RTD).kept.encoder.shape).rows
    theirs = [name for row in rows for name in row.theirs]
    assert len(set(theirs)) == len(theirs)
    assert len({row.ours for row in rows}) == len(rows)


def test_a_repeated_key_must_repeat():
    half = random_built(RTD).exports["generator"]
    table = table_of(half)
    theirs = to_theirs(table.rows, half.parameters())
    words = theirs["electra.embeddings.word_embeddings.weight"]
    assert (
        without_tied(table, theirs | {"generator_lm_head.weight": words.clone()}).keys()
        == theirs.keys()
    )
    with pytest.raises(KeyMismatchError, match=r"generator_lm_head\.weight should repeat"):
        without_tied(table, theirs | {"generator_lm_head.weight": words + 1})


def test_the_word_table_of_an_lm_head_is_the_encoders():
    """The head keeps no second word table, also where generator and discriminator share theirs."""
    for half in halves():
        named = half.parameters()
        assert "head.words.weight" not in named
        assert len({id(p) for p in named.values()}) == len(named)
