"""AttentionContext: one interface to several attention backends, which a test shows to agree. This
is the only file of pre-training that knows about attention kernels.

Attention stays inside a sequence: tokens whose sequence numbers differ do not see each other, so a
packed row gives the same results as its sequences one by one. Shape suffixes: R rows, L row length,
H heads, W head width, T = R * L flat tokens, D = H * W.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..tokens import Tokens
from .embeddings import Shape
from .embeddings import dropout as drop

Backend = Literal["auto", "matmul", "sdpa", "varlen", "blocks"]
Direction = Literal["both", "left", "right"]
Kind = Literal["global", "local"]
# From this length on, plain products are not faster, and their memory, which grows with the square
# of the length, is most of an update's. At 1,024 an update is faster with them
# (research/results.md).
LONG_ROW = 2048


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What the attention of one kind of block knows of positions."""

    rotary: Rotary | None = None
    window: int | None = None
    """The largest distance between a query and a key that it sees; None if it sees the whole
    sequence."""


def sequence_bias(
    tokens: Tokens,
    dtype: torch.dtype,
    direction: Direction = "both",
    *,
    window: int | None = None,
) -> Tensor:
    """[R, 1, L, L]: 0 if query and key belong to the same sequence, else the lowest finite number.

    `left` also masks keys after the query, `right` keys before it; a token always sees itself.
    window: also masks keys at a larger distance; those at this distance are seen, on both sides.

    Padding (sequence 0) attends to padding, so that no row of the softmax is empty; its result is
    never used.
    """
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    same_RLL = seq_RL[:, :, None] == seq_RL[:, None, :]
    if direction != "both":
        same_RLL = same_RLL.tril() if direction == "left" else same_RLL.triu()
    if window is not None:
        same_RLL = same_RLL.tril(window).triu(-window)
    return torch.zeros(same_RLL.shape, dtype=dtype, device=seq_RL.device).masked_fill_(
        ~same_RLL, torch.finfo(dtype).min
    )[:, None]


class AttentionContext:
    """Attention inside the sequences of a batch. It is made once per batch, and all blocks of an
    encoder call it."""

    def __init__(
        self,
        tokens: Tokens,
        dtype: torch.dtype,
        *,
        direction: Direction = "both",
        dropout: float = 0.0,
        backend: Backend = "auto",
        reach: Reach | None = None,
    ) -> None:
        """dtype: dtype of queries, keys and values. dropout: on the attention weights (0 outside
        training). reach: by default the whole sequence, without positions.

        Raises:
            ValueError: for `blocks` without a window, or with one that limits nothing in a row.
        """
        rotary, window = (reach.rotary, reach.window) if reach is not None else (None, None)
        self.turn = None if rotary is None else rotary.turn(tokens.pos_T, dtype)
        # A window that no pair of tokens in a row exceeds does not limit anything.
        self.window = None if window is None or window >= tokens.row_length - 1 else window
        self.rows = tokens.num_rows
        self.length = tokens.row_length
        self.dropout = dropout
        self.backend: Backend = backend
        if backend == "auto" and packed_kernel(tokens, dtype, direction=direction):
            self.backend = "varlen"
        # On every device: a masked row of a window would need memory for the square of its length.
        if self.backend == "auto" and self.window and pays(self.window, self.length):
            self.backend = "blocks"
        self.blocks: Blocks | None = None
        if self.backend == "blocks":
            assert self.window is not None
            self.blocks = Blocks(tokens, self.window)
            self.where = self.blocks.bias(tokens, dtype, direction)
        elif self.backend == "varlen":
            self.where = run_starts(tokens)
        else:
            self.where = sequence_bias(tokens, dtype, direction, window=self.window)

    def __call__(self, qkv_TX: Tensor, heads: int) -> Tensor:
        """The result [T, D] for queries, keys and values side by side [T, 3 D]."""
        qkv_T3HW = qkv_TX.view(len(qkv_TX), 3, heads, -1)
        q_THW, k_THW, v_THW = qkv_T3HW.unbind(1) if self.turn is None else self.turn.split(qkv_T3HW)
        if self.backend == "varlen":
            how = {"window": self.window, "dropout": self.dropout}
            return varlen(q_THW, k_THW, v_THW, self.where, self.length, **how).flatten(1)
        if self.blocks is not None:
            q_PHBW, k_PHKW, v_PHKW = (
                self.blocks.queries(q_THW),
                self.blocks.keys(k_THW),
                self.blocks.keys(v_THW),
            )
            mixed_PHBW = attend(q_PHBW, k_PHKW, v_PHKW, self.where, dropout=self.dropout)
            return self.blocks.rows_again(mixed_PHBW).flatten(1)
        q_RHLW, k_RHLW, v_RHLW = (
            x_THW.view(self.rows, self.length, heads, -1).transpose(1, 2)
            for x_THW in (q_THW, k_THW, v_THW)
        )
        mixed_RHLW = attend(
            q_RHLW, k_RHLW, v_RHLW, self.where, dropout=self.dropout, backend=self.backend
        )
        return mixed_RHLW.transpose(1, 2).reshape(len(qkv_TX), -1)


