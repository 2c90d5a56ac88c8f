"""One row for each architecture: what is said of it without building anything. Free of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .objectives import NoOptions

Init = Literal["bert", "published", "local"]


@dataclass(frozen=True, kw_only=True)
class ArchitectureRow:
    """A new architecture is a file in architectures/, a row here, and recipes."""

    cls: str
    """Where its class lies, `module:Class`."""
    help: str
    """What it is, in a clause for the help of `--architecture`."""
    options: type = NoOptions
    """Numbers that others do not have, a frozen dataclass whose fields are bare flags."""
    check: Callable[[Any, Any], str | None] = lambda model, options: None
    """A sentence about numbers of the model section and own ones that cannot go together, None
    where they can."""
    inits: tuple[Init, ...]
    """Initial values that are known for it."""
    model_types: Sequence[str]
    """`model_type` of the configurations that are read as it; the first is what it is exported as.
    """


ARCHITECTURES: dict[str, ArchitectureRow] = {
    "electra": ArchitectureRow(
        cls="electrify.architectures.electra:Electra",
        help="the encoder of ELECTRA and BERT, post-norm with learned positions",
        inits=("bert", "published", "local"),
        model_types=("electra", "bert"),
    ),
}


def architectures() -> dict[str, ArchitectureRow]:
    return ARCHITECTURES


def architecture_help() -> str:
    """The clauses of all rows."""
    return "; ".join(f"{name} = {row.help}" for name, row in ARCHITECTURES.items()) + "."
