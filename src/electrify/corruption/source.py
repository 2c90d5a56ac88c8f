"""What a corruptor is built from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..architectures.architecture import Architecture
from ..model.embeddings import Words, own_table
from ..model.encoder import Encoder
from ..model.heads import Head
from ..model.shape import Shape
from ..tokens import SpecialIds
from .choosing import Chooser
from .sampling import Sampling


@dataclass(frozen=True)
class Brought:
    """What the networks of a learned corruptor are built from."""

    architecture: Architecture
    shape: Shape
    """The generator's, or that of each of its parts."""
    embeddings: nn.Module
    """The embeddings that every encoder made here reads, perhaps shared with the encoder that is
    discriminator."""
    dropout: dict[str, Any]
    discriminator: Encoder
    """The discriminator."""
    tied: int = 0
    """How many of its lowest blocks the generator shares; if all, it is itself the generator."""

    def encoder(self, **how: Any) -> Encoder:
        """An encoder of the generator's shape. how: `direction` of a tower."""
        if (
            self.tied
            and self.tied == len(self.discriminator.blocks) == self.shape.num_hidden_layers
        ):
            return self.discriminator
        if self.tied:
            how = how | {"lower": self.discriminator, "tied": self.tied}
        return self.architecture.encoder(self.shape, self.embeddings, **how, **self.dropout)

    def lm_head(self, *, encoders: int = 1) -> Head:
        """A language model's head over the generator's word table, which reads the states of this
        many encoders side by side."""
        width = encoders * self.shape.hidden_size
        return self.architecture.lm_head(replace(self.shape, hidden_size=width), self.words)

    def masked_lm_head(self) -> Head:
        """The head of a network that is a masked language model and nothing else."""
        return self.architecture.masked_lm_head(self.shape, self.words)

    @property
    def words(self) -> Words:
        """The generator's word table."""
        return own_table(self.embeddings.words)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a corruptor is built from."""

    chooser: Chooser
    special: SpecialIds
    vocab_size: int
    counts_V: Tensor | None
    """[V] how often each token occurs in the corpus; None if nothing is trained."""
    mask_mix: tuple[float, ...]
    """Shares of the chosen tokens that are shown as [MASK], unchanged, random."""
    sampling: Sampling
    trains: bool
    """Whether a learned corruptor learns beside the objective."""
    brought: Brought | None
    """None for a corruptor whose row is not `learned`."""

    @property
    def networks(self) -> Brought:
        assert self.brought is not None
        return self.brought