class _Contexts:
    """Makes attention contexts of one direction, with one dropout."""

    backend: Backend = "auto"

    def __init__(self, *, direction: Direction = "both", dropout: float = 0.0) -> None:
        """dropout: on the attention weights, in training."""
        self.direction: Direction = direction
        self.dropout = dropout

    def one(
        self, tokens: Tokens, dtype: torch.dtype, *, training: bool, reach: Reach | None = None
    ) -> AttentionContext:
        return AttentionContext(
            tokens,
            dtype,
            direction=self.direction,
            dropout=self.dropout if training else 0.0,
            backend=self.backend,
            reach=reach,
        )

    def once_flops(self, row_length: int) -> float:
        """FLOPs of what one block computes once in a forward pass, however many rows the batch has:
        none."""
        return 0.0


class SharedContext(_Contexts):
    """Makes the one attention context that all blocks of an encoder share."""

    def take(self, shape: Shape) -> None:
        """None of it is in the shape."""

    def __call__(self, tokens: Tokens, dtype: torch.dtype, *, training: bool) -> AttentionContext:
        return self.one(tokens, dtype, training=training)


class ContextsByKind(_Contexts):
    """Makes the attention contexts of an encoder whose blocks are of several kinds; each block
    takes that of its kind."""

    def __init__(self, reaches: Mapping[Kind, Reach], **how: Any) -> None:
        super().__init__(**how)
        self.reaches = reaches

    def take(self, shape: Any) -> None:
        """From now on, the reaches are those of this shape."""
        self.reaches = shape.reaches

    def __call__(
        self, tokens: Tokens, dtype: torch.dtype, *, training: bool
    ) -> dict[Kind, AttentionContext]:
        return {
            kind: self.one(tokens, dtype, training=training, reach=reach)
            for kind, reach in self.reaches.items()
        }


def packed_kernel(tokens: Tokens, dtype: torch.dtype, *, direction: Direction) -> bool:
    """Whether the fused kernel for packed sequences can be used. It needs 16-bit numbers on an A100
    or later."""
    if (
        direction != "both"
        or tokens.runs is None
        or dtype not in (torch.bfloat16, torch.float16)
        or tokens.ids_T.device.type != "cuda"
    ):
        return False
    return torch.cuda.get_device_capability(tokens.ids_T.device) >= (8, 0)


