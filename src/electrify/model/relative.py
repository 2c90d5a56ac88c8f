"""Attention that knows the distance between query and key by a table of its own (disentangled
attention, DeBERTa, 2006.03654 section 3.1), with the buckets of DeBERTaV3 (2111.09543).

Shape suffixes: R rows, L row length, T = R * L flat tokens, H heads, W head width, D = H * W,
N rows of the table that a batch needs, E = 2 * L distances.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..tokens import Tokens
from .attention import Backend, Direction, attend, sequence_bias
from .embeddings import Shape

TERMS = 3
"""The parts of a score: content with content, content with position, position with content."""


def buckets_of(distance_E: Tensor, *, buckets: int, longest: int) -> Tensor:
    """[E] int64: the bucket of each distance. Half of the buckets of a sign are single distances;
    those of the other half grow with the logarithm, up to `longest - 1`.

    The bucket of -d is minus that of d. Computed in float32, as the library does, because at the
    edge of a bucket another precision may round to another one.
    """
    half = buckets // 2
    size_E = distance_E.abs().clamp(min=half)
    span = torch.tensor((longest - 1) / half, dtype=torch.float32, device=distance_E.device).log()
    far_E = ((size_E / half).log() / span * (half - 1)).ceil() + half
    wide_E = torch.where(distance_E.abs() <= half, distance_E, far_E * distance_E.sign())
    return wide_E.long()


class RelativeContext:
    """Attention inside the sequences of a batch, by content and distance. It is made once per
    batch, and all blocks of an encoder call it."""

    def __init__(
        self,
        tokens: Tokens,
        dtype: torch.dtype,
        *,
        rows_ND: Tensor,
        at_E: Tensor,
        direction: Direction,
        dropout: float,
        backend: Backend,
    ) -> None:
        """rows_ND: the rows of the table for the buckets -b to b. at_E: which of them each distance
        from -L to L - 1 takes (the first one is that of no pair). dropout: on the attention
        weights."""
        self.rows = tokens.num_rows
        self.length = tokens.row_length
        self.rows_ND = rows_ND
        self.at_E = at_E
        self.where_1RLL = sequence_bias(tokens, dtype, direction).transpose(0, 1)
        self.dropout = dropout
        self.backend: Backend = backend

    def __call__(self, qkv_TX: Tensor, relative_NX: Tensor, heads: int) -> Tensor:
        """The result [T, D] for queries, keys and values side by side [T, 3 D], and for queries and
        keys of the rows of the table [N, 2 D]."""
        qkv_3HRLW = qkv_TX.view(self.rows, self.length, 3, heads, -1).permute(2, 3, 0, 1, 4)
        q_HRLW, k_HRLW, v_HRLW = qkv_3HRLW.unbind(0)
        scale = scale_of(q_HRLW.shape[-1])
        scaled_N2HW = (relative_NX * scale).view(len(relative_NX), 2, heads, -1)
        rq_HNW, rk_HNW = scaled_N2HW.permute(1, 2, 0, 3).unbind(0)
        # From one key to the next, the distance to a query falls; from one query to the next, that
        # to a key grows.
        content_HRLL = products(q_HRLW, rk_HNW[:, len(relative_NX) - 1 - self.at_E])
        position_HRLL = products(k_HRLW, rq_HNW[:, self.at_E]).transpose(-1, -2)
        mixed_HRLW = attend(
            q_HRLW,
            k_HRLW,
            v_HRLW,
            content_HRLL + position_HRLL + self.where_1RLL,
            dropout=self.dropout,
            backend=self.backend,
            scale=scale,
        )
        return mixed_HRLW.permute(1, 2, 0, 3).reshape(len(qkv_TX), -1)


def scale_of(width: int) -> float:
    """The factor for the scores of a head. The root is rounded to float32 as it is in the public
    code, even in a network of float64, so that an export's numbers are the library's in any
    type."""
    return 1 / float(torch.tensor(float(TERMS * width)).sqrt())


def products(x_HRLW: Tensor, table_HEW: Tensor) -> Tensor:
    """[H, R, L, L]: entry (i, j) is x_i times row j - i + L of the table, which is the same for all
    rows of the batch."""
    rows, length = x_HRLW.shape[1:3]
    wide_HTE = x_HRLW.flatten(1, 2) @ table_HEW.transpose(1, 2)
    return skewed(wide_HTE.unflatten(1, (rows, length)))


def skewed(x_HRLE: Tensor) -> Tensor:
    """[H, R, L, L]: a view, in which entry (i, j) is entry (i, j - i + L) of [H, R, L, 2 L]."""
    length = x_HRLE.shape[-2]
    flat = x_HRLE.flatten(-2)[..., length:]
    return flat.unflatten(-1, (length, 2 * length - 1))[..., :length]


class RelativeContexts(nn.Module):
    """Makes the one attention context that all blocks of an encoder share. It holds the table of
    the buckets from -buckets to buckets - 1, [2 * buckets, D], and its norm."""

    backend: Backend = "auto"

    def __init__(
        self,
        *,
        width: int,
        buckets: int,
        longest: int,
        eps: float,
        direction: Direction = "both",
        dropout: float = 0.0,
    ) -> None:
        """longest: tokens of the longest row. dropout: on the attention weights, in training."""
        super().__init__()
        self.table = nn.Embedding(2 * buckets, width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.direction: Direction = direction
        self.dropout = dropout
        self.width = width
        self.buckets = buckets
        self.longest = longest
        # On the CPU also where a model is only outlined: its numbers are needed.
        every_E = torch.arange(-longest, longest, device="cpu")
        of = buckets_of(every_E, buckets=buckets, longest=longest)
        self.farthest = tuple(of[longest:].tolist())
        self.bucket_E: Tensor
        self.register_buffer("bucket_E", torch.tensor(of.tolist()), persistent=False)

    def forward(self, tokens: Tokens, dtype: torch.dtype, *, training: bool) -> RelativeContext:
        """Every block projects the rows itself, so it gets only those from the bucket of the
        farthest pair of tokens of this row length to that of the farthest the other way round."""
        length = tokens.row_length
        far = self.farthest[length - 1]
        near_E = self.bucket_E[self.longest - length : self.longest + length]
        rows_ND = self.table.weight[self.buckets - far : self.buckets + far + 1]
        return RelativeContext(
            tokens,
            dtype,
            rows_ND=self.norm(rows_ND).to(dtype),
            at_E=near_E.clamp(-far, far) + far,
            direction=self.direction,
            dropout=self.dropout if training else 0.0,
            backend=self.backend,
        )

    def take(self, shape: Shape) -> None:
        """Nothing in it differs between the phases of a run."""

    def once_flops(self, row_length: int) -> float:
        """FLOPs of the projections of the rows by one block, for queries and keys: once in a
        forward pass, however many rows the batch has."""
        rows = 2 * self.farthest[row_length - 1] + 1
        return rows * 2 * self.width * 2 * self.width
