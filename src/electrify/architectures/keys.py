"""Our parameter names <-> those of a class of Hugging Face's library: one table for each class,
read in both directions, so import and export cannot disagree.

That a table names every key of both sides exactly once is tested for each class (tests/parity).
Of ours, `must_have_a_class` says it before a run trains; of theirs, the check of an export does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..model.embeddings import Shape


@dataclass(frozen=True)
class Row:
    """One parameter of ours, and those of theirs that it concatenates along the rows (three for the
    fused queries, keys and values)."""

    ours: str
    theirs: tuple[str, ...]
    labels: bool = False
    """Whether theirs gives two labels in place of our logit. The first one's logit is 0, so the
    softmax of the two is the sigmoid of ours, exactly."""


@dataclass(frozen=True)
class KeyTable:
    """The table of one class of the library. It does not name the copies that the library ties to
    another parameter."""

    name: str
    """The class."""
    encoder: tuple[Row, ...]
    head: tuple[Row, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    """Weights that a folder may have beside these and our network has not, each with what it is."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.encoder + self.head


def layers(
    names: Mapping[str, str],
    *,
    parts: Collection[str] = ("weight", "bias"),
    labels: bool = False,
) -> tuple[Row, ...]:
    """The rows of layers, by our name of each and theirs."""
    return tuple(
        Row(f"{ours}.{part}", (f"{theirs}.{part}",), labels)
        for ours, theirs in names.items()
        for part in parts
    )


def weights(names: Mapping[str, str]) -> tuple[Row, ...]:
    """The rows of layers without biases, and of tables."""
    return layers(names, parts=("weight",))


def lm_head(dense: str, norm: str, bias: str) -> tuple[Row, ...]:
    """The rows of a language model's head, by their names of its parts. Its output layer is the
    word table."""
    return (*layers({"head.dense": dense, "head.norm": norm}), Row("head.bias_V", (bias,)))


def block_layers(shape: Shape, prefix: str, *, attention: str = "{}") -> tuple[Row, ...]:
    """The rows of post-norm blocks, under the names that BERT's classes gave them. attention: how
    `query`, `key` and `value` are named."""
    rows: list[Row] = []
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"{prefix}.encoder.layer.{n}", f"encoder.blocks.{n}"
        for part in ("weight", "bias"):
            names = (attention.format(which) for which in ("query", "key", "value"))
            qkv = tuple(f"{theirs}.attention.self.{name}.{part}" for name in names)
            rows.append(Row(f"{ours}.qkv.{part}", qkv))
        rest = {
            f"{ours}.out": f"{theirs}.attention.output.dense",
            f"{ours}.norm1": f"{theirs}.attention.output.LayerNorm",
            f"{ours}.up": f"{theirs}.intermediate.dense",
            f"{ours}.down": f"{theirs}.output.dense",
            f"{ours}.norm2": f"{theirs}.output.LayerNorm",
        }
        rows += layers(rest)
    return tuple(rows)


def to_theirs(rows: Collection[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, each a contiguous copy."""
    out: dict[str, Tensor] = {}
    for row in rows:
        t = ours[row.ours].detach()
        if row.labels:
            t = torch.cat([torch.zeros_like(t), t])
        cut = t.reshape(len(row.theirs), -1, *t.shape[1:])
        for name, part in zip(row.theirs, cut, strict=True):
            out[name] = part.clone(memory_format=torch.contiguous_format)
    return out


def to_ours(rows: Collection[Row], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters under our names."""
    out: dict[str, Tensor] = {}
    for row in rows:
        t = torch.cat([theirs[name].detach() for name in row.theirs])
        out[row.ours] = t[1:] - t[:1] if row.labels else t
    return out


LABELS = {0: "original", 1: "replaced"}


def labelled(config: Any) -> bool:
    """Whether a configuration of the library names these labels."""
    return {int(n): name for n, name in (config.id2label or {}).items()} == LABELS
