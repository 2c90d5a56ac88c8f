"""One row for each architecture, with everything that is known about it without building it. This
module does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .rows import NoOptions

Init = Literal["bert", "published", "local"]


@dataclass(frozen=True, kw_only=True)
class ArchitectureRow:
    """A new architecture is a file in architectures/, a row here, and recipes."""

    cls: str
    """Its class, as `module:Class`."""
    help: str
    """A clause that describes it, for the help of `--architecture`."""
    called: str
    """What the model card calls it: `ELECTRA's architecture`."""
    options: type = NoOptions
    """Its own options, which other architectures do not have: a frozen dataclass whose fields
    become flags."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """Returns a sentence if numbers of the model section and its own options cannot go together,
    else None."""
    inits: tuple[Init, ...]
    """The initialisations that it supports."""
    model_types: Sequence[str]
    """Each `model_type` that is read as this architecture; networks are exported with the first
    one.
    """


ARCHITECTURES: dict[str, ArchitectureRow] = {
    "electra": ArchitectureRow(
        cls="electrify.architectures.electra:Electra",
        help="the encoder of ELECTRA and BERT, post-norm with learned positions",
        called="ELECTRA's architecture",
        inits=("bert", "published", "local"),
        model_types=("electra", "bert"),
    ),
}


def architectures() -> dict[str, ArchitectureRow]:
    return ARCHITECTURES


def architecture_help() -> str:
    """The clauses of all rows."""
    return "; ".join(f"{name} = {row.help}" for name, row in ARCHITECTURES.items()) + "."
