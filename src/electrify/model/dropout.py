"""Dropout that draws few random numbers. Torch on a CPU takes one of its own for every element, a
fifth of a step; here one serves four."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_INTEGERS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """As torch's: in training each element is 0 with probability p and divided by 1 - p otherwise.
    p counts in steps of 2^-16 (2^-32 in float32)."""
    if not (training and p):
        return x
    if x.device.type != "cpu" or x.dtype not in _INTEGERS or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * kept(x.shape, x.dtype, p) * (1 / (1 - p))


def kept(shape: torch.Size, dtype: torch.dtype, p: float) -> Tensor:
    """1 with probability 1 - p, else 0, from the CPU's generator."""
    integers = _INTEGERS[dtype]
    size = shape.numel()
    bits = 8 * dtype.itemsize
    random = (
        torch.empty(-(-size * dtype.itemsize // 8), dtype=torch.int64)
        .random_(-(2**63), None)
        .view(integers)[:size]
    )
    # In place all is vectorised: 1 where it is kept, times the bits of a one of the type.
    random.ge_(min(round(p * 2**bits), 2**bits - 1) - 2 ** (bits - 1)).mul_(
        int(torch.ones((), dtype=dtype).view(integers))
    )
    return random.view(dtype).view(shape)
