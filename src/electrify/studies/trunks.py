"""Which checkpoint of a longer run a cell starts from, as far as it is there."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from ..errors import UserError
from ..progress import say
from ..train import checkpoint
from .cell import RUN
from .plan import Cell
from .results import Key
from .study import CELLS, Study, folder_name, key_of


def home_of(study: Study, cell: Cell) -> Path:
    """The folder of a cell."""
    return study.out / CELLS / folder_name(cell)


def trunk_of(study: Study, cell: Cell) -> Cell | None:
    """The longest run of the cell's recipe and seed, from which it starts."""
    if cell.starts_at is None:
        return None
    same = [c for c in study.cells if (c.entry, c.seed) == (cell.entry, cell.seed)]
    return max(same, key=lambda c: c.steps)


def start_of(study: Study, cell: Cell) -> Path | None:
    """The checkpoint from which the cell starts, if it is there. It is not verified."""
    trunk = trunk_of(study, cell)
    if trunk is None or cell.starts_at is None:
        return None
    run = home_of(study, trunk) / RUN
    found = cell.starts_at in checkpoint.steps(run)
    return checkpoint.folder_of(run, cell.starts_at) if found else None


def sound_start_of(study: Study, cell: Cell) -> Path | None:
    """As `start_of`, with every hash verified: the cell itself could only fail on a damaged one, at
    every further attempt, too."""
    start = start_of(study, cell)
    try:
        if start is not None:
            checkpoint.read_state(start)
    except UserError as e:
        say(f"warning: {e}; {folder_name(cell)} does not start from it")
        return None
    return start


def as_it_comes(study: Study, cell: Cell, done: Container[Key]) -> Cell:
    """The cell, without `starts_at` if it is going to be run whole: because it has begun so, or
    because its trunk is past that update and kept no checkpoint there. done: the cells that need
    not be run."""
    trunk = trunk_of(study, cell)
    if trunk is None:
        return cell
    at, own = cell.starts_at or 0, saved_step(study, cell)
    if own:
        starts = own >= at
    else:
        passes = key_of(trunk) not in done and saved_step(study, trunk) <= at
        starts = passes or start_of(study, cell) is not None
    return cell if starts else replace(cell, starts_at=None)


def saved_step(study: Study, cell: Cell) -> int:
    """The update of the newest checkpoint that a cell has, which may be damaged; 0 if it has
    none."""
    return max(checkpoint.steps(home_of(study, cell) / RUN), default=0)
