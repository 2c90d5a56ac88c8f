"""Our parameter names <-> those of DeBERTa's classes, and of Microsoft's public code for its head
that detects."""

from __future__ import annotations

from ..model.shape import Shape
from .keys import Row, layer

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
    for n in range(shape.num_hidden_layers):
        theirs = f"deberta.encoder.layer.{n}"
        ours = f"encoder.blocks.{n}"
        for part in ("weight", "bias"):
            attention = (
                f"{theirs}.attention.self.{x}_proj.{part}" for x in ("query", "key", "value")
            )
            rows.append(Row(f"{ours}.qkv.{part}", tuple(attention)))
        rows += layer(f"{theirs}.attention.output.dense", f"{ours}.out")
        rows += layer(f"{theirs}.attention.output.LayerNorm", f"{ours}.norm1")
        rows += layer(f"{theirs}.intermediate.dense", f"{ours}.up")
        rows += layer(f"{theirs}.output.dense", f"{ours}.down")
        rows += layer(f"{theirs}.output.LayerNorm", f"{ours}.norm2")
    return tuple(rows)


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
