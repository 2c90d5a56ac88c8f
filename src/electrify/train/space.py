"""Whether the disk of a run has space for its checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..config.pretrain import TrainConfig
from ..console import size
from ..errors import UserError
from .checkpoint import numbered
from .contents import contents_of, why_bad


def must_have_room(
    folder: Path, config: TrainConfig, parameters: int, *, step: int, milestones: frozenset[int]
) -> None:
    """Raises UserError if the disk cannot hold the checkpoints that the run will keep, and the next
    one besides. Those that it already keeps, and will replace, need no further space."""
    if step == config.max_steps:
        return
    one = 12 * parameters  # parameters and two moments in float32
    if config.save_total_limit is None:  # all are kept, and none is replaced
        to_come = -(-(config.max_steps - step) // config.save_steps)
        require_space(folder, min(10, to_come) * one)
        return
    saves = -(-config.max_steps // config.save_steps)
    copies = min(config.save_total_limit, saves) + 1
    there = sum(
        entry.bytes
        for found in numbered(folder)
        if found.step not in milestones and why_bad(found.path, hashes=False) is None
        for entry in contents_of(found.path).files.values()
    )
    require_space(folder, max(one, copies * one - there))


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raises UserError if the disk of `folder` (which need not exist yet) has less free space. This
    is checked before the first update, so that a run does not fail after a night of training."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < bytes_needed:
        raise UserError(
            f"{folder} has {size(free, digits=2)} free, the checkpoints of this run need "
            f"{size(bytes_needed, digits=2)}; "
            "free some space, choose another --output-dir or a smaller --save-total-limit"
        )
