"""Encoders: any AutoModel folder or Hub id, loaded strictly, with its tokenizer.

Strictly means that a weight of the encoder which the checkpoint lacks is an error that names it. By
default, the library fills it with random numbers and mentions this only in a table.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from ..console import brief
from ..errors import UserError
from ..export.folders import (
    SAFE_WEIGHTS,
    is_causal,
    load_config,
    load_tokenizer,
    must_be_sound_weights,
    unreadable_weights,
)
from ..export.places import RANDOM
from ..export.positions import made_for, positions_of
from ..export.quiet import quiet
from .attention import implementation_for
from .special_frames import Frame, frames_of, reads_last

DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "embedding_dropout",
    "mlp_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
)
"""The names that model classes use for the dropout of their layers and of attention."""
# The norm of the table of distances (DeBERTa).
_OF_TABLE = ("encoder.LayerNorm.weight", "encoder.LayerNorm.bias")
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|albert_layer_groups)\.(\d+)\.")


@dataclass(frozen=True)
class Loaded:
    """An encoder with its tokenizer, and properties of its inputs.

    positions: maximum number of tokens in a sequence. segments: whether it takes token types.
    single, pair: the special tokens around one text and around two. last: whether the last token,
    and not the first, represents the whole text. dropout: before a head, by the model's own
    configuration.
    """

    encoder: Any
    tokenizer: Any
    positions: int
    segments: bool
    single: Frame
    pair: Frame
    last: bool
    dropout: float

    @property
    def width(self) -> int:
        return self.encoder.config.hidden_size

    @property
    def made_for(self) -> int:
        """`positions` without those that it computes and was not made for."""
        return made_for(self.encoder)


def load(model: str, *, device: torch.device, dropout: float | None = None) -> Loaded:
    """Loads encoder and tokenizer from a folder, a Hub id, or `random:` and one of them. dropout:
    for all its layers and for attention; None leaves the model's own.

    Random weights are drawn from torch's global generator. Raises UserError, also if the checkpoint
    lacks weights of the encoder.
    """
    path = model.removeprefix(RANDOM)
    config = load_config(path, causal=True)
    _must_be_dropouts(path, config)
    before_head = _before_head(config)
    for name in DROPOUTS if dropout is not None else ():
        if isinstance(getattr(config, name, None), int | float):
            setattr(config, name, dropout)
    model_class = _class_of(config)
    attention = {"attn_implementation": implementation_for(model_class, config, device)}
    accepts = inspect.signature(model_class.__init__).parameters
    pooling = {"add_pooling_layer": False} if "add_pooling_layer" in accepts else {}
    with quiet():
        if model.startswith(RANDOM):
            config._attn_implementation = attention["attn_implementation"]
            encoder = model_class(config, **pooling)
        else:
            encoder = _strictly(path, config, attention | pooling)
    tokenizer = load_tokenizer(path, vocab_size=_vocabulary_of(path, encoder))
    # XLNet's token types are relative, so their number is not limited.
    several = (getattr(config, "type_vocab_size", None) or 0) > 1 or config.model_type == "xlnet"
    types = several and "token_type_ids" in inspect.signature(encoder.forward).parameters
    single, pair = frames_of(tokenizer)
    encoder = encoder.to(device=device, dtype=torch.float32)
    return Loaded(
        encoder,
        tokenizer,
        positions_of(encoder),
        types,
        single,
        pair,
        is_causal(config) or reads_last(tokenizer, single),
        before_head,
    )


def _before_head(config: Any) -> float:
    given = (
        getattr(config, name, None)
        for name in ("classifier_dropout", "hidden_dropout_prob", "dropout")
    )
    return next((float(p) for p in given if isinstance(p, int | float)), 0.1)


def _must_be_dropouts(path: str, config: Any) -> None:
    for name in ("classifier_dropout", *DROPOUTS):
        value = getattr(config, name, None)
        if isinstance(value, int | float) and (isinstance(value, bool) or not 0 <= value <= 1):
            raise UserError(
                f"{path}: its config.json says {name} {brief(value)}, and a dropout is 0 to 1"
            )


def _class_of(config: Any) -> Any:
    """The class of the encoder. If there are several (Funnel has two), the first keeps every
    token."""
    found: Any = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _vocabulary_of(path: str, encoder: Any) -> int:
    """How many tokens an encoder knows. Raises UserError for a model that reads images, sounds or
    characters."""
    try:
        weight = encoder.get_input_embeddings().weight
    except (AttributeError, NotImplementedError):
        weight = None
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2:
        raise UserError(
            f"{path}: a {encoder.config.model_type!r} model reads no tokens of a text, so it "
            "cannot be fine-tuned here"
        )
    return weight.shape[0]


def _strictly(path: str, config: Any, options: dict[str, Any]) -> Any:
    try:
        encoder, info = AutoModel.from_pretrained(
            path, config=config, output_loading_info=True, **SAFE_WEIGHTS, **options
        )
    except Exception as e:  # damaged weights raise exceptions of three libraries
        raise unreadable_weights(path, e) from e
    must_be_sound_weights(path, encoder, info)
    lacking = sorted(info["missing_keys"])
    if lacking:
        names = ", ".join(lacking[:8]) + (
            f" and {len(lacking) - 8} more" if len(lacking) > 8 else ""
        )
        whole = len(encoder.state_dict())
        raise UserError(
            f"{path}: the checkpoint lacks {len(lacking)} of the encoder's {whole} weights: "
            f"{names}; for random weights say {RANDOM}{path}"
        )
    depth = layers_of(dict(encoder.named_parameters()))
    ours = (f"{encoder.base_model_prefix}.", "encoder.")
    layers = {
        int(found[1])
        for key in info["unexpected_keys"]
        if (found := _LAYER.search(key)) and key.startswith(ours)
    }
    if layers and max(layers) >= depth:
        raise UserError(
            f"{path}: the checkpoint holds {max(layers) + 1} layers, its config.json says {depth}"
        )
    return encoder


def layers_of(named: dict[str, Any]) -> int:
    """The number of layers to which the parameters belong (ALBERT's shared layer counts once)."""
    return 1 + max((int(found[1]) for name in named if (found := _LAYER.search(name))), default=-1)


def learning_rates(
    named: dict[str, nn.Parameter], *, peak: float, decay: float, skip: bool = False
) -> dict[str, float]:
    """The peak learning rate of every parameter of a Finetuned model: peak * decay^(distance from
    the head).

    | part                                   | distance       |
    |----------------------------------------|----------------|
    | head                                   | 0              |
    | layer i of n (0 = next to the input)   | n - i          |
    | final norms (after the last layer)     | 1              |
    | embeddings and their projection        | n + 1          |

    This is the paper's rule. skip: every distance except the head's is larger by one, as in its
    public code, which skips a level (the top layer gets decay^2; google-research/electra,
    model/optimization.py and issue 51).
    """
    n = layers_of(named)
    rates = {}
    reached = False
    tables = any("rel_embeddings" in name for name in named)
    for name in named:
        found = _LAYER.search(name)
        reached = reached or found is not None
        if name.startswith("head."):
            distance = 0
        elif found:
            distance = n - int(found[1])
        else:
            # The norm of the table of distances, which every layer reads, is not a final one.
            below = "embed" in name or (tables and name.endswith(_OF_TABLE))
            distance = 1 if reached and not below else n + 1
        distance += int(skip and distance > 0)
        rates[name] = peak * decay**distance
    return rates
