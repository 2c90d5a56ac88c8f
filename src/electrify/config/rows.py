"""What the tables of objectives, corruptors and architectures share. Free of torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from .given import Checked

Logits = Literal["token", "replaced", "energy", "choice"]
"""What a head says: the token that should stand there, log-odds that it was replaced, an energy, or
scores of tokens that compare a few candidates."""

OWN_ROWS = "ELECTRIFY_ROWS"
"""The environment variable that names modules with rows of one's own (own_rows.py)."""


def class_at(place: str) -> Any:
    """The class of a row: `module:Class`."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True, kw_only=True)
class NoOptions(Checked):
    """The options of a row that has none of its own."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A network that a run leaves beside the encoder that it is for, as the model card presents
    it."""

    title: str
    purpose: str
    """Sentences that say what it is and what it is for."""
    logits: Logits
    fills: bool
    """Whether it was trained on texts with [MASK], so that it can fill one."""
    same: bool = False
    """Whether its encoder is the one that the run is for, to the bit."""
