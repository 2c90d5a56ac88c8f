"""The ELECTRA/BERT encoder: post-norm blocks over embeddings of words, positions and segments.

Shape suffixes: T flat tokens, R rows, L row length, V vocabulary, E embedding width, D hidden width, F feed-forward width, H heads, W head width.
Parts are handed in, so that sharing weights is passing the same object twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..files.schema import Positive
from ..tokens import Tokens
from .attention import Backend, Look, Within
from .dropout import dropout as drop


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The numbers that decide an encoder's parameters, under Hugging Face's names."""

    vocab_size: Positive
    embedding_size: Positive
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    intermediate_size: Positive
    max_position_embeddings: Positive
    type_vocab_size: Positive = 2
    layer_norm_eps: float = 1e-12

    @property
    def head_width(self) -> int:
        return self.hidden_size // self.num_attention_heads


class DisentangledWords(nn.Module):
    """A word table that is another one's values, without their gradient, plus a difference of its own that starts at 0.

    Gradient-disentangled embedding sharing (DeBERTaV3, 2111.09543 section 3.2.3): what the discriminator asks of the words does not pull at the
    generator's table, what the generator learns reaches both.
    """

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.base = base
        self.delta_VE = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def weight(self) -> Tensor:
        """[V, E] the sum."""
        return self.base.weight.detach() + self.delta_VE

    def forward(self, ids_T: Tensor) -> Tensor:
        return F.embedding(ids_T, self.base.weight.detach()) + F.embedding(ids_T, self.delta_VE)


Words = nn.Embedding | DisentangledWords


class Embeddings(nn.Module):
    """LayerNorm(word + position + segment), then dropout: width E. `words` may be another model's table, or rest on it."""

    def __init__(self, shape: Shape, *, dropout: float, words: Words | None = None) -> None:
        super().__init__()
        self.words: Words = words or nn.Embedding(shape.vocab_size, shape.embedding_size)
        self.positions = nn.Embedding(shape.max_position_embeddings, shape.embedding_size)
        self.segments = nn.Embedding(shape.type_vocab_size, shape.embedding_size)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.dropout = dropout

    def forward(self, tokens: Tokens) -> Tensor:
        x_TE = self.words(tokens.ids_T) + self.positions(tokens.pos_T) + self.segments(tokens.segment_T)
        return drop(self.norm(x_TE), self.dropout, self.training)


class Block(nn.Module):
    """Attention and feed-forward, each followed by residual and LayerNorm (post-norm, as in BERT)."""

    def __init__(self, shape: Shape, *, dropout: float) -> None:
        super().__init__()
        width, eps = shape.hidden_size, shape.layer_norm_eps
        self.heads, self.dropout = shape.num_attention_heads, dropout
        self.qkv, self.out, self.norm1 = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width, eps=eps)
        self.up, self.down = nn.Linear(width, shape.intermediate_size), nn.Linear(shape.intermediate_size, width)
        self.norm2 = nn.LayerNorm(width, eps=eps)

    def forward(self, x_TD: Tensor, within: Within) -> Tensor:
        a_TD = self.out(within(self.qkv(x_TD), self.heads))
        x_TD = self.norm1(x_TD + drop(a_TD, self.dropout, self.training))
        f_TD = self.down(F.gelu(self.up(x_TD)))
        return self.norm2(x_TD + drop(f_TD, self.dropout, self.training))


class Encoder(nn.Module):
    """Tokens -> hidden states [T, D]. `project` widens (or narrows) the embeddings where E differs from D. `look` left or right: each token sees
    itself and what stands on that side of it only."""

    def __init__(
        self, shape: Shape, embeddings: Embeddings, *, dropout: float, attention_dropout: float, backend: Backend = "auto", look: Look = "both"
    ) -> None:
        super().__init__()
        self.shape, self.embeddings, self.attention_dropout = shape, embeddings, attention_dropout
        self.look: Look = look
        self.backend: Backend = backend
        self.project = nn.Linear(shape.embedding_size, shape.hidden_size) if shape.embedding_size != shape.hidden_size else None
        self.blocks = nn.ModuleList(Block(shape, dropout=dropout) for _ in range(shape.num_hidden_layers))

    def embed(self, tokens: Tokens) -> Tensor:
        x_TD = self.embeddings(tokens)
        if self.project is not None:
            x_TD = self.project(x_TD)
        kind = x_TD.device.type
        # The residual stream follows autocast from its start; in float32 every block would cast it, forward and backward.
        return x_TD.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x_TD

    def forward(self, tokens: Tokens) -> Tensor:
        x_TD = self.embed(tokens)
        dropout = self.attention_dropout if self.training else 0.0
        within = Within(tokens, x_TD.dtype, look=self.look, dropout=dropout, backend=self.backend)
        for block in self.blocks:
            x_TD = block(x_TD, within)
        return x_TD
