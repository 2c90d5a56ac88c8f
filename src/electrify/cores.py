"""How many cores there are, how many threads are asked for, and how idle threads wait. This module
does not import torch, because libgomp reads the environment when it is loaded.

Between two pieces of parallel work, a thread of libgomp spins, by default 300,000 times (20
milliseconds if a pause takes 140 cycles). If another process also wants the core, the thread that
has work to do does not get it during that time: two threads were 10 to 25 times slower than one.
"""

from __future__ import annotations

import os
import sys

from .errors import UserError

# Threads that sleep at once (OMP_WAIT_POLICY=passive) lose a quarter of the rate on an idle
# machine, and 10,000 spins lose beside busy processes: research/log.md, electra-tiny on two cores.
SPINS = "1000"
# The OpenMP of Intel and LLVM (macOS, conda) spins 200 milliseconds by default. Not measured here:
# the smallest integer that still spins.
BLOCK_MS = "1"
OWN_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def wait_briefly() -> bool:
    """Tells OpenMP in this process, and in those that it starts, to spin only briefly. Returns
    whether it did.

    It does not if the user has chosen a setting (OWN_CHOICES), or if torch is already loaded and no
    longer reads it.
    """
    if "torch" in sys.modules or any(name in os.environ for name in OWN_CHOICES):
        return False
    os.environ["GOMP_SPINCOUNT"] = SPINS
    os.environ["KMP_BLOCKTIME"] = BLOCK_MS
    return True


def cores() -> int:
    """Cores that this process may use (a container or taskset may allow fewer than there are)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(text: str) -> int | None:
    """The value of --threads as a number; None for auto. Raises UserError if it is neither."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise UserError(f"threads must be auto or a number from 1, not {text[:60]!r}")
    return int(text)
