"""An encoder that receives its parts as arguments, so that weights are shared by passing the same
object twice.

Shape suffixes: T flat tokens, E embedding width, D hidden width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..tokens import Tokens
from ..values import ParameterKind
from . import costs
from .attention import Direction
from .costs import linear_flops
from .embeddings import Added, DisentangledWords, Shape


class Contexts(Protocol):
    """Makes the attention context of a batch, once for all blocks; each block takes from it what it
    needs."""

    def __call__(self, tokens: Tokens, dtype: torch.dtype, *, training: bool) -> Any: ...

    def take(self, shape: Any) -> None:
        """Replaces what it knows of the encoder's shape by that of another one."""
        ...

    def once_flops(self, row_length: int) -> float:
        """FLOPs of what one block computes once in a forward pass, however many rows the batch
        has."""
        ...


class Encoder(nn.Module):
    """Tokens -> hidden states [T, D].

    embeddings: (Tokens, what is added to the word vectors, if anything is) -> [T, E], with the word
    table as `words` and its cost as `paper_flops`. project: [T, E] -> [T, D], if the widths differ.
    blocks: ([T, D], context) -> [T, D]. norm: applied to the last states, if the
    blocks normalise their inputs. direction: `left` or `right` if each token sees only itself and
    the tokens on that side of it.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        embeddings: nn.Module,
        blocks: Iterable[nn.Module],
        contexts: Contexts,
        project: nn.Linear | None = None,
        norm: nn.Module | None = None,
        direction: Direction = "both",
    ) -> None:
        super().__init__()
        self.shape = shape
        self.last_shape = shape
        self.shapes_by_rows: Mapping[int, Shape] = {}
        self.embeddings: Any = embeddings
        self.project = project
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.contexts = contexts
        self.direction: Direction = direction

    def for_rows(self, row_length: int) -> None:
        """Makes it the encoder of the phase of a run whose rows have this many tokens. No parameter
        of the shapes in `shapes_by_rows` differs; rows of other lengths have the last shape."""
        self.shape = self.shapes_by_rows.get(row_length, self.last_shape)
        self.contexts.take(self.shape)

    def embed(self, tokens: Tokens, added: Added | None = None) -> Tensor:
        """The input of the first block."""
        x_TD = self.embeddings(tokens) if added is None else self.embeddings(tokens, added)
        if self.project is not None:
            x_TD = self.project(x_TD)
        kind = x_TD.device.type
        # The residual stream has autocast's dtype from the start; if it were float32, every block
        # would cast it, forward and backward.
        return x_TD.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x_TD

    def context(self, tokens: Tokens, x_TD: Tensor) -> Any:
        """The attention context of a batch with these embeddings."""
        return self.contexts(tokens, x_TD.dtype, training=self.training)

    def through(self, x_TD: Tensor, context: Any, blocks: Iterable[nn.Module]) -> Tensor:
        """The states after these blocks."""
        for block in blocks:
            x_TD = block(x_TD, context)
        return x_TD

    def read(self, x_TD: Tensor) -> Tensor:
        """The states that a head reads, after the last block or an earlier one, in the dtype of the
        residual stream."""
        return x_TD if self.norm is None else self.norm(x_TD).to(x_TD.dtype)

    def forward(self, tokens: Tokens, added: Added | None = None) -> Tensor:
        x_TD = self.embed(tokens, added)
        return self.read(self.through(x_TD, self.context(tokens, x_TD), self.blocks))

    def hardware_flops(self, row_length: int) -> float:
        """FLOPs of the matrix products of a forward pass, for one token in a row of
        `row_length`."""
        blocks: Any = self.blocks
        return linear_flops(self) + sum(block.attention_flops(row_length) for block in blocks)

    def once_flops(self, row_length: int) -> float:
        """FLOPs of the matrix products of a forward pass that do not depend on the number of its
        rows."""
        return len(self.blocks) * self.contexts.once_flops(row_length)

    def sizes(self, row_length: int) -> costs.Sizes:
        """The sizes by which the paper's script describes it."""
        s = self.shape
        return costs.Sizes(
            width=s.hidden_size,
            layers=s.num_hidden_layers,
            length=row_length,
            vocab=s.vocab_size,
            embedding=s.embedding_size,
            feed_forward=s.intermediate_size,
            heads=s.num_attention_heads,
        )

    def paper_flops(self, row_length: int) -> float:
        """`hardware_flops` in the paper's convention (flop_counts.py)."""
        sizes = self.sizes(row_length)
        blocks: Any = self.blocks
        between = sum(block.paper_flops(sizes) for block in blocks)
        return self.embeddings.paper_flops(sizes) + between + self.norm_flops(sizes)

    def norm_flops(self, sizes: costs.Sizes) -> float:
        """The FLOPs of the last norm, in the paper's convention."""
        return 0 if self.norm is None else costs.NORM * sizes.width


class Top(nn.Module):
    """The blocks of an encoder from `depth` on, and its last norm: what a second branch costs."""

    def __init__(self, encoder: Encoder, depth: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.depth = depth

    def hardware_flops(self, row_length: int) -> float:
        blocks: Any = self.encoder.blocks[self.depth :]
        return sum(linear_flops(block) + block.attention_flops(row_length) for block in blocks)

    def once_flops(self, row_length: int) -> float:
        blocks = len(self.encoder.blocks) - self.depth
        return blocks * self.encoder.contexts.once_flops(row_length)

    def paper_flops(self, row_length: int) -> float:
        blocks: Any = self.encoder.blocks[self.depth :]
        sizes = self.encoder.sizes(row_length)
        return sum(block.paper_flops(sizes) for block in blocks) + self.encoder.norm_flops(sizes)


def encoders_of(module: nn.Module) -> list[Encoder]:
    """Every encoder in it, each once."""
    return [part for part in module.modules() if isinstance(part, Encoder)]


def matrices_of(module: nn.Module) -> dict[str, int]:
    """The weights of the linear layers in the blocks of its encoders, by name, each with the number
    of matrices that it holds one above the other (queries, keys and values: 3)."""
    stacked = {
        id(linear.weight): getattr(part, "stacked", {}).get(name, 1)
        for encoder in encoders_of(module)
        for part in encoder.blocks.modules()
        for name, linear in part.named_children()
        if isinstance(linear, nn.Linear)
    }
    return {n: stacked[id(p)] for n, p in module.named_parameters() if id(p) in stacked}


def kinds_of(module: nn.Module) -> dict[str, ParameterKind]:
    """The kind of each of its parameters, by name: see `lr_factors` in recipe.py."""
    tables = {
        id(p)
        for part in module.modules()
        if isinstance(part, nn.Embedding | DisentangledWords)
        for p in part.parameters()
    }
    inside = {id(p) for encoder in encoders_of(module) for p in encoder.parameters()}
    matrices = matrices_of(module)

    def kind(name: str, p: nn.Parameter) -> ParameterKind:
        if id(p) in tables:
            return "embeddings"
        if name in matrices:
            return "matrices"
        return "rest" if id(p) in inside else "heads"

    return {name: kind(name, p) for name, p in module.named_parameters()}


def for_rows(encoders: Iterable[Encoder], row_length: int) -> None:
    """Makes them those of the phase of a run whose rows have this many tokens."""
    for encoder in encoders:
        encoder.for_rows(row_length)
