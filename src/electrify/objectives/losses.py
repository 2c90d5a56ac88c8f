"""The pure losses that objectives share. Shape suffixes: N tokens graded, T flat tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def binary_ce(logits_N: Tensor, target_N: Tensor) -> Tensor:
    """[N] binary cross-entropy in nats, float32."""
    return F.binary_cross_entropy_with_logits(logits_N.float(), target_N.float(), reduction="none")


def copy_log_probability(log_p_T: Tensor, copy_T: Tensor, same_T: Tensor) -> Tensor:
    """[T] log of c * 1[token = input] + (1 - c) * p(token), with c = sigmoid(copy) and same_T true
    where the token asked for is the input."""
    new_T = F.logsigmoid(-copy_T) + log_p_T
    return torch.where(same_T, torch.logaddexp(F.logsigmoid(copy_T), new_T), new_T)
