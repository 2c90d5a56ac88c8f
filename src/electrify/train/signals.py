"""Stopping on request. While a run trains, a signal sets a flag; the loop sees the flag, saves and
ends. Elsewhere a signal ends the verb, and the same command continues it. A second signal ends the
process at once.

Under torchrun, a signal that a scheduler sends to every process arrives twice, because torchrun
passes its own on; that echo does not count as a second signal.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

SAVED_EXIT = (
    75  # EX_TEMPFAIL of sysexits.h, "try again": everything is saved, please start me again
)
ECHO_S = 3.0  # torchrun passes a signal on within .1 s, or later on a busy machine
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


class Heard:
    """A context manager inside which the first of SIGNALS calls `first`. The previous handlers are
    restored at its end.

    Outside the main thread Python allows no handlers, so it does nothing there. If SIGHUP was
    ignored before, it stays ignored: that is what `nohup` asks for.
    """

    def __init__(self) -> None:
        self.name = ""  # of the signal that came, e.g. "SIGTERM"
        self._came = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def first(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if threading.current_thread() is threading.main_thread():
            heard = [
                s for s in SIGNALS if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN
            ]
            self._before = {s: signal.signal(s, self._handle) for s in heard}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if (
            self.name
            and "TORCHELASTIC_RUN_ID" in os.environ
            and time.monotonic() - self._came < ECHO_S
        ):
            return
        if self.name:
            # Whoever sends two signals wants the process to die at once, without clean-up;
            # checkpoints are atomic.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.name = signal.Signals(number).name
        self._came = time.monotonic()
        self.first()

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class Stop(Heard):
    """Inside this context, a signal sets `requested`, for code that has something to save. While
    `at_once` is set it raises Stopped as elsewhere: in the first update of a process, which may
    compile for minutes, there is nothing to save."""

    def __init__(self, *, at_once: bool = False) -> None:
        super().__init__()
        self.at_once = at_once

    @property
    def requested(self) -> bool:
        return bool(self.name)

    def first(self) -> None:
        if self.at_once:
            raise Stopped(self.name)


class Interruptible(Heard):
    """Inside this context, a signal raises Stopped in the main thread."""

    def first(self) -> None:
        raise Stopped(self.name)
