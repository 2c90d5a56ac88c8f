"""Transformer blocks: hidden states [T, D] -> [T, D], with the attention context of the batch.

Shape suffixes: T flat tokens, D hidden width, F feed-forward width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from . import costs
from .attention import AttentionContext
from .dropout import dropout as drop
from .shape import Shape


class Block(nn.Module):
    """Attention and feed-forward, each followed by residual and LayerNorm (post-norm, as in BERT,
    1810.04805)."""

    def __init__(self, shape: Shape, *, dropout: float) -> None:
        super().__init__()
        width = shape.hidden_size
        eps = shape.layer_norm_eps
        self.heads = shape.num_attention_heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, shape.intermediate_size)
        self.down = nn.Linear(shape.intermediate_size, width)
        self.norm2 = nn.LayerNorm(width, eps=eps)

    def forward(self, x_TD: Tensor, context: AttentionContext) -> Tensor:
        a_TD = self.out(context(self.qkv(x_TD), self.heads))
        x_TD = self.norm1(x_TD + drop(a_TD, self.dropout, self.training))
        f_TD = self.down(F.gelu(self.up(x_TD)))
        return self.norm2(x_TD + drop(f_TD, self.dropout, self.training))

    def attention_flops(self, row_length: int) -> float:
        """FLOPs of the matrix products of attention for one token, in addition to those of its
        linear layers: the scores and the weighted sum over the row."""
        return 2 * (2 * row_length * self.out.in_features)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.layer_flops(sizes)
