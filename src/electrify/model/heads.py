"""Heads: hidden states -> logits. A head does not know its task; it knows what it costs, and what it is exported as.

Shape suffixes: N tokens asked for, V vocabulary, E embedding width, D hidden width, M chosen positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..tokens import Tokens
from . import costs
from .embeddings import Words
from .encoder import Encoder
from .shape import Shape

HeadKind = Literal["token", "binary"]


class Head(nn.Module):
    """[N, D] -> logits."""

    kind: ClassVar[HeadKind]
    """What it says of a token: a logit for each word of the vocabulary [N, V], or one logit [N]."""
    paper_share: ClassVar[float | None] = None
    """On which share of the tokens the script of the paper lets it run, where that is not the head's own."""

    def hardware_flops(self, row_length: int) -> float:
        """Matrix products of a forward pass for one token that it runs on."""
        return costs.linear_flops(self)

    def paper_flops(self, row_length: int) -> float:
        """The same in the paper's convention (flops/)."""
        raise NotImplementedError

    def exported(self) -> dict[str, Tensor]:
        """The parameters under the names of the exported class's table, without the word table that it reads."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("words.")}

    @torch.no_grad()
    def fill(self, named: Mapping[str, Tensor]) -> list[str]:
        """Sets those of these names, as `exported` names them; returns the names that it cannot hold."""
        own = self.exported()
        for name, t in named.items():
            own[name].copy_(t)
        return []


class LMHead(Head):
    """dense to E, gelu, LayerNorm, then the word table itself as output embedding, plus a bias (ELECTRA's generator and BERT's head)."""

    kind = "token"
    paper_share = costs.CHOSEN

    def __init__(self, shape: Shape, words: Words) -> None:
        super().__init__()
        self.words: Words = words
        self.dense = nn.Linear(shape.hidden_size, shape.embedding_size)
        self.norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.bias_V = nn.Parameter(self.words.weight.new_zeros(shape.vocab_size))

    def forward(self, x_ND: Tensor) -> Tensor:
        return F.linear(self.norm(F.gelu(self.dense(x_ND))), self.words.weight, self.bias_V)

    def hardware_flops(self, row_length: int) -> float:
        return costs.linear_flops(self) + 2 * self.dense.out_features * len(self.bias_V)

    def paper_flops(self, row_length: int) -> float:
        dense = self.dense
        return costs.output_flops(costs.Sizes(width=dense.in_features, layers=0, vocab=len(self.bias_V), embedding=dense.out_features))


class LinearHead(Head):
    """w . h + b: one logit a token (energies of Electric, the copy gate of All-Tokens MLM, the baseline of adversarial training).

    It is exported as the dense layer, gelu and output of a BinaryHead that compute the same.
    """

    kind = "binary"

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(x_ND).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        return costs.paper_linear_flops(self.out)

    def exported(self) -> dict[str, Tensor]:
        return two_layers(self)

    @torch.no_grad()
    def fill(self, named: Mapping[str, Tensor]) -> list[str]:
        """Of the two layers of another objective, which it cannot be, it takes nothing."""
        one = one_layer(named) if len(named) == len(self.exported()) else None
        if one is None:
            return list(named)
        self.load_state_dict(one)
        return []


class BinaryHead(Head):
    """w . gelu(W h): one logit a token (ELECTRA 2003.10555, discriminator predictions)."""

    kind = "binary"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.out = nn.Linear(shape.hidden_size, 1)

    def forward(self, x_ND: Tensor) -> Tensor:
        return self.out(F.gelu(self.dense(x_ND))).squeeze(-1)

    def paper_flops(self, row_length: int) -> float:
        return costs.binary_flops(self.dense.in_features)


def two_layers(head: LinearHead) -> dict[str, Tensor]:
    """A linear head as dense, gelu and output, exactly: gelu(x) - gelu(-x) = x, so the dense layer gets w and -w, the output 1 and -1."""
    w_D, b = head.out.weight.detach()[0], head.out.bias.detach()
    dense_DD = w_D.new_zeros(len(w_D), len(w_D))
    bias_D = torch.zeros_like(w_D)
    out_1D = w_D.new_zeros(1, len(w_D))
    dense_DD[0], dense_DD[1] = w_D, -w_D
    bias_D[0:1], bias_D[1:2] = b, -b
    out_1D[0, 0], out_1D[0, 1] = 1, -1
    return {"dense.weight": dense_DD, "dense.bias": bias_D, "out.weight": out_1D, "out.bias": torch.zeros_like(b)}


def one_layer(named: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """What `two_layers` made, as the linear head again; None where the two layers compute something else."""
    dense_DD, bias_D = named["dense.weight"], named["dense.bias"]
    head = LinearHead(len(bias_D))
    with torch.no_grad():
        head.out.weight.copy_(dense_DD[:1])
        head.out.bias.copy_(bias_D[:1])
    same = all(torch.equal(named[name], t) for name, t in two_layers(head).items())
    return {name: p.detach() for name, p in head.named_parameters()} if same else None


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
