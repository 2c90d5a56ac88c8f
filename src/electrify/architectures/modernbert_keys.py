"""Our parameter names <-> those of ModernBERT's classes."""

from __future__ import annotations

from ..model.shape import Shape
from .keys import Row


def one(theirs: str, ours: str) -> Row:
    """The row for the weight of a layer without bias."""
    return Row(f"{ours}.weight", (f"{theirs}.weight",))


def encoder_rows(shape: Shape) -> tuple[Row, ...]:
    rows = [
        one("model.embeddings.tok_embeddings", "encoder.embeddings.words"),
        one("model.embeddings.norm", "encoder.embeddings.norm"),
        one("model.final_norm", "encoder.norm"),
    ]
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"model.layers.{n}", f"encoder.blocks.{n}"
        if n:
            rows.append(one(f"{theirs}.attn_norm", f"{ours}.norm1"))
        rows += [
            one(f"{theirs}.attn.Wqkv", f"{ours}.qkv"),
            one(f"{theirs}.attn.Wo", f"{ours}.out"),
            one(f"{theirs}.mlp_norm", f"{ours}.norm2"),
            one(f"{theirs}.mlp.Wi", f"{ours}.up"),
            one(f"{theirs}.mlp.Wo", f"{ours}.down"),
        ]
    return tuple(rows)
