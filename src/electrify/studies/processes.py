"""Starts the processes of cells, each on its core or GPU and in its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from ..errors import UserError
from .cell import Work

CELL = [sys.executable, "-P", "-m", "electrify.studies.cell"]
PACKAGE = str(Path(__file__).resolve().parents[2])
VISIBLE = "CUDA_VISIBLE_DEVICES"
# A cell is a run of one process, whatever started this one.
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def spawn(work: Work, log: IO[bytes], slot: int | None, device: str) -> subprocess.Popen[bytes]:
    """Starts a cell. log: takes what it says; it may be closed behind this."""
    process = subprocess.Popen(
        CELL,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=environment(slot, device),
        start_new_session=True,  # Ctrl-C reaches this process only, which passes it on
    )
    assert process.stdin is not None
    # A process that ends at once is found by its status.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(asdict(work)).encode())
    return process


def slots(processes: int, device: str) -> list[int | None]:
    """A core or a GPU for each process that runs side by side; None leaves the core to the system.
    Raises UserError for more than there are."""
    number = gpus(device)
    if number:
        if processes > number:
            raise UserError(f"processes: there are {number} GPUs, not {processes}")
        return list(range(processes))
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not cores:
        return [None] * processes
    if processes > len(cores):
        raise UserError(f"processes: there are {len(cores)} cores, not {processes}")
    # A single one needs no core of its own, and on the first one it would meet those of other
    # studies.
    return [None] if processes == 1 else list(cores[:processes])


def gpus(device: str) -> int:
    """The number of GPUs that `device` allows."""
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def environment(slot: int | None, device: str) -> dict[str, Any]:
    """The variables of a cell's process: one thread, or one GPU."""
    own = {k: v for k, v in os.environ.items() if k not in RANKS}
    # The current folder is not searched for modules (-P); the package is found where it is now.
    places = [PACKAGE, own.get("PYTHONPATH")]
    own["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    return own | ({VISIBLE: _gpu(slot)} if gpus(device) else {"OMP_NUM_THREADS": "1"})


def _gpu(slot: int | None) -> str:
    """The name of a GPU, of those that this process may use."""
    names = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return names[slot] if slot is not None and slot < len(names) else str(slot)
