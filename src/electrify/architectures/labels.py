"""A binary head as a class of the library that gives every token two labels: the first one's logit
is 0, so the softmax of the two is the sigmoid of our logit, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

LABELS = {0: "original", 1: "replaced"}
CODE = "model(**inputs).logits.diff(dim=-1).squeeze(-1)"
"""Our logits as a line of code, for model cards."""

TUNING = (
    "Their heads have the names of this folder's head. For a number of labels other than two, pass "
    "`num_labels=N, ignore_mismatched_sizes=True`. With two labels the layer `classifier` starts "
    "with this folder's weights, under the labels original and replaced: "
    "`torch.nn.init.normal_(model.classifier.weight, std=0.02)` and "
    "`torch.nn.init.zeros_(model.classifier.bias)` make it new."
)
"""What to know before such a folder is fine-tuned, for model cards."""


def label(config: Any) -> None:
    """Names the labels in a configuration of the library."""
    config.id2label = dict(LABELS)
    config.label2id = {name: n for n, name in LABELS.items()}


def labelled(config: Any) -> bool:
    """Whether a configuration of the library names these labels."""
    return {int(n): name for n, name in (config.id2label or {}).items()} == LABELS


def two_rows(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of a head with one output `out`, as those of one with two labels."""
    return {
        name: torch.cat([torch.zeros_like(t), t]) if name.startswith("out.") else t
        for name, t in named.items()
    }


def one_row(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The other way round, of any two labels."""
    return {name: t[1:] - t[:1] if name.startswith("out.") else t for name, t in named.items()}


def logits_of(output: Any) -> Tensor:
    """[B, L] our logits, from the output of the library's class."""
    return output.logits[..., 1] - output.logits[..., 0]
