"""What of DeBERTa the library has no class for; its published configuration."""

from typing import Any

import pytest
import torch
import transformers
from families import DEBERTA, deberta_shape
from two_networks import SPECIAL, padded, same_gradients, shaken

from electrify.architectures.architecture import ExportedModel
from electrify.architectures.deberta import DebertaShape
from electrify.architectures.keys import to_theirs
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


def test_gradients_with_a_mask_decoder() -> None:
    """By the class that reads the folders; those of the table of positions with them."""
    shape: Any = DEBERTA.shapes[1]
    plain = DEBERTA.ours(shape, "token", seed=11)
    decoding = KNOWN.for_config({"mask_decoder": True})
    head = decoding.masked_lm_head(shape, plain.encoder.embeddings.words).eval()
    shaken(head, 11)
    made = ExportedModel(plain.encoder, head, KNOWN.for_head(head))
    table = made.table()
    how: dict[str, Any] = {"special": SPECIAL, "dropout": 0.5, "attention_dropout": 0.5}
    config = made.architecture.hf_config(shape, "token", **how)
    model: Any = made.architecture.network_class(table.name)(config).eval()
    model.load_state_dict(to_theirs(table.rows, made.parameters()), strict=True)
    tokens = padded([21, 13])
    at_M = tokens.real_T.nonzero().flatten()
    made.head(made.head.read(made.encoder, tokens, at_M)).square().mean().backward()
    logits = model(**KNOWN.inputs(tokens)).logits.flatten(0, 1)
    logits[at_M].square().mean().backward()
    same_gradients(made, model)
