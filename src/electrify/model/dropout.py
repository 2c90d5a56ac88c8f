"""Dropout that draws few random numbers. On a CPU, torch draws one for every element, which takes a
fifth of a step; here one draw serves four elements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_INTEGERS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Works like torch's dropout: in training each element is 0 with probability p, and otherwise
    divided by 1 - p. p is rounded to steps of 2^-16 (2^-32 in float32)."""
    if not (training and p):
        return x
    if x.device.type != "cpu" or x.dtype not in _INTEGERS or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep_mask(x.shape, x.dtype, p) * (1 / (1 - p))


def keep_mask(shape: torch.Size, dtype: torch.dtype, p: float) -> Tensor:
    """1 with probability 1 - p, else 0, drawn from the CPU's generator."""
    integers = _INTEGERS[dtype]
    size = shape.numel()
    bits = 8 * dtype.itemsize
    random = (
        torch.empty(-(-size * dtype.itemsize // 8), dtype=torch.int64)
        .random_(-(2**63), None)
        .view(integers)[:size]
    )
    # Operations in place are vectorised: 1 for kept elements, times the bit pattern of the dtype's
    # 1.0.
    random.ge_(min(round(p * 2**bits), 2**bits - 1) - 2 ** (bits - 1)).mul_(
        int(torch.ones((), dtype=dtype).view(integers))
    )
    return random.view(dtype).view(shape)
