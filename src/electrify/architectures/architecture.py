"""What every architecture answers. Shape suffixes: B sequences, L length, T = B * L flat tokens, V
vocabulary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..model.attention import Direction
from ..model.embeddings import Words
from ..model.encoder import Encoder
from ..model.heads import BinaryHead, Head, HeadKind, LMHead
from ..model.shape import Shape
from ..tokens import Tokens
from .keys import KeyTable

WordVectors = Callable[[int], Tensor]  # dimensions K -> [V, K]


@dataclass(frozen=True)
class InitialValues:
    """Where weights start."""

    init: str
    local_amplitude: float
    vectors: WordVectors | None = None
    """The words' own vectors, where they do not start at random."""


class Architecture(ABC):
    """One kind of encoder. It is built from the parts in model/; its word table is
    `embeddings.words`."""

    name: ClassVar[str]
    shape_type: ClassVar[type[Shape]] = Shape

    # ---------------------------------------------------------------- the network

    def shape(self, numbers: Mapping[str, Any], *, vocab_size: int) -> Shape:
        """The shape from the numbers of a recipe; those that it does not have are left out."""
        known = {f.name for f in fields(self.shape_type)} - {"vocab_size"}
        return self.shape_type(
            vocab_size=vocab_size, **{name: n for name, n in numbers.items() if name in known}
        )

    @abstractmethod
    def embeddings(self, shape: Shape, *, dropout: float, words: Words | None = None) -> nn.Module:
        """Tokens -> [T, E]. `words` may be another model's table."""

    @abstractmethod
    def encoder(
        self,
        shape: Shape,
        embeddings: nn.Module,
        *,
        dropout: float,
        attention_dropout: float,
        direction: Direction = "both",
    ) -> Encoder:
        """The encoder over these embeddings, which may be another model's."""

    def lm_head(self, shape: Shape, words: Words) -> Head:
        """Hidden states -> a logit for each word."""
        return LMHead(shape, words)

    def binary_head(self, shape: Shape) -> Head:
        """Hidden states -> one logit."""
        return BinaryHead(shape)

    @abstractmethod
    def initialise(
        self,
        objective: nn.Module,
        encoders: Sequence[Encoder],
        values: InitialValues,
        rng: torch.Generator,
    ) -> None:
        """Initial values of all parts of `objective`. encoders: those in it, the kept one first."""

    # ---------------------------------------------------------------- in Hugging Face's library

    model_type: ClassVar[str]
    """The type of the configuration that it is exported with."""
    classes: ClassVar[dict[HeadKind, str]]
    """What it is exported as, by the kind of its head."""
    head_prefixes: ClassVar[dict[HeadKind, str]]
    """How the names of a head's weights begin there."""
    config_keys: ClassVar[tuple[str, ...]]
    """Sizes that its configuration must say, or the library takes those of another model."""

    @abstractmethod
    def hf_config(
        self, shape: Shape, kind: HeadKind, *, pad: int, dropout: float, attention_dropout: float
    ) -> Any:
        """The library's configuration of an exported network."""

    @abstractmethod
    def shape_of(self, config: Any) -> Shape:
        """The shape of a folder with this configuration of the library, of one of the `model_types`
        of its row."""

    @abstractmethod
    def must_compute_the_same(self, start: str, config: Any) -> None:
        """Raises UserError where a model of this configuration computes something that ours does
        not. start: its name, for the sentence."""

    @abstractmethod
    def table(self, shape: Shape, kind: HeadKind, *, model_type: str | None = None) -> KeyTable:
        """The class that a network with such a head is exported as. model_type: that of a folder to
        start from."""

    def head_tensors(self, head: Head) -> dict[str, Tensor]:
        """A head's parameters under our names in `table`: those themselves where they are ours,
        else values."""
        return head.tensors()

    @torch.no_grad()
    def fill_head(self, head: Head, named: Mapping[str, Tensor]) -> list[str]:
        """Sets those of these names, as `head_tensors` names them; returns the names that the head
        cannot hold."""
        own = head.tensors()
        for name, t in named.items():
            own[name].copy_(t)
        return []

    def inputs(self, tokens: Tokens) -> dict[str, Tensor]:
        """[B, L] the library's arguments for a batch with one sequence a row."""
        named = {
            "input_ids": tokens.ids_T,
            "attention_mask": tokens.real_T.long(),
            "token_type_ids": tokens.segment_T,
        }
        return {name: t.view(-1, tokens.row_length) for name, t in named.items()}

    def binary_logits(self, output: Any) -> Tensor:
        """[B, L] the one logit of a binary head, from what the library's class gives."""
        return output.logits

    binary_code: ClassVar[str] = "model(**inputs).logits"
    """The same as a line of code for model cards."""
