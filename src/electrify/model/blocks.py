"""Transformer blocks: hidden states [T, D] -> [T, D], with the attention context of the batch.

Shape suffixes: T flat tokens, D hidden width, F feed-forward width, M chosen positions, N rows of a
table of distances, X several of queries, keys and values side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import costs
from .attention import AttentionContext, Kind
from .embeddings import Shape
from .embeddings import dropout as drop
from .relative import RelativeContext


class Block(nn.Module):
    """Attention and feed-forward, each followed by residual and LayerNorm (post-norm, as in BERT,
    1810.04805)."""

    stacked: ClassVar = {"qkv": 3}
    """Layers whose weight is several matrices, one above the other."""

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
        return self.after(x_TD, context(self.qkv(x_TD), self.heads))

    def after(self, x_TD: Tensor, mixed_TD: Tensor) -> Tensor:
        """The block's result from its input and what its attention has mixed."""
        # CUDA's autocast returns float32 from a norm. The residual stream keeps its dtype.
        dtype = x_TD.dtype
        a_TD = self.out(mixed_TD)
        x_TD = self.norm1(x_TD + drop(a_TD, self.dropout, self.training)).to(dtype)
        f_TD = self.down(F.gelu(self.up(x_TD)))
        return self.norm2(x_TD + drop(f_TD, self.dropout, self.training)).to(dtype)

    def attention_flops(self, row_length: int) -> float:
        """FLOPs of the matrix products of attention for one token, in addition to those of its
        linear layers: the scores and the weighted sum over the row."""
        return 2 * (2 * row_length * self.out.in_features)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.layer_flops(sizes)


class DisentangledBlock(Block):
    """A block whose attention compares content and distance (DeBERTa, 2006.03654 section 3.1). The
    rows of the encoder's table of distances are projected by the weights, and biases, with which
    the block projects its input; each block draws its own dropout for them."""

    def forward(self, x_TD: Tensor, context: Any) -> Tensor:
        relative: RelativeContext = context
        qkv_TX = self.qkv(x_TD)
        rows_ND = drop(relative.rows_ND, self.dropout, self.training)
        both = 2 * self.out.in_features  # queries and keys
        relative_NX = F.linear(rows_ND, self.qkv.weight[:both], self.qkv.bias[:both])
        return self.after(x_TD, relative(qkv_TX, relative_NX, self.heads))

    def ask(
        self, x_TD: Tensor, context: Any, query_MD: Tensor, at_M: Tensor, *, times: int
    ) -> Tensor:
        """[M, D] what the block makes of other queries than its input: keys and values are those of
        x_TD, and query_MD, residual included, takes the place of x_TD at the positions at_M. times:
        how often the block runs, each time with the last result as queries.

        at_M: positions that are there once, or whose result nothing reads.
        """
        relative: RelativeContext = context
        width = self.out.in_features
        kv_TX = None
        for _ in range(times):
            rows_ND = drop(relative.rows_ND, self.dropout, self.training)
            # The whole layer is called, and its values are not needed: a sharded matrix is gathered
            # by a call, and is then available for the queries, keys and values below.
            relative_NX = self.qkv(rows_ND)[:, : 2 * width]
            if kv_TX is None:
                kv_TX = F.linear(x_TD, self.qkv.weight[width:], self.qkv.bias[width:])
            q_MD = F.linear(query_MD, self.qkv.weight[:width], self.qkv.bias[:width])
            q_TD = kv_TX.new_zeros(len(x_TD), width).index_copy(0, at_M, q_MD)
            mixed_TD = relative(torch.cat([q_TD, kv_TX], 1), relative_NX, self.heads)
            query_MD = self.after(query_MD, mixed_TD[at_M])
        return query_MD

    def attention_flops(self, row_length: int) -> float:
        """As for Block, plus two products for each of the distances between -L and L - 1."""
        relative = 2 * (2 * 2 * row_length * self.out.in_features)
        return super().attention_flops(row_length) + relative

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.relative_layer_flops(sizes)


class GatedBlock(nn.Module):
    """Attention and a gated feed-forward layer, each on normalised states and added to them
    (pre-norm, GeGLU, no biases; ModernBERT, 2412.13663 section 2.1).

    window: how far its attention sees on either side, None for the whole sequence. normed: False
    for the lowest block, whose input the embeddings have just normalised.
    """

    stacked: ClassVar = {"qkv": 3, "up": 2}

    def __init__(
        self, shape: Shape, *, dropout: float, window: int | None = None, normed: bool = True
    ) -> None:
        super().__init__()
        width = shape.hidden_size
        eps = shape.layer_norm_eps
        self.heads = shape.num_attention_heads
        self.dropout = dropout
        self.window = window
        self.kind: Kind = "global" if window is None else "local"
        self.norm1 = nn.LayerNorm(width, eps=eps, bias=False) if normed else nn.Identity()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, eps=eps, bias=False)
        self.up = nn.Linear(width, 2 * shape.intermediate_size, bias=False)
        self.down = nn.Linear(shape.intermediate_size, width, bias=False)

    def forward(self, x_TD: Tensor, contexts: Mapping[Kind, AttentionContext]) -> Tensor:
        a_TD = self.out(contexts[self.kind](self.qkv(self.norm1(x_TD)), self.heads))
        x_TD = x_TD + drop(a_TD, self.dropout, self.training)
        f_TD = self.down(geglu(self.up(self.norm2(x_TD))))
        return x_TD + drop(f_TD, self.dropout, self.training)

    def keys(self, row_length: int) -> int:
        """How many keys a token sees: those of its row, or of a window that the row's ends do not
        cut."""
        return row_length if self.window is None else min(row_length, 2 * self.window + 1)

    def attention_flops(self, row_length: int) -> float:
        """As for Block; with a window, only its keys count."""
        return 2 * (2 * self.keys(row_length) * self.out.in_features)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        return costs.gated_layer_flops(sizes, keys=self.keys(sizes.length))


def geglu(both_TX: Tensor) -> Tensor:
    """[T, F] gelu(u) * gate, where [T, 2 F] holds u and gate side by side (GeGLU, 2002.05202
    section 2)."""
    if both_TX.device.type == "cpu" and not torch.compiler.is_compiling():
        gated_TF = _GeGLU.apply(both_TX)
        assert isinstance(gated_TF, Tensor)
        return gated_TF
    u_TF, gate_TF = both_TX.chunk(2, dim=-1)
    return F.gelu(u_TF) * gate_TF


class _GeGLU(torch.autograd.Function):
    """The same on a CPU, where gelu of a part of each row takes four times as long as of whole ones
    (2.7 against .6 ms for 2,048 x 688 in bfloat16): u is copied first, and again in the backward
    pass, which writes both gradients side by side."""

    @staticmethod
    def forward(ctx: Any, both_TX: Tensor) -> Tensor:
        u_TF, gate_TF = both_TX.chunk(2, dim=-1)
        gelu_TF = F.gelu(u_TF.contiguous())
        ctx.save_for_backward(both_TX, gelu_TF)
        return gelu_TF * gate_TF

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> Tensor:
        both_TX, gelu_TF = ctx.saved_tensors
        u_TF, gate_TF = both_TX.chunk(2, dim=-1)
        gradient_TX = torch.empty_like(both_TX)
        du_TF, dgate_TF = gradient_TX.chunk(2, dim=-1)
        du_TF.copy_(torch.ops.aten.gelu_backward(grads[0] * gate_TF, u_TF.contiguous()))
        torch.mul(grads[0], gelu_TF, out=dgate_TF)
        return gradient_TX
