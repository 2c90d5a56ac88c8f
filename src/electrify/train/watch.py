"""Finds out which of several processes does not answer, and handles signals that a process cannot
hear while it waits for another.

A thread in each process writes a sign of life into the common store: a number that grows, and the
number of exchanges (collective operations) that its main thread has begun. A process that waits
long reads those of the others. torch itself only says that an exchange did not finish, and only
when its timeout is over.

While the main thread waits inside torch, Python runs no signal handler, but the number of the
signal still arrives through `set_wakeup_fd`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as td

from ..progress import say
from .signals import SAVED_EXIT, SIGNALS

BEAT_S = 2.0  # between two signs of life
LOOK_S = 3.0  # an exchange lasts milliseconds: a process that waits longer checks the others
SILENT_S = 10.0  # five missing signs: longer than any call of ours that holds Python's lock
SURE_S = 5.0  # if one of them is known to be lost: two missing signs
SAY_S = 30.0  # before the first message about waiting; the next comes after twice the time
MOST_S = 600.0  # at most between two messages
TICK_S = 0.25  # between two checks of the clock
DEAF_S = 1.5  # if the main thread has not reacted to a signal by then, it is inside torch
# The store answers within a millisecond; at the end of a run we do not wait longer for a thread.
STORE_S = 5.0
NAMED = 8  # processes that a message names


@dataclass
class Life:
    """What is known about another process."""

    signs: int = -1
    entered: int = 0
    who: str = ""
    since: float = 0.0
    """The time, on the clock of time.monotonic(), when its number of signs was last seen to
    grow."""


class Watch:
    """The watching threads of this process. `forming` and `exchange` tell them what the main thread
    does."""

    def __init__(self, store: td.Store, *, rank: int, size: int, keeper: int | None) -> None:
        """store: a connection of its own to the store. keeper: the rank whose process keeps the
        store, None if that is another process (torchrun)."""
        self.store = store
        self.rank = rank
        self.size = size
        self.keeper = keeper
        self.lives = {r: Life() for r in range(size) if r != rank}
        self._entered = 0
        self._inside = False
        self._forming = False
        self._moved = time.monotonic()
        self._signs = 0
        self._looking = False
        self._store_lost = False
        self._beat()  # so that the others know this process from the first moment
        self._asked: tuple[int, float] | None = None
        self._next_line = SAY_S
        self._mine, self._wakeup = socket.socketpair()
        for end in (self._mine, self._wakeup):
            end.setblocking(False)
        self._before: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self._over = threading.Event()
        self._answered = time.monotonic()  # the store did then
        # The store needs a thread of its own, because a request to a store whose process hangs
        # waits for ever.
        self._threads = [
            threading.Thread(target=work, name="watch", daemon=True)
            for work in (self._talk, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads and restores the handling of signals."""
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
            self._before = None
        self._over.set()
        for thread in self._threads:
            thread.join(STORE_S)
        self._mine.close()
        self._wakeup.close()

    # ------------------------------------------------------------------ what the main thread does

    @contextmanager
    def forming(self) -> Iterator[None]:
        """A context in which the group is made. There is nothing to save, so a signal ends the
        process."""
        self._forming = True
        self._moved = time.monotonic()
        try:
            yield
        finally:
            self._forming = False
            self._moved = time.monotonic()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """A context in which the main thread waits for the others."""
        self._entered += 1
        self._inside = True
        self._moved = time.monotonic()
        try:
            yield
        finally:
            self._inside = False
            self._moved = time.monotonic()

    def named(self, *, wait_s: float = 0.0) -> str:
        """A description of the processes that do not answer; empty if all do, or if that cannot be
        known. wait_s: how long to observe them first."""
        deadline = time.monotonic() + wait_s
        enough_s = SURE_S if wait_s else SILENT_S
        while not self._silent(enough_s) and time.monotonic() < deadline:
            self._moved = min(self._moved, time.monotonic() - LOOK_S)  # observe them
            time.sleep(0.1)
        return words(self.lives, self._silent(enough_s))

    # ------------------------------------------------------------------ signs of life

    def _talk(self) -> None:
        try:
            while not self._over.wait(BEAT_S):
                self._beat()
                if self._waited() >= LOOK_S:
                    self._look()
                else:
                    self._looking = False
                self._answered = time.monotonic()
        except RuntimeError:
            self._store_lost = True

    def _waited(self) -> float:
        """Seconds since the main thread last began or ended an exchange."""
        return time.monotonic() - self._moved

    def _beat(self) -> None:
        self._signs += 1
        mine = [
            self._signs,
            self._entered,
            f"rank {self.rank} (process {os.getpid()} on {socket.gethostname()})",
        ]
        self.store.set(f"life/{self.rank}", json.dumps(mine))

    def _look(self) -> None:
        now = time.monotonic()
        for rank, life in self.lives.items():
            if not self._looking:
                life.since = now  # we have not seen what it did before
            if self.store.check([f"life/{rank}"]):
                signs, life.entered, life.who = json.loads(self.store.get(f"life/{rank}"))
                if signs != life.signs:
                    life.signs = signs
                    life.since = now
        self._looking = True

    def _silent(self, seconds: float) -> list[int]:
        """The ranks that have given no sign of life for this long."""
        now = time.monotonic()
        if self._store_lost or now - self._answered >= BEAT_S + seconds:
            return [self.keeper] if self.keeper in self.lives else []
        return (
            [rank for rank, life in self.lives.items() if now - life.since >= seconds]
            if self._looking
            else []
        )

    # ------------------------------------------------------------------ what is said

    def _watch(self) -> None:
        while not self._over.is_set():
            if select.select([self._mine], [], [], TICK_S)[0]:
                self._hear(self._mine.recv(4096))
            self._leave_if_asked()
            waited = self._waited()
            if waited < LOOK_S:
                self._next_line = SAY_S
            elif waited >= self._next_line:
                self._next_line = min(2 * self._next_line, self._next_line + MOST_S)
                self._say(waited)

    def _say(self, waited: float) -> None:
        silent = self._silent(SILENT_S)
        behind = (
            [
                rank
                for rank, life in self.lives.items()
                if life.entered < self._entered and rank not in silent
            ]
            if self._inside
            else []
        )
        missing = silent or behind
        if not missing or self.rank > min(set(range(self.size)) - {*missing}):
            return  # the first of the waiting ranks speaks for all
        how = "gives no sign of life" if silent else "is still at work"
        say(
            f"waiting for {len(missing)} of {self.size} processes, {waited:.0f} s: "
            f"{words(self.lives, missing)} {how}"
        )

    # ------------------------------------------------------------------ signals

    def _hear(self, numbers: bytes) -> None:
        for number in numbers:
            if number in SIGNALS:
                now = time.monotonic()
                self._asked = self._asked or (number, now)

    def _leave_if_asked(self) -> None:
        """Ends the process if it cannot obey a signal because the main thread waits for a process
        that gives no sign of life."""
        if not self._asked or time.monotonic() - max(self._asked[1], self._moved) < DEAF_S:
            return
        silent = self._silent(SILENT_S)
        if not self._forming and not silent:
            return
        name = signal.Signals(self._asked[0]).name
        whom = words(self.lives, silent) or "the other processes"
        say(
            f"electrify pretrain: stopped by {name} while waiting for {whom}; run the same command "
            "again to continue"
        )
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(SAVED_EXIT)


def words(lives: dict[int, Life], ranks: list[int]) -> str:
    """`rank 1 (process 12 on a), rank 3 (process 7 on b)`, and how many more there are."""
    shown = ", ".join(lives[r].who or f"rank {r}" for r in ranks[:NAMED])
    return shown + (f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else "")


def connection(store: td.TCPStore) -> td.Store:
    """A second connection to the store, for another thread, because a thread that waits blocks all
    others that use the same connection."""
    own = store.clone()  # pyright: ignore[reportAttributeAccessIssue] - not in its stubs
    own.set_timeout(timedelta(seconds=STORE_S))
    return own
