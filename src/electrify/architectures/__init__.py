"""One object for each architecture: how its encoder is built from the parts in model/, its initial
values, and its counterpart in Hugging Face's library. Other rooms ask this object and never check
for the class of an architecture.
"""

from __future__ import annotations

from typing import Any

from ..config.architectures import ARCHITECTURES
from ..config.rows import class_at
from .architecture import Architecture
from .fine_tuned import FineTunedHead


def architecture_named(name: str, options: Any = None) -> Architecture:
    """options: its own, by default those of its row."""
    row = ARCHITECTURES[name]
    found = class_at(row.cls, f"architecture {name}")(row.options() if options is None else options)
    assert isinstance(found, Architecture)
    return found


def reading(model_type: str) -> Architecture | None:
    """The architecture with which a run may start from folders of this `model_type`, or None."""
    for name, row in ARCHITECTURES.items():
        if model_type in row.model_types:
            return architecture_named(name)
    return None


def exported_as(model_type: str) -> Architecture | None:
    """The architecture whose networks are exported with this `model_type`, or None."""
    for name, row in ARCHITECTURES.items():
        if row.model_types[0] == model_type:
            return architecture_named(name)
    return None


def fine_tuned_heads() -> dict[str, FineTunedHead]:
    """The heads of fine-tuned models, by the `model_type` of their folders."""
    return {
        kind: head
        for name in ARCHITECTURES
        for kind, head in architecture_named(name).fine_tuned.items()
    }
