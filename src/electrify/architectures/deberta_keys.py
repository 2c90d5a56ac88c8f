"""Our parameter names <-> those of DeBERTa's classes, and of Microsoft's public code for its head
that detects."""

from __future__ import annotations

from ..model.shape import Shape
from .keys import Row, block_layers, layer

OWN_HEAD = "mask_predictions."
"""How the names of the weights of DeBERTaV3's own head that detects begin."""
POSITIONS = "deberta.embeddings.position_embeddings.weight"
"""The table of absolute positions that a mask decoder reads."""


def encoder_rows(shape: Shape) -> tuple[Row, ...]:
    rows = [
        Row("encoder.embeddings.words.weight", ("deberta.embeddings.word_embeddings.weight",)),
        *layer("deberta.embeddings.LayerNorm", "encoder.embeddings.norm"),
        Row("encoder.contexts.table.weight", ("deberta.encoder.rel_embeddings.weight",)),
        *layer("deberta.encoder.LayerNorm", "encoder.contexts.norm"),
    ]
    return (*rows, *block_layers(shape, "deberta", attention="{}_proj"))


def lm_head_rows() -> tuple[Row, ...]:
    ours = "lm_predictions.lm_head"
    return (
        *layer(f"{ours}.dense", "head.dense"),
        *layer(f"{ours}.LayerNorm", "head.norm"),
        Row("head.bias_V", (f"{ours}.bias",)),
    )


def decoder_rows() -> tuple[Row, ...]:
    """The rows of the mask decoder, under the name in Microsoft's folders."""
    return (Row("head.positions.weight", (POSITIONS,)),)


def two_label_rows() -> tuple[Row, ...]:
    """The rows of the library's class for tags."""
    return tuple(layer("classifier", "head.out"))


def own_head_rows() -> tuple[Row, ...]:
    """The rows of DeBERTaV3's head that detects, under the names in Microsoft's folders."""
    return (
        *layer(f"{OWN_HEAD}LayerNorm", "head.norm"),
        *layer(f"{OWN_HEAD}dense", "head.dense"),
        *layer(f"{OWN_HEAD}classifier", "head.out"),
    )
