"""The networks that a run leaves, each in a folder of its own: the encoder that it is for, and
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
    return config.objective.row.leaves | config.corruption.row.leaves


def network_names() -> tuple[str, ...]:
    """The names of the folders that a run may leave, whatever its recipe."""
    rows = [*OBJECTIVES.values(), *CORRUPTORS.values()]
    return tuple(dict.fromkeys([KEPT, *(name for row in rows for name in row.leaves)]))


def part_help() -> str:
    """The help of `export --part`."""
    rows = [*OBJECTIVES.values(), *CORRUPTORS.values()]
    others = {name: its.title for row in rows for name, its in row.leaves.items()}
    shown = "; ".join(f"{name} = the {title} beside it" for name, title in others.items())
    return f"{KEPT} = the encoder that the run is for (of a bert run too); {shown}."
