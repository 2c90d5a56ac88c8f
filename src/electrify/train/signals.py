"""Stopping on request: a signal sets a flag, the loop looks at the flag, saves and leaves. A second signal ends the process at once.

Under torchrun a signal that a scheduler sends to every process comes twice, once more from torchrun itself: that echo is no second wish.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

SAVED_EXIT = 75  # EX_TEMPFAIL of sysexits.h, "try again": everything is saved, please start me again
ECHO_S = 3.0  # torchrun passes a signal on within a tenth of a second, later on a busy machine
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # schedulers, Ctrl-C, Slurm's `--signal=USR1@60`


class Stop:
    """A context manager inside which SIGTERM, SIGINT and SIGUSR1 set `requested` and do nothing else.

    The handlers of before come back on leaving. Outside the main thread Python allows no handlers: there it is inert and `requested` stays False.
    """

    def __init__(self) -> None:
        self.requested = False
        self.name = ""  # of the signal that came, e.g. "SIGTERM"
        self._came = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._handle) for s in SIGNALS}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self._came < ECHO_S:
            return
        if self.requested:
            # Dying of the signal itself, without clean-up, is what whoever sends two of them wants; checkpoints are atomic.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.requested, self.name, self._came = True, signal.Signals(number).name, time.monotonic()

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
