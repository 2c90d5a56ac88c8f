"""Faults on request, for tests of what a run survives: ELECTRIFY_FAULT_AT=point[@step[%rank]][,...] in the environment. Without it nothing happens.

Points of a save (each kills the process, as a power cut would): before_tmp, mid_weights, before_manifest, before_rename, after_rename,
during_rotation. Points of an update: nan (its loss is not a number; step is then the number of the batch, which a rollback leaves behind).
"""

from __future__ import annotations

import os
import signal


def wanted(point: str, step: int) -> bool:
    """Whether a fault is asked for here, in this process."""
    asked = os.environ.get("ELECTRIFY_FAULT_AT")
    if not asked:
        return False
    names = {point, f"{point}@{step}", f"{point}@{step}%{os.environ.get('RANK', '0')}"}
    return not names.isdisjoint(asked.split(","))


def kill(point: str, step: int) -> None:
    """Ends this process without any clean-up where that is asked for."""
    if wanted(point, step):
        os.kill(os.getpid(), signal.SIGKILL)
