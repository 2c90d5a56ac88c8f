"""What the tables of objectives, corruptors and architectures share. Free of torch."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import UserError, nearest
from .given import Checked

Logits = Literal["token", "replaced", "energy", "choice"]
"""What a head says: the token that should stand there, log-odds that it was replaced, an energy, or
scores of tokens that compare a few candidates."""

OWN_ROWS = "ELECTRIFY_ROWS"
"""The environment variable that names modules with rows of one's own (own_rows.py)."""


def is_ours(place: str) -> bool:
    """Whether a module, or `module:Class`, is of this package."""
    return place.split(":")[0].split(".")[0] == __name__.partition(".")[0]


def class_at(place: str, owner: str) -> Any:
    """The class of a row: `module:Class`. Raises UserError if there is none. owner: the row, as the
    message names it."""
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if not f"{module}.".startswith(f"{e.name}."):  # one that it imports
            raise
        raise UserError(
            f"{owner}: its row names {place}, and there is no module {e.name}; correct the row, or "
            "put the module's folder on PYTHONPATH"
        ) from e
    if not hasattr(found, name):
        classes = [one for one, value in vars(found).items() if isinstance(value, type)]
        raise UserError(
            f"{owner}: its row names {place}, and {module} has no {name!r}{nearest(name, classes)}"
        )
    return getattr(found, name)


def made(row: Any, owner: str, parts: Any, options: Any) -> Any:
    """What the class of a row builds of these parts. Raises UserError if it has no method for that,
    or one that does not take the row's own options."""
    build, own = getattr(class_at(row.cls, owner), "build", None), vars(options)
    if not callable(build):
        raise UserError(f"{owner}: {row.cls} has no class method build(parts, **options); add one")
    try:
        inspect.signature(build).bind(parts, **own)
    except TypeError as e:
        raise UserError(
            f"{owner}: the method build of {row.cls} does not take the options of its row ({e}); "
            "make the two agree"
        ) from e
    return build(parts, **own)


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
