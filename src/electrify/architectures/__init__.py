"""One object for each architecture: how its encoder is built from the parts in model/, its initial
values, and its counterpart in Hugging Face's library. Other packages ask this object and never
check for the class of an architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..recipe import DEFAULTS
from ..tables import class_at, row_of, rows_of
from .architecture import Architecture


def architecture_named(name: str, options: Mapping[str, Any] | None = None) -> Architecture:
    """options: its own, by default those of a recipe that states none."""
    row = row_of("architecture", name)
    usual = {option: DEFAULTS[option] for option in row.options}
    return class_at(row.cls)({**usual, **(options or {})})


def known() -> list[str]:
    """The shipped architectures, and the imported classes of one's own."""
    own = [cls for cls in Architecture.__subclasses__() if hasattr(cls, "called")]
    return [*rows_of("architecture"), *(f"{cls.__module__}:{cls.__name__}" for cls in own)]


def reading(model_type: str) -> Architecture | None:
    """The architecture with which a run may start from folders of this `model_type`, or None."""
    for name in known():
        if model_type in row_of("architecture", name).model_types:
            return architecture_named(name)
    return None


def exported_as(model_type: str) -> Architecture | None:
    """The architecture whose networks are exported with this `model_type`, or None."""
    for name in known():
        if row_of("architecture", name).model_types[0] == model_type:
            return architecture_named(name)
    return None
