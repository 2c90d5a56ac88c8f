"""Our parameter names <-> those of a class of Hugging Face's library: one table for each class,
read in both directions.

A table uses every key of both sides exactly once or it raises, so import and export cannot
disagree, and nothing is lost silently.

A binary head may be there a class that gives every token two labels: the first one's logit is 0, so
the softmax of the two is the sigmoid of our logit, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..model.shape import Shape


@dataclass(frozen=True)
class Row:
    """One parameter of ours, and those of theirs that it concatenates along the rows (three for the
    fused queries, keys and values)."""

    ours: str
    theirs: tuple[str, ...]


@dataclass(frozen=True)
class KeyTable:
    """The table of one class of the library."""

    name: str
    """The class."""
    encoder: tuple[Row, ...]
    head: tuple[Row, ...]
    tied: dict[str, str] = field(default_factory=dict)
    """Their names for tied copies of another parameter: absent from files, present in a module's
    state."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.encoder + self.head


class KeyMismatchError(ValueError):
    """Raised if the tensors and the table do not name the same keys exactly once."""


def layer(theirs: str, ours: str) -> list[Row]:
    """The rows for weight and bias of a Linear or norm layer."""
    return [Row(f"{ours}.{part}", (f"{theirs}.{part}",)) for part in ("weight", "bias")]


def block_layers(shape: Shape, prefix: str, *, attention: str = "{}") -> list[Row]:
    """The rows of post-norm blocks, under the names that BERT's classes gave them. attention: how
    `query`, `key` and `value` are named."""
    rows: list[Row] = []
    for n in range(shape.num_hidden_layers):
        theirs, ours = f"{prefix}.encoder.layer.{n}", f"encoder.blocks.{n}"
        for part in ("weight", "bias"):
            names = (attention.format(which) for which in ("query", "key", "value"))
            qkv = tuple(f"{theirs}.attention.self.{name}.{part}" for name in names)
            rows.append(Row(f"{ours}.qkv.{part}", qkv))
        rows += layer(f"{theirs}.attention.output.dense", f"{ours}.out")
        rows += layer(f"{theirs}.attention.output.LayerNorm", f"{ours}.norm1")
        rows += layer(f"{theirs}.intermediate.dense", f"{ours}.up")
        rows += layer(f"{theirs}.output.dense", f"{ours}.down")
        rows += layer(f"{theirs}.output.LayerNorm", f"{ours}.norm2")
    return rows


def _same_keys(have: Iterable[str], want: Iterable[str], what: str) -> None:
    want = list(want)
    twice = (
        sorted({name for name in want if want.count(name) > 1})
        if len(set(want)) < len(want)
        else []
    )
    missing = sorted(set(want) - set(have))
    extra = sorted(set(have) - set(want))
    for wrong, how in (
        (twice, "named twice by the table"),
        (missing, "missing"),
        (extra, "unknown to the table"),
    ):
        if wrong:
            raise KeyMismatchError(f"{what}: {len(wrong)} {how}, first {wrong[0]}")


def to_theirs(rows: Iterable[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, each a contiguous copy. Raises KeyMismatchError unless
    every key of both sides is used exactly once."""
    rows = tuple(rows)
    _same_keys(ours, (row.ours for row in rows), "our parameters")
    out: dict[str, Tensor] = {}
    for row in rows:
        tensor = ours[row.ours]
        if tensor.shape[0] % len(row.theirs):
            raise KeyMismatchError(
                f"our parameters: {row.ours} with {tensor.shape[0]} rows cannot be cut into "
                f"{len(row.theirs)}"
            )
        for name, part in zip(row.theirs, tensor.detach().chunk(len(row.theirs)), strict=True):
            out[name] = part.clone(memory_format=torch.contiguous_format)
    _same_keys(out, (name for row in rows for name in row.theirs), "their parameters")
    return out


def to_ours(rows: Iterable[Row], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters (without the tied ones) under our names. Raises KeyMismatchError unless
    every key of both sides is used exactly once."""
    rows = tuple(rows)
    _same_keys(theirs, (name for row in rows for name in row.theirs), "their parameters")
    out = {row.ours: torch.cat([theirs[name].detach() for name in row.theirs]) for row in rows}
    _same_keys(out, (row.ours for row in rows), "our parameters")
    return out


def without_tied(table: KeyTable, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters without the tied copies. Raises KeyMismatchError if a copy has values of its
    own, which our network cannot hold."""
    for name, source in table.tied.items():
        if name in theirs and source in theirs and not torch.equal(theirs[name], theirs[source]):
            raise KeyMismatchError(f"their parameters: {name} should repeat {source} and does not")
    return {name: t for name, t in theirs.items() if name not in table.tied}


LABELS = {0: "original", 1: "replaced"}


def label(config: Any) -> None:
    """Names the labels in a configuration of the library."""
    config.id2label = dict(LABELS)
    config.label2id = {name: n for n, name in LABELS.items()}


def labelled(config: Any) -> bool:
    """Whether a configuration of the library names these labels."""
    return {int(n): name for n, name in (config.id2label or {}).items()} == LABELS