def run_starts(tokens: Tokens) -> Tensor:
    """[runs + 1] int32: where each run of equal seq_T begins in the flat batch. The unused entries
    at the end are T."""
    assert tokens.runs is not None
    seq_RL = tokens.seq_T.view(-1, tokens.row_length)
    size = len(tokens.seq_T)
    begins_RL = torch.ones_like(seq_RL, dtype=torch.bool)
    begins_RL[:, 1:] = seq_RL[:, 1:] != seq_RL[:, :-1]
    begins_T = begins_RL.flatten()
    at_T = torch.arange(size, device=seq_RL.device)
    place_T = torch.where(begins_T, begins_T.cumsum(0) - 1, tokens.runs + 1).clamp(
        max=tokens.runs + 1
    )
    return at_T.new_full((tokens.runs + 2,), size).scatter(0, place_T, at_T)[:-1].int()


def varlen(
    q_THW: Tensor,
    k_THW: Tensor,
    v_THW: Tensor,
    starts_S: Tensor,
    longest: int,
    *,
    window: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """[T, H, W]: attention inside each run by torch's kernel for packed sequences, whose window,
    too, includes the keys at its edges. dropout: on the attention weights.

    torch's own function for it, `varlen_attn`, has no dropout. This is the operator that it calls,
    which also has a gradient.
    """
    width = q_THW.shape[-1]
    if spare := -width % 8:  # the kernel takes widths that are multiples of 8
        q_THW, k_THW, v_THW = (F.pad(x, (0, spare)) for x in (q_THW, k_THW, v_THW))
    edge = -1 if window is None else window
    mixed_THW = torch.ops.aten._flash_attention_forward(
        *(q_THW, k_THW, v_THW, starts_S, starts_S, longest, longest),
        *(dropout, False, False),  # not causal, without the weights
        scale=1 / math.sqrt(width),
        window_size_left=edge,
        window_size_right=edge,
    )[0]
    return mixed_THW[..., :width]


def attend(
    q_RHLW: Tensor,
    k_RHLW: Tensor,
    v_RHLW: Tensor,
    bias_R1LL: Tensor,
    *,
    dropout: float,
    backend: Backend = "auto",
    scale: float | None = None,
) -> Tensor:
    """softmax(scale * q k + bias) v, with dropout on the weights. Returns [R, H, L, W]. There may
    be more keys and values than queries. scale: by default 1 / sqrt(W).

    On a CPU in bfloat16 `auto` uses plain matrix products for rows below LONG_ROW and for dropout;
    they were measured to be faster there, forward and backward together (research/results.md).
    Otherwise it uses the fused kernel, which keeps no weights for the backward pass.
    """
    if backend == "auto":
        plain = q_RHLW.device.type == "cpu" and q_RHLW.dtype == torch.bfloat16
        # With dropout, the fused kernel keeps the weights, too.
        fused = not dropout and k_RHLW.shape[2] >= LONG_ROW
        backend = "matmul" if plain and not fused else "sdpa"
    if backend == "sdpa":
        return F.scaled_dot_product_attention(
            q_RHLW, k_RHLW, v_RHLW, attn_mask=bias_R1LL, dropout_p=dropout, scale=scale
        )
    if scale is None:
        scale = 1 / math.sqrt(q_RHLW.shape[-1])
    scores_RHLL = (q_RHLW * scale) @ k_RHLW.transpose(-1, -2)
    weights_RHLL = (scores_RHLL + bias_R1LL).softmax(-1)
    return drop(weights_RHLL, dropout, training=True) @ v_RHLW


# ------------------------------------------------------------------ within a window

# As attention between blocks of a row: each block of queries sees its own block of keys and the two
# beside it, so neither memory nor time grows with the square of the row's length. Shape suffixes: R
# rows, L row length, H heads, W head width, N blocks of a row, B block length, K = 3 * B keys of a
# block, P = R * N blocks of a batch.

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

    def bias(self, tokens: Tokens, dtype: torch.dtype, direction: Direction) -> Tensor:
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


# ------------------------------------------------------------------ rotary positions
#
# Shape suffixes: N any number (queries and keys), C = W / 2.


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
