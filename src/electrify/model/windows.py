"""Attention within a window as attention between blocks of a row: each block of queries sees its
own block of keys and the two beside it, so neither memory nor time grows with the square of the
row's length.

Shape suffixes: R rows, L row length, H heads, W head width, T = R * L flat tokens, N blocks of a
row, B block length, K = 3 * B keys of a block, P = R * N blocks of a batch.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tokens import Tokens

SHORTEST = 16  # shorter blocks are matrices too small for a processor
# In shorter rows, cutting and filling blocks takes the time that they save (research/log.md).
LEAST_ROW = 256
OUTSIDE = -1  # in place of the number of a sequence, before and after a row


def block_length(window: int) -> int:
    return max(window, SHORTEST)


def pays(window: int, row_length: int) -> bool:
    """Whether blocks are faster: they compute at most half of the products of a row, and the row is
    not short."""
    return row_length >= max(LEAST_ROW, 6 * block_length(window))


class Blocks:
    """The rows of a batch cut into blocks, the last one filled up."""

    def __init__(self, tokens: Tokens, window: int) -> None:
        self.rows = tokens.num_rows
        self.length = tokens.row_length
        self.window = window
        self.block = block_length(window)
        self.number = -(-self.length // self.block)
        self.filler = self.number * self.block - self.length

    def queries(self, x_THW: Tensor) -> Tensor:
        """[P, H, B, W]."""
        x_RLHW = x_THW.reshape(self.rows, self.length, *x_THW.shape[1:])
        x_RLHW = F.pad(x_RLHW, (0, 0, 0, 0, 0, self.filler))
        return x_RLHW.reshape(-1, self.block, *x_THW.shape[1:]).transpose(1, 2)

    def keys(self, x_THW: Tensor) -> Tensor:
        """[P, H, K, W]: of every block with those beside it. Outside of a row there are zeros."""
        x_RLHW = x_THW.reshape(self.rows, self.length, *x_THW.shape[1:])
        x_RLHW = F.pad(x_RLHW, (0, 0, 0, 0, self.block, self.block + self.filler))
        wide = self._beside(x_RLHW.unflatten(1, (self.number + 2, self.block)))
        return wide.flatten(0, 1).transpose(1, 2)

    def rows_again(self, x_PHBW: Tensor) -> Tensor:
        """[T, H, W], without the filler."""
        x_RLHW = x_PHBW.transpose(1, 2).reshape(self.rows, -1, *x_PHBW.shape[1::2])
        return x_RLHW[:, : self.length].flatten(0, 1)

    def bias(
        self, tokens: Tokens, dtype: torch.dtype, direction: Literal["both", "left", "right"]
    ) -> Tensor:
        """[P, 1, B, K]: 0 if query and key belong to the same sequence and are not farther apart
        than the window, else the lowest finite number."""
        seq_RL = tokens.seq_T.view(self.rows, self.length)
        seq_RL = F.pad(seq_RL, (self.block, self.block + self.filler), value=OUTSIDE)
        seq_RNB = seq_RL.unflatten(1, (self.number + 2, self.block))
        same_RNBK = seq_RNB[:, 1:-1, :, None] == self._beside(seq_RNB)[:, :, None]
        at_B = torch.arange(self.block, device=seq_RL.device) + self.block
        at_K = torch.arange(3 * self.block, device=seq_RL.device)
        after_BK = at_K - at_B[:, None]
        low = 0 if direction == "right" else -self.window
        high = 0 if direction == "left" else self.window
        same_RNBK = same_RNBK & (after_BK >= low) & (after_BK <= high)
        bias: Any = torch.zeros(same_RNBK.shape, dtype=dtype, device=seq_RL.device)
        return bias.masked_fill_(~same_RNBK, torch.finfo(dtype).min).flatten(0, 1)[:, None]

    def _beside(self, x_RNB: Tensor) -> Tensor:
        """[R, N, K, ...] of [R, N + 2, B, ...]: each inner block between its neighbours."""
        return torch.cat([x_RNB[:, :-2], x_RNB[:, 1:-1], x_RNB[:, 2:]], dim=2)
