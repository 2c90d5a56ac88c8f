"""Positions that are part of attention and not of the embeddings.

Shape suffixes: T flat tokens, N any number (queries and keys), H heads, W head width, C = W / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
        return Turn(angle_TC.cos().to(wide)[:, None, None], angle_TC.sin().to(wide)[:, None, None])


@dataclass(frozen=True)
class Turn:
    """Cosines and sines of the angles by which each token's queries and keys are turned."""

    cos_T11C: Tensor
    sin_T11C: Tensor

    def __call__(self, x_TNHW: Tensor) -> Tensor:
        """Turned, [T, N, H, W]: computed in float32, returned in the given dtype."""
        first_TNHC, second_TNHC = x_TNHW.float().chunk(2, dim=-1)
        cos, sin = self.cos_T11C, self.sin_T11C
        turned = (first_TNHC * cos - second_TNHC * sin, second_TNHC * cos + first_TNHC * sin)
        return torch.cat(turned, dim=-1).to(x_TNHW.dtype)
