"""One object for each architecture: how its encoder is built from the parts in model/, where its
weights start, and what it is in Hugging Face's library. Every other room asks the architecture and
never for a class of one.
"""

from __future__ import annotations

import importlib

from ..config.architectures import ARCHITECTURES
from .architecture import Architecture


def architecture_named(name: str) -> Architecture:
    module, cls = ARCHITECTURES[name].cls.split(":")
    found = getattr(importlib.import_module(module), cls)()
    assert isinstance(found, Architecture)
    return found


def reading(model_type: str) -> Architecture | None:
    """The architecture that runs may start from folders of this `model_type` with; None where there
    is none."""
    for name, row in ARCHITECTURES.items():
        if model_type in row.model_types:
            return architecture_named(name)
    return None


def exported_as(model_type: str) -> Architecture | None:
    """The architecture whose networks are exported with this `model_type`; None where there is
    none."""
    for name, row in ARCHITECTURES.items():
        if row.model_types[0] == model_type:
            return architecture_named(name)
    return None
