"""attend(): one interface, several backends, and a test that they agree. The only file that knows kernels.

Attention stays inside a sequence: `sequence_bias` forbids every pair of tokens whose sequence numbers differ, so a packed row computes what its
sequences compute alone. Shape suffixes: R rows, L row length, H heads, W head width, T = R * L flat tokens, D = H * W.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tokens import Tokens
from .dropout import dropout as drop

Backend = Literal["auto", "matmul", "sdpa"]
Look = Literal["both", "left", "right"]


def sequence_bias(tokens: Tokens, dtype: torch.dtype, look: Look = "both") -> Tensor:
    """[R, 1, L, L]: 0 where query and key belong to one sequence, the lowest finite number elsewhere.

    `left` also forbids keys behind the query, `right` those before it; a token always sees itself.

    Padding (sequence 0) attends to padding, so that no row of the softmax is empty; nothing reads the result.
    """
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    same_RLL = seq_RL[:, :, None] == seq_RL[:, None, :]
    if look != "both":
        same_RLL = same_RLL.tril() if look == "left" else same_RLL.triu()
    return torch.zeros(same_RLL.shape, dtype=dtype, device=seq_RL.device).masked_fill_(~same_RLL, torch.finfo(dtype).min)[:, None]


def attend(q_RHLW: Tensor, k_RHLW: Tensor, v_RHLW: Tensor, bias_R1LL: Tensor, *, dropout: float, backend: Backend = "auto") -> Tensor:
    """softmax(q k / sqrt(W) + bias) v, with dropout on the weights. Returns [R, H, L, W].

    `auto` takes plain matrix products on a CPU in bfloat16, where they were measured faster than the fused kernel, forward and backward together
    (docs/results.md), and the fused kernel elsewhere.
    """
    if backend == "auto":
        backend = "matmul" if q_RHLW.device.type == "cpu" and q_RHLW.dtype == torch.bfloat16 else "sdpa"
    if backend == "sdpa":
        return F.scaled_dot_product_attention(q_RHLW, k_RHLW, v_RHLW, attn_mask=bias_R1LL, dropout_p=dropout)
    scores_RHLL = (q_RHLW * (1 / math.sqrt(q_RHLW.shape[-1]))) @ k_RHLW.transpose(-1, -2)
    weights_RHLL = (scores_RHLL + bias_R1LL).softmax(-1)
    return drop(weights_RHLL, dropout, training=True) @ v_RHLW
