"""Heads: hidden states -> logits. A head does not know its task.

Shape suffixes: N tokens asked for, V vocabulary, E embedding width, D hidden width, M chosen positions.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..tokens import Tokens
from .encoder import Encoder, Shape, Words


class LMHead(nn.Module):
    """dense to E, gelu, LayerNorm, then the word table itself as output embedding, plus a bias (ELECTRA's generator and BERT's head)."""

    def __init__(self, shape: Shape, words: Words) -> None:
        super().__init__()
        self.words: Words = words
        self.dense = nn.Linear(shape.hidden_size, shape.embedding_size)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.bias_V = nn.Parameter(self.words.weight.new_zeros(shape.vocab_size))

    def forward(self, x_ND: Tensor) -> Tensor:
        return F.linear(self.norm(F.gelu(self.dense(x_ND))), self.words.weight, self.bias_V)


class LinearHead(nn.Module):
    """w . h + b: one logit a token (energies of Electric, the copy gate of All-Tokens MLM, the baseline of adversarial training)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(x_ND).squeeze(-1)


class BinaryHead(nn.Module):
    """w . gelu(W h): one logit a token (ELECTRA 2003.10555, discriminator predictions)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(shape.hidden_size, shape.hidden_size), nn.Linear(shape.hidden_size, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(F.gelu(self.dense(x_ND))).squeeze(-1)


class MaskedLM(nn.Module):
    """Encoder and LM head: a generator, and BERT itself. Logits only at the positions asked for."""

    def __init__(self, encoder: Encoder, head: LMHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def states(self, tokens: Tokens, at_M: Tensor) -> Tensor:
        """[M, D] what the head reads."""
        return self.encoder(tokens)[at_M]

    def forward(self, tokens: Tokens, at_M: Tensor) -> Tensor:
        return self.head(self.states(tokens, at_M))
