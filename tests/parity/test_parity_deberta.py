"""What of DeBERTa the library has no class for, against classes around its layers, float32; and
configurations: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from families import DEBERTA, deberta_shape
from two_networks import PAD, SPECIAL, close, numbers, padded, shaken

from electrify.architectures.deberta import DebertaShape
from electrify.architectures.exported import ExportedModel
from electrify.architectures.keys import to_theirs
from electrify.tokens import Tokens
from published import DEBERTA_V3

KNOWN = DEBERTA.architecture


def test_the_published_configuration() -> None:
    """It does not name its class, nor the form of the language model's head."""
    config = transformers.DebertaV2Config(**DEBERTA_V3)
    KNOWN.must_compute_the_same("it", config)
    assert config.legacy
    assert not KNOWN.as_read(config).legacy
    assert KNOWN.shape_of(config) == deberta_shape(
        vocab_size=128_100,
        embedding_size=768,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
    )
    same = transformers.DebertaV2Config(**DEBERTA_V3 | {"max_relative_positions": 512})
    KNOWN.must_compute_the_same("it", same)


@pytest.mark.parametrize("shape", DEBERTA.shapes, ids=range(len(DEBERTA.shapes)))
@torch.no_grad()
def test_float64_tells_rounding_from_a_wrong_number(shape: DebertaShape) -> None:
    """The library rounds the root of a head's width to float32 in any type, and so do we: what is
    left is the rounding of float64, by which the check of an export decides."""
    own = DEBERTA.ours(shape, "token", seed=3)
    theirs = DEBERTA.theirs(own).double()
    tokens = padded([19, 7], left=False, seed=5)
    for part in (own.encoder, own.head):
        part.double()
    logits_TV = own.head(own.encoder(tokens))
    wanted_TV = theirs(**KNOWN.inputs(tokens)).logits.flatten(0, 1)
    assert float((logits_TV - wanted_TV)[tokens.real_T].abs().max()) < 1e-11


# ---------------------------------------------------------------- the mask decoder


def decoded(shape: DebertaShape, *, seed: int) -> ExportedModel:
    made = DEBERTA.ours(shape, "token", seed=seed)
    head = (
        KNOWN.for_config({"mask_decoder": True})
        .masked_lm_head(shape, made.encoder.embeddings.words)
        .eval()
    )
    shaken(head, seed)
    return ExportedModel(made.encoder, head, KNOWN.for_head(head))


def decoding(own: ExportedModel) -> Any:
    """The class that reads the folders, with our weights."""
    known, table = own.architecture, own.table()
    how: dict[str, Any] = {"special": SPECIAL, "dropout": 0.5, "attention_dropout": 0.5}
    shape: Any = own.encoder.shape
    model = known.network_class(table.name)(known.hf_config(shape, "token", **how)).eval()
    model.load_state_dict(to_theirs(table.rows, own.parameters()), strict=True)
    return model


@pytest.mark.parametrize("shape", DEBERTA.shapes, ids=range(len(DEBERTA.shapes)))
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@torch.no_grad()
def test_the_same_numbers_with_a_mask_decoder(shape: DebertaShape, left: bool) -> None:
    """By the class that reads the folders, padded on either side; and packed."""
    own = decoded(shape, seed=10)
    lengths = [19, 7, 12, 1]
    single = padded(lengths, left=left, seed=5)
    real_T, row_B = single.real_T, torch.arange(1, 5)
    theirs_BLV = decoding(own)(**KNOWN.inputs(single)).logits
    found_MV = theirs_BLV.flatten(0, 1)[real_T]
    packed = Tokens(
        single.ids_T[real_T],
        row_B.repeat_interleave(single.row_length)[real_T],
        single.pos_T[real_T],
        single.segment_T[real_T],
        row_length=sum(lengths),
    )
    for tokens in (single, packed):
        every_T = tokens.real_T.nonzero().flatten()
        logits_MV = own.head(own.head.read(own.encoder, tokens, every_T))
        close((logits_MV,), (found_MV,))
    plain = DEBERTA.ours(shape, "token", seed=10)
    assert float((numbers(plain, single)[1] - found_MV).abs().max()) > 0.1, "another network"


def test_gradients_of_a_mask_decoder_agree_too() -> None:
    """Those of the table of positions with them."""
    made = decoded(DEBERTA.shapes[1], seed=11)
    for part in (made.encoder, made.head):
        part.eval()
    model, tokens = decoding(made), padded([21, 13])
    at_M = tokens.real_T.nonzero().flatten()
    made.head(made.head.read(made.encoder, tokens, at_M)).square().mean().backward()
    logits = model(**KNOWN.inputs(tokens)).logits.flatten(0, 1)
    logits[at_M].square().mean().backward()
    named = dict(made.encoder.named_parameters(prefix="encoder"))
    named |= dict(made.head.named_parameters(prefix="head"))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for row in made.table().rows:
        mine, other = named[row.ours].grad, torch.cat([grads[n] for n in row.theirs])
        if row.ours.endswith("words.weight"):
            other[PAD] = mine[PAD]  # no gradient reaches [PAD] from their input
        assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(mine.abs().max()))


# ---------------------------------------------------------------- DeBERTaV3's own head


@pytest.mark.parametrize("shape", DEBERTA.shapes, ids=range(len(DEBERTA.shapes)))
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers_with_its_own_head(shape: DebertaShape, left: bool) -> None:
    """By the class that reads the folders, padded on either side; and packed."""
    made = DEBERTA.ours(shape, "binary", seed=6)
    head = KNOWN.rtd_head(shape, "v3").eval()
    shaken(head, 6)
    known = KNOWN.for_head(head)
    own = ExportedModel(made.encoder, head, known)
    table = own.table()
    config = known.hf_config(shape, "binary", special=SPECIAL, dropout=0.5, attention_dropout=0.5)
    model = known.network_class(table.name)(config).eval()
    model.load_state_dict(to_theirs(table.rows, own.parameters()), strict=True)
    lengths = [19, 7, 12, 1]
    single = padded(lengths, left=left, seed=5)
    found = DEBERTA.their_numbers(model, own, single)
    real_T, row_B = single.real_T, torch.arange(1, 5)
    packed = Tokens(
        single.ids_T[real_T],
        row_B.repeat_interleave(single.row_length)[real_T],
        single.pos_T[real_T],
        single.segment_T[real_T],
        row_length=sum(lengths),
    )
    for tokens in (single, packed):
        with torch.no_grad():
            x_TD = own.encoder(tokens)
            logits_T = head(head.inputs(x_TD, tokens))
        close((x_TD[tokens.real_T], logits_T[tokens.real_T]), found)
