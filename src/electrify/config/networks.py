"""The networks that a run leaves, each in a folder of its own: the encoder that the run is for, and
those that the rows of its objective and of its corruptor name. Free of torch."""

from __future__ import annotations

from .corruptors import CORRUPTORS
from .objectives import OBJECTIVES
from .pretrain import PretrainConfig
from .rows import Exported

# The folder of the encoder that a run is for, whatever its objective.
KEPT = "discriminator"


def beside(config: PretrainConfig) -> dict[str, Exported]:
    """The networks that a run of this recipe leaves beside the one that it is for."""
    o = config.objective
    return o.row.leaving(o.term_weights, o.options) | config.corruption.row.leaves


def every_one_beside() -> dict[str, Exported]:
    """The networks that any recipe leaves beside the one that it is for."""
    rows = [*OBJECTIVES.values(), *CORRUPTORS.values()]
    return {name: its for row in rows for name, its in row.leaves.items()}


def network_names() -> tuple[str, ...]:
    """The names of the folders that a run may leave, whatever its recipe."""
    return (KEPT, *every_one_beside())


def part_help() -> str:
    """The help of `export --part`."""
    others = every_one_beside().items()
    shown = "; ".join(f"{name} = the {its.title} beside it" for name, its in others)
    return f"{KEPT} = the encoder that the run is for (of a bert run too); {shown}."
