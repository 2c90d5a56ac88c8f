"""Positions that are part of attention and not of the embeddings.

Shape suffixes: T flat tokens, N any number (queries and keys), H heads, W head width, C = W / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# How much of queries, keys and values is turned at a time on a CPU: in float32 it takes 768 KiB.
ELEMENTS = 3 << 16


@dataclass(frozen=True)
class Rotary:
    """Rotary positions: component c of a query or key at position p, a pair of numbers (c, c + C),
    is turned by the angle p * theta^(-c / C), so that their product depends on the distance alone
    (RoFormer, 2104.09864 section 3.2; halves and not neighbours are paired, as in ModernBERT's
    code, 2412.13663 section 2.1).
    """

    theta: float
    head_width: int

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """[C] radians per token, from 1 downwards, in float32."""
        exponents_C = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=device)
        return 1.0 / self.theta ** (exponents_C / self.head_width)

    def turn(self, pos_T: Tensor, dtype: torch.dtype) -> Turn:
        """The turn of every token of a batch, for queries and keys of this dtype. Angles are
        computed in float32."""
        angle_TC = pos_T[:, None].float() * self.frequencies(pos_T.device)
        wide = torch.promote_types(dtype, torch.float32)
        both_T11W = torch.cat([angle_TC, angle_TC], 1)[:, None, None]
        return Turn(both_T11W.cos().to(wide), both_T11W.sin().to(wide))


@dataclass(frozen=True, eq=False)  # hashed by its identity: torch 2.11 hashes it in compiling
class Turn:
    """Cosines and sines of the angles by which each token's queries and keys are turned, those of a
    pair of components twice."""

    cos_T11W: Tensor
    sin_T11W: Tensor

    def __call__(self, x_TNHW: Tensor) -> Tensor:
        """Turned, [T, N, H, W]: computed in float32 or wider, returned in the given dtype."""
        half = self.cos_T11W.shape[-1] // 2
        first_TNHC, second_TNHC = x_TNHW.to(self.cos_T11W.dtype).chunk(2, dim=-1)
        cos, sin = self.cos_T11W[..., :half], self.sin_T11W[..., :half]
        turned = (first_TNHC * cos - second_TNHC * sin, second_TNHC * cos + first_TNHC * sin)
        return torch.cat(turned, dim=-1).to(x_TNHW.dtype)

    def split(self, qkv_T3HW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, turned, and values: [T, H, W] each."""
        if qkv_T3HW.device.type == "cpu" and not torch.compiler.is_compiling():
            turned = _Split.apply(qkv_T3HW, self.cos_T11W, self.sin_T11W)
            assert isinstance(turned, tuple)
            return turned
        q_THW, k_THW = self(qkv_T3HW[:, :2]).unbind(1)
        return q_THW, k_THW, qkv_T3HW[:, 2]


class _Split(torch.autograd.Function):
    """`Turn.split` on a CPU: some tokens at a time, whose float32 copies stay in its cache, and a
    backward pass that writes the three gradients to where the layer before it reads them."""

    @staticmethod
    def forward(ctx: Any, qkv_T3HW: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cos, sin)
        ctx.shape = qkv_T3HW.shape
        qk_T2HW = torch.empty_like(qkv_T3HW[:, :2])
        for some in _slices(qkv_T3HW):
            qk_T2HW[some] = _turned(qkv_T3HW[some, :2], cos[some], sin[some])
        return qk_T2HW[:, 0], qk_T2HW[:, 1], qkv_T3HW[:, 2]

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        gradient_T3HW = grads[0].new_empty(ctx.shape)
        for some in _slices(gradient_T3HW):
            for n in (0, 1):  # turned back
                gradient_T3HW[some, n] = _turned(grads[n][some], cos[some, 0], -sin[some, 0])
            gradient_T3HW[some, 2] = grads[2][some]
        return gradient_T3HW, None, None


def _slices(qkv_T3HW: Tensor) -> list[slice]:
    step = max(1, ELEMENTS // qkv_T3HW[0].numel())
    return [slice(start, start + step) for start in range(0, len(qkv_T3HW), step)]


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The tensor x [..., W] in the wider dtype, turned."""
    half = x.shape[-1] // 2
    x = x.to(cos.dtype, memory_format=torch.contiguous_format)
    across = x * sin
    turned = x * cos
    turned[..., :half] -= across[..., half:]
    turned[..., half:] += across[..., :half]
    return turned
