"""Stopping on request. While a run trains, a signal sets a flag; the loop sees the flag, saves and
ends. Elsewhere a signal ends the command, which resumes when it is repeated. A second signal ends
the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

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
    While `at_once` is set it raises Stopped in the main thread: in a command that resumes when
    it is repeated, or in the first update of a run, which may compile for minutes."""

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
