"""Provokes faults on request, to test what a run survives:
ELECTRIFY_FAULT_AT=[ACTION:]POINT[@STEP[%RANK]][,...] in the environment.

Without the variable nothing happens. POINTS lists where a fault can occur, ACTIONS what it does
(kill if none is given).
"""

from __future__ import annotations

import errno
import math
import os
import signal

VARIABLE = "ELECTRIFY_FAULT_AT"
SAVE_POINTS = (
    "before_tmp",
    "mid_model",
    "mid_optimizer",
    "before_manifest",
    "before_rename",
    "after_rename",
    "during_rotation",
)
POINTS = {
    "prepare": ("collected", "tokenizer", "encoded", "joined", "before_data_manifest"),
    "pretrain": (
        "build",
        "header",
        "batch",
        "update",
        "validation",
        *SAVE_POINTS,
        "export",
        "replace",
    ),
}
SIGNALS = {
    "kill": signal.SIGKILL,  # like a power cut
    "stop": signal.SIGSTOP,  # like a machine that hangs
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "usr1": signal.SIGUSR1,
    "hup": signal.SIGHUP,  # like an ssh session that is closed
}
ERRORS = {"eio": errno.EIO, "enospc": errno.ENOSPC}
SPOILS = {"nan": math.nan, "spike": 100.0}  # factors for the number of the caller
ACTIONS = (*SIGNALS, *ERRORS, *SPOILS)


def at(point: str, step: int = 0) -> None:
    """Does what the environment asks for at this point of this process. step: the number of the
    update or the checkpoint, 0 elsewhere."""
    for action in asked(point, step):
        if action in SIGNALS:
            os.kill(os.getpid(), SIGNALS[action])
        elif action in ERRORS:
            raise OSError(ERRORS[action], os.strerror(ERRORS[action]))


def asked(point: str, step: int) -> list[str]:
    """The actions that are requested here; `at` does not do those in SPOILS. Raises ValueError for
    anything else."""
    wishes = os.environ.get(VARIABLE)
    if not wishes:
        return []
    here = {point, f"{point}@{step}", f"{point}@{step}%{os.environ.get('RANK', '0')}"}
    pairs = [
        (action or "kill", where)
        for action, _, where in (wish.rpartition(":") for wish in wishes.split(","))
    ]
    unknown = {action for action, _ in pairs} - set(ACTIONS)
    if unknown:
        raise ValueError(
            f"{VARIABLE}: {', '.join(sorted(unknown))}; known are {', '.join(ACTIONS)}"
        )
    return [action for action, where in pairs if where in here]
