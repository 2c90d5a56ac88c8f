"""Our parameter names <-> those of a class of Hugging Face's library: one table for each class,
read in both directions.

A table uses every key of both sides exactly once or it raises, so import and export cannot
disagree, and nothing is lost silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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


def _must_name(have: Collection[str], want: Iterable[str], what: str) -> None:
    """Raises KeyMismatchError unless both name the same keys, and the second each key once."""
    times = Counter(want)
    for wrong, how in (
        ([name for name, n in times.items() if n > 1], "named twice by the table"),
        (times.keys() - set(have), "missing"),
        (set(have) - times.keys(), "unknown to the table"),
    ):
        if wrong:
            raise KeyMismatchError(f"{what}: {len(wrong)} {how}, first {min(wrong)}")


def to_theirs(rows: Collection[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under their names, each a contiguous copy. Raises KeyMismatchError unless
    every key of both sides is used exactly once."""
    _must_name(ours, (row.ours for row in rows), "our parameters")
    out: dict[str, Tensor] = {}
    for row in rows:
        t = ours[row.ours].detach()
        if row.labels:
            t = torch.cat([torch.zeros_like(t), t])
        cut = t.reshape(len(row.theirs), -1, *t.shape[1:])
        for name, part in zip(row.theirs, cut, strict=True):
            out[name] = part.clone(memory_format=torch.contiguous_format)
    _must_name(out, (name for row in rows for name in row.theirs), "their parameters")
    return out


def to_ours(rows: Collection[Row], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their parameters (without the tied ones) under our names. Raises KeyMismatchError unless
    every key of both sides is used exactly once."""
    _must_name(theirs, (name for row in rows for name in row.theirs), "their parameters")
    out: dict[str, Tensor] = {}
    for row in rows:
        t = torch.cat([theirs[name].detach() for name in row.theirs])
        out[row.ours] = t[1:] - t[:1] if row.labels else t
    _must_name(out, (row.ours for row in rows), "our parameters")
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
