"""How the processes of one attempt find each other after a restart.

The agent of torchrun keeps one store for all attempts. It still contains what the processes of a
failed attempt have left there: addresses where nobody listens any more (pytorch issue 135712).
Counting attempts does not help, because a host that comes back starts counting again. So the
processes first agree on a name that contains a random number from each of them, and then meet under
that name.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from datetime import timedelta

import torch.distributed as td

from ..progress import say

POLL_S = 0.05
CONNECT_S = 1.0  # for one attempt to connect, in which no signal is heard
SAY_S = 10.0  # before the first message about a wait; then after twice the time
MOST_S = 300.0  # between two messages


def store_of_this_attempt(*, rank: int, size: int, timeout_s: float) -> tuple[td.TCPStore, str]:
    """A store, and a prefix for its keys that only the processes of this attempt share. It is
    torchrun's store if torchrun keeps one; otherwise rank 0 opens one at MASTER_ADDR and
    MASTER_PORT.

    Nothing here waits inside torch, where no signal is heard; instead torch is asked again and
    again. Raises ValueError if the two variables are missing, and RuntimeError, naming the missing
    processes, if not all have come after `timeout_s`.
    """
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise ValueError("MASTER_ADDR and MASTER_PORT say where rank 0 is, and are not both set")
    began = time.monotonic()
    first = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not first:
        _wait_for_listener(host, int(port), timeout_s=timeout_s)
    store = td.TCPStore(
        host,
        int(port),
        is_master=first,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
    )
    left_s = max(0.0, timeout_s - (time.monotonic() - began))
    return store, f"electrify/{agree(store, rank=rank, size=size, timeout_s=left_s)}"


class _Wait:
    """A wait for other processes that has an end."""

    def __init__(self, timeout_s: float) -> None:
        self.began = time.monotonic()
        self.timeout_s = timeout_s
        self.next_s = SAY_S

    def a_moment(self, whom: str, missing: str) -> None:
        """Waits a little, and says now and then for whom. Raises RuntimeError, which says who is
        missing, when the time is over."""
        waited = time.monotonic() - self.began
        if waited >= self.timeout_s:
            raise RuntimeError(missing)
        if waited >= self.next_s:
            self.next_s = min(2 * self.next_s, self.next_s + MOST_S)
            say(f"waiting for {whom}, {waited:.0f} s")
        time.sleep(POLL_S)


def _wait_for_listener(host: str, port: int, *, timeout_s: float) -> None:
    """Returns when somebody listens there. torch's own client would print a stack trace every
    second, and hear no signal."""
    wait, first = _Wait(timeout_s), f"{host}:{port}"
    while True:
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError as e:
            missing = f"nobody answers at {first} after {timeout_s:.0f} s, {e.strerror or e}"
            wait.a_moment(f"rank 0 at {first}", f"{missing}: rank 0 is missing")
        else:
            return


def agree(store: td.Store, *, rank: int, size: int, timeout_s: float) -> str:
    """A new name, the same on all ranks, whatever earlier attempts have left in the store. Raises
    RuntimeError after `timeout_s`.

    Every rank writes its random number. Rank 0 publishes a list of all of them. A rank that finds
    its own number in the list confirms it. When all ranks have confirmed the same list, the name is
    agreed.
    """
    mine, wait = uuid.uuid4().hex, _Wait(timeout_s)
    store.set(f"electrify/here/{rank}", mine)
    while True:
        if rank == 0:
            present = [mine, *(_get(store, f"electrify/here/{r}") for r in range(1, size))]
            store.set("electrify/reading", " ".join(present))
            name = _name(present)
            missing = [r for r in range(1, size) if _get(store, f"electrify/nod/{r}") != name]
            if not missing:
                store.set("electrify/held", name)
                return name
        else:
            present = _get(store, "electrify/reading").split(" ")
            missing = [0]
            if len(present) == size and present[rank] == mine:
                missing = []  # rank 0 has seen this process, and knows who else is missing
                store.set(f"electrify/nod/{rank}", _name(present))
                if _get(store, "electrify/held") == _name(present):
                    return _name(present)
        whom = f"rank {', '.join(map(str, missing))}" if missing else "another rank"
        all_of_them = f"not all {size} processes came within {timeout_s:.0f} s"
        wait.a_moment(f"{whom} of {size} processes", f"{all_of_them}: {whom} is missing")


def _get(store: td.Store, key: str) -> str:
    """The value of the key, or an empty one if there is none."""
    return store.get(key).decode() if store.check([key]) else ""


def _name(present: list[str]) -> str:
    return hashlib.sha256(" ".join(present).encode()).hexdigest()
