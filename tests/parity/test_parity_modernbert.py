"""Configurations of ModernBERT: what the library's own say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import transformers
from families import MODERNBERT, modernbert_shape
from two_networks import PAD

from electrify.errors import UserError

KNOWN = MODERNBERT.architecture


def test_a_configuration_has_the_special_tokens_of_bert_too() -> None:
    config = MODERNBERT.config_of(modernbert_shape(), "token")
    assert (config.pad_token_id, config.cls_token_id, config.sep_token_id) == (PAD, 2, 3)


def test_the_library_s_own_configurations() -> None:
    """Without our note, the period is read off the layers; as on the Hub, the first form of the
    configuration says it."""
    base = transformers.ModernBertConfig()
    shape = KNOWN.shape_of(base)
    KNOWN.must_compute_the_same("it", base)
    assert shape == modernbert_shape(
        vocab_size=50368,
        embedding_size=768,
        hidden_size=768,
        num_hidden_layers=22,
        num_attention_heads=12,
        intermediate_size=1152,
        max_position_embeddings=8192,
    )
    old = transformers.ModernBertConfig(global_attn_every_n_layers=5, local_rope_theta=99.0)
    KNOWN.must_compute_the_same("it", old)
    found: Any = KNOWN.shape_of(old)
    assert (found.global_attn_every_n_layers, found.local_rope_theta) == (5, 99.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"norm_bias": True},
        {"attention_bias": True},
        {"hidden_activation": "relu"},
        {"mlp_bias": True},
        {"tie_word_embeddings": False},
        {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 9.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 9.0},
            }
        },
    ],
    ids=str,
)
def test_what_we_do_not_compute_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="it computes what our encoder does not"):
        KNOWN.must_compute_the_same("it", transformers.ModernBertConfig(**fields))


@pytest.mark.parametrize(
    "fields",
    [{"classifier_bias": True}, {"classifier_activation": "relu"}, {"decoder_bias": False}],
    ids=str,
)
def test_a_head_that_we_do_not_compute_is_not_taken(fields: dict[str, Any]) -> None:
    """The encoder below it is."""
    named = {"architectures": ["ModernBertForMaskedLM"]}
    KNOWN.must_compute_the_same("it", transformers.ModernBertConfig(**named, **fields))
    assert KNOWN.has_head(transformers.ModernBertConfig(**named), "token")
    assert not KNOWN.has_head(transformers.ModernBertConfig(**named, **fields), "token")
