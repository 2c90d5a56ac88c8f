"""This process: what signals do to it, how many cores and threads it may use, how idle threads
wait.

While a run trains, a signal sets a flag; the loop sees the flag, saves and ends. Elsewhere a signal
ends the command (cli.RESUMED can be repeated to resume). A second one ends the process at once.

This module does not import torch, because libgomp reads the environment when it is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self

from .errors import UserError

# ------------------------------------------------------------------ stopping

# EX_TEMPFAIL of sysexits.h, "try again": everything is saved, please start me again
SAVED_EXIT = 75
# These come from schedulers, Ctrl-C, Slurm's `--signal=USR1@60`, and a terminal or ssh session that
# is closed.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


def status_of_stop(*, signalled: bool) -> int:
    """The status of a process that has saved before the end of its run. A torchrun with
    --max-restarts restarts at once whatever ends with another status than 0, which is right for a
    host that is taken away, but not for a time that is over (--max-minutes)."""
    again = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    return SAVED_EXIT if signalled or again == "0" else 0


class Stopped(KeyboardInterrupt):
    """Raised when a signal comes while nothing has to be saved. Its text is the signal's name."""


class Stop:
    """A context in which the first of SIGNALS sets `name`, for code that has something to save.
    While `at_once` is set it raises Stopped in the main thread: in a command outside its loop, or
    in the first update of a run, which may compile for minutes."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.name = ""  # of the signal that came, e.g. "SIGTERM"
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        return bool(self.name)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows no others
            self._before = {s: signal.getsignal(s) for s in SIGNALS}
            for number, handler in self._before.items():
                # `nohup` asks for a SIGHUP that is ignored.
                if number != signal.SIGHUP or handler != signal.SIG_IGN:
                    signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self.name:
            self.name = signal.Signals(number).name
            if self.at_once:
                raise Stopped(self.name)
        # torchrun passes on a signal that its processes have had already, and kills them itself
        # after half a minute.
        elif "TORCHELASTIC_RUN_ID" not in os.environ:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# ------------------------------------------------------------------ cores and threads

# Between two pieces of parallel work, a thread of libgomp spins, by default 300,000 times (20
# milliseconds if a pause takes 140 cycles). If another process also wants the core, the thread that
# has work to do does not get it during that time: two threads were 10 to 25 times slower than one.
# Threads that sleep at once (OMP_WAIT_POLICY=passive) lose a quarter of the rate on an idle
# machine, and 10,000 spins lose beside busy processes: research/log.md, electra-tiny on two cores.
SPINS = "1000"
# The OpenMP of Intel and LLVM (macOS, conda) spins 200 milliseconds by default. Not measured here:
# the smallest integer that still spins.
BLOCK_MS = "1"
OWN_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def wait_briefly() -> None:
    """Tells OpenMP in this process, and in those that it starts, to spin only briefly, unless the
    user has chosen a setting (OWN_CHOICES), or torch is already loaded and no longer reads it."""
    if "torch" not in sys.modules and not any(name in os.environ for name in OWN_CHOICES):
        os.environ["GOMP_SPINCOUNT"] = SPINS
        os.environ["KMP_BLOCKTIME"] = BLOCK_MS


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
