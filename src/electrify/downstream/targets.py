"""Labels of examples as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .examples import Example, Partly


def several(examples: Sequence[Example], *, classes: int) -> Tensor:
    """[examples, classes] of several labels each: 1, 0, and NaN where it is not known."""
    targets_NC = torch.zeros(len(examples), classes)
    for row, example in zip(targets_NC, examples, strict=True):
        assert isinstance(example.label, tuple)
        row[list(example.label)] = 1.0
        if isinstance(example, Partly):
            row[list(example.unknown)] = float("nan")
    return targets_NC
