"""Whether the disk of a run has space for its checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from ..config.pretrain import TrainConfig
from ..console import size
from ..errors import SpaceError
from ..oldfiles.run_folder import numbered
from .checkpoint import temporaries
from .contents import contents_of, why_bad


def sizes_of(parameters: Iterable[Tensor]) -> dict[str, int]:
    """How many numbers a checkpoint holds, and how many of them do not learn."""
    sizes = [(p.numel(), p.requires_grad) for p in parameters]
    return {
        "parameters": sum(n for n, _ in sizes),
        "frozen": sum(n for n, learns in sizes if not learns),
    }


def bytes_needed(
    folder: Path,
    config: TrainConfig,
    parameters: int,
    *,
    step: int,
    milestones: frozenset[int],
    frozen: int = 0,
) -> int:
    """The space for the checkpoints that a run will keep, and the next one besides. Those that it
    already keeps, and will replace, need no further space. milestones: the updates whose
    checkpoints are never replaced. frozen: how many of the parameters do not learn."""
    if step == config.max_steps:
        return 0
    # Parameters and two moments in float32; what does not learn has no moments.
    one = 12 * parameters - 8 * frozen
    left = left_behind(folder)
    kept = {at for at in milestones if step < at <= config.max_steps}
    if config.save_total_limit is None:  # all are kept, and none is replaced
        between = sum(at % config.save_steps > 0 and at < config.max_steps for at in kept)
        to_come = -(-(config.max_steps - step) // config.save_steps) + between
        return min(10, to_come) * one - left
    saves = -(-config.max_steps // config.save_steps)
    copies = min(config.save_total_limit, saves) + 1 + len(kept - {config.max_steps})
    there = sum(
        entry.bytes
        for found in numbered(folder)
        if found.step not in milestones and why_bad(found.path, hashes=False) is None
        for entry in contents_of(found.path).files.values()
    )
    return max(one, copies * one - there) - left


def left_behind(folder: Path) -> int:
    """Bytes that killed writers have left in the folder of a run, which the next save removes."""
    found = temporaries(folder) if folder.is_dir() else []
    return sum(p.stat().st_size for place in found for p in place.rglob("*") if p.is_file())


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raises UserError if the disk of `folder` (which need not exist yet) has less free space. This
    is checked before the first update, so that a run does not fail after a night of training."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < bytes_needed:
        raise SpaceError(
            f"{folder} has {size(free, digits=2)} free, the checkpoints of this run need "
            f"{size(bytes_needed, digits=2)}",
            "free some space, choose another --output-dir or a smaller --save-total-limit",
        )
