"""What every part of an encoder takes: its shape, dropout, and embeddings (word tables, and the sum
of words, positions and segments).

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, E embedding width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..tokens import Tokens
from ..values import Count
from . import costs

_INTEGERS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An encoder's sizes under Hugging Face's names. An architecture that has more of them uses a
    subclass."""

    vocab_size: Count
    embedding_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    type_vocab_size: Count = 2
    layer_norm_eps: float = 1e-12

    @property
    def head_width(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def telling_length(self) -> int:
        """The length of a sequence that shows everything that attention does with positions."""
        return 33


# ------------------------------------------------------------------ dropout


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Works like torch's dropout: in training each element is 0 with probability p, and otherwise
    divided by 1 - p. p is rounded to steps of 2^-16 (2^-32 in float32)."""
    if not (training and p):
        return x
    if x.device.type != "cpu" or x.dtype not in _INTEGERS or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * keep_mask(x.shape, x.dtype, p) * (1 / (1 - p))


def keep_mask(shape: torch.Size, dtype: torch.dtype, p: float) -> Tensor:
    """1 with probability 1 - p, else 0, drawn from the CPU's generator."""
    integers = _INTEGERS[dtype]
    size = shape.numel()
    bits = 8 * dtype.itemsize
    random = (
        torch.empty(-(-size * dtype.itemsize // 8), dtype=torch.int64)
        .random_(-(2**63), None)
        .view(integers)[:size]
    )
    # Operations in place are vectorised: 1 for kept elements, times the bit pattern of the dtype's
    # 1.0.
    random.ge_(min(round(p * 2**bits), 2**bits - 1) - 2 ** (bits - 1)).mul_(
        int(torch.ones((), dtype=dtype).view(integers))
    )
    return random.view(dtype).view(shape)


# ------------------------------------------------------------------ embeddings


class DisentangledWords(nn.Module):
    """A word table whose values are those of another table, without their gradient, plus a
    difference of its own that starts at 0.

    Gradient-disentangled embedding sharing (DeBERTaV3, 2111.09543 section 3.2.3): the
    discriminator's gradient does not change the generator's table, but what the generator learns
    reaches both.
    """

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.base = base
        self.delta_VE = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def weight(self) -> Tensor:
        """The sum [V, E]."""
        return self.base.weight.detach() + self.delta_VE

    @torch.no_grad()
    def level(self) -> None:
        """Puts the sum into the table below, so that the difference starts at 0 again."""
        self.base.weight += self.delta_VE
        self.delta_VE.zero_()

    def forward(self, ids_T: Tensor) -> Tensor:
        return F.embedding(ids_T, self.base.weight.detach()) + F.embedding(ids_T, self.delta_VE)


Words = nn.Embedding | DisentangledWords


def own_tables(words: Iterable[Words]) -> list[nn.Embedding]:
    """The own tables of these, a shared one only once."""
    return list({id(table): table for table in map(own_table, words)}.values())


def own_table(words: Words) -> nn.Embedding:
    """The word table that holds the actual values: the underlying one of a disentangled table, else
    the table itself."""
    return words.base if isinstance(words, DisentangledWords) else words


@dataclass(frozen=True)
class Added:
    """Vectors that are added to the word vectors at some positions; a position that is named twice
    gets both."""

    at_M: Tensor
    rows_ME: Tensor


def word_vectors(words: Words, ids_T: Tensor, added: Added | None = None) -> Tensor:
    """[T, E] the rows of a word table, with what is added to them."""
    x_TE = words(ids_T)
    if added is None:
        return x_TE
    return x_TE.index_add(0, added.at_M, added.rows_ME.to(x_TE.dtype))


class Embeddings(nn.Module):
    """LayerNorm(word + position + segment), then dropout; width E. `words` may be another model's
    table, or be built on it."""

    def __init__(self, shape: Shape, *, dropout: float, words: Words | None = None) -> None:
        super().__init__()
        self.words: Words = words or nn.Embedding(shape.vocab_size, shape.embedding_size)
        self.positions = nn.Embedding(shape.max_position_embeddings, shape.embedding_size)
        self.segments = nn.Embedding(shape.type_vocab_size, shape.embedding_size)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.dropout = dropout

    def forward(self, tokens: Tokens, added: Added | None = None) -> Tensor:
        x_TE = (
            word_vectors(self.words, tokens.ids_T, added)
            + self.positions(tokens.pos_T)
            + self.segments(tokens.segment_T)
        )
        return dropout(self.norm(x_TE), self.dropout, self.training)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        """Forward FLOPs for one token in the paper's convention, with those of a projection."""
        return costs.input_flops(sizes)


class WordEmbeddings(nn.Module):
    """LayerNorm(word), then dropout, for blocks that compute positions themselves; width E. bias:
    whether the norm has one (ModernBERT's has not, 2412.13663 section 2.1). `words` may be another
    model's table, or be built on it."""

    def __init__(
        self, shape: Shape, *, dropout: float, words: Words | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        self.words: Words = words or nn.Embedding(shape.vocab_size, shape.embedding_size)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps, bias=bias)
        self.dropout = dropout

    def forward(self, tokens: Tokens, added: Added | None = None) -> Tensor:
        x_TE = word_vectors(self.words, tokens.ids_T, added)
        return dropout(self.norm(x_TE), self.dropout, self.training)

    def paper_flops(self, sizes: costs.Sizes) -> float:
        """Forward FLOPs for one token in the paper's convention."""
        return costs.words_flops(sizes)
