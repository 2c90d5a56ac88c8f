"""The pure losses that objectives share. Shape suffixes: N tokens graded."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def binary_ce(logits_N: Tensor, target_N: Tensor) -> Tensor:
    """[N] binary cross-entropy in nats, float32."""
    return F.binary_cross_entropy_with_logits(logits_N.float(), target_N.float(), reduction="none")
