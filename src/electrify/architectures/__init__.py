"""One object for each architecture: how its encoder is built from the parts in model/, its initial
values, and its counterpart in Hugging Face's library. Other packages ask this object and never
check for the class of an architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..methods import class_at, row_of, rows_of
from ..recipe import DEFAULTS
from .architecture import Architecture


def architecture_named(name: str, options: Mapping[str, Any] | None = None) -> Architecture:
    """options: its own, by default those of a recipe that states none."""
    row = row_of("architecture", name)
    usual = {option: DEFAULTS[option] for option in row.options}
    return class_at(row.cls)({**usual, **(options or {})})


def known() -> list[str]:
    """The shipped architectures, and the imported classes of one's own."""
    own, below = list[str](), [Architecture]
    while below:
        cls = below.pop()
        below += cls.__subclasses__()
        own += [f"{cls.__module__}:{cls.__name__}"] * hasattr(cls, "called")
    return [*rows_of("architecture"), *own]


def exported_as(model_type: str) -> Architecture | None:
    """The architecture whose networks are exported with this `model_type`, or None."""
    for name in known():
        if row_of("architecture", name).model_types[0] == model_type:
            return architecture_named(name)
    return None


def class_in(config: Any) -> Any:
    """The class that a folder's configuration names: the library's, or ours where it has none. None
    if it names none that is known."""
    import transformers

    name, known = next(iter(config.architectures or ()), ""), exported_as(config.model_type)
    if known is not None:
        return known.for_folder(config).network_class(name)
    return getattr(transformers, name, None)
