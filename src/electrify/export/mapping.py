"""Our networks <-> tensors under the names of key tables (architectures/keys.py)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..model.embeddings import DisentangledWords
from ..model.exported import ExportedModel

WORDS = "encoder.embeddings.words.weight"


def parameters_of(model: ExportedModel) -> dict[str, Tensor]:
    """The network's parameters under the names of the tables: those themselves where they are ours, else values (a
    disentangled word table as its sum, a linear head as the two layers that compute it). The word table, which an LM head
    reads again, is there once."""
    words = model.encoder.embeddings.words
    named: dict[str, Tensor] = {f"encoder.{name}": p for name, p in model.encoder.named_parameters()}
    if isinstance(words, DisentangledWords):
        named = {name: p for name, p in named.items() if not name.startswith("encoder.embeddings.words.")}
        named[WORDS] = words.weight.detach()
    return named | {f"head.{name}": t for name, t in model.head.exported().items()}


@torch.no_grad()
def fill(model: ExportedModel, named: Mapping[str, Tensor]) -> list[str]:
    """Sets the parameters of these names, as `parameters_of` names them, and returns the names that the network cannot
    hold: its linear head cannot be the two layers of another objective."""
    own, words = parameters_of(model), model.encoder.embeddings.words
    head = {name.removeprefix("head."): t for name, t in named.items() if name.startswith("head.")}
    left = [f"head.{name}" for name in model.head.fill(head)]
    for name, t in named.items():
        if name == WORDS and isinstance(words, DisentangledWords):
            words.delta_VE.copy_(t - words.base.weight)
        elif not name.startswith("head."):
            own[name].copy_(t)
    return left
