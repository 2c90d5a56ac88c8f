"""A network that a run exports as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from ..model.embeddings import DisentangledWords
from ..model.heads import Network
from .architecture import Architecture
from .keys import KeyTable

WORDS = "encoder.embeddings.words.weight"


@dataclass(frozen=True)
class ExportedModel(Network):
    """A network, with the architecture that knows its counterpart in the library."""

    architecture: Architecture

    def table(self, *, model_type: str | None = None) -> KeyTable:
        """The key table of the class that it is exported as. model_type: given for a folder to
        start from."""
        return self.architecture.table(self.encoder.shape, self.head.kind, model_type=model_type)

    def must_have_a_class(self, part: str) -> None:
        """Raises UserError if the class of the library has no place for what the network learns.
        This is checked before it is trained."""
        table = self.table()
        odd = {row.ours for row in table.rows} ^ self.parameters().keys()
        if odd:
            raise UserError(
                f"{part} could not be exported: {table.name} of architecture "
                f"{self.architecture.name} has no {type(self.head).__name__} ({min(odd)})"
            )

    def parameters(self) -> dict[str, Tensor]:
        """The parameters under the names of the tables: the parameters themselves if we have them
        in that form, else computed values (a disentangled word table as its sum, a head as the
        layers of the library that compute the same). The word table, which an LM head reads as
        well, is listed once."""
        words = self.encoder.embeddings.words
        named: dict[str, Tensor] = {
            f"encoder.{name}": p for name, p in self.encoder.named_parameters()
        }
        if isinstance(words, DisentangledWords):
            named = {
                name: p
                for name, p in named.items()
                if not name.startswith("encoder.embeddings.words.")
            }
            named[WORDS] = words.weight.detach()
        return named | {
            f"head.{name}": t for name, t in self.architecture.head_tensors(self.head).items()
        }

    @torch.no_grad()
    def fill(self, named: Mapping[str, Tensor]) -> list[str]:
        """Sets the parameters of these names, as `parameters` names them, and returns the names
        that the network cannot hold: its head may be of another form."""
        own = self.parameters()
        words = self.encoder.embeddings.words
        head = {
            name.removeprefix("head."): t for name, t in named.items() if name.startswith("head.")
        }
        left = [f"head.{name}" for name in self.architecture.fill_head(self.head, head)]
        for name, t in named.items():
            if name == WORDS and isinstance(words, DisentangledWords):
                words.delta_VE.copy_(t - words.base.weight)
            elif not name.startswith("head."):
                own[name].copy_(t)
        return left
