"""How the processes of one attempt find each other after a restart.

The agent of torchrun keeps one store for all attempts, with what the processes of an attempt that failed have left there: addresses where nobody
listens any more (pytorch issue 135712). Counting attempts does not help, for a host that comes back counts anew. So the processes agree first on a
name that contains a random number of each, and meet under that name.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from datetime import timedelta

import torch.distributed as td

POLL_S = 0.05


def store_of_this_attempt(*, rank: int, size: int, timeout_s: float) -> td.Store | None:
    """A store that only the processes of this attempt share; None where there is no agent with a store of its own. Raises RuntimeError after
    `timeout_s` without all of them."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = td.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False)
    return td.PrefixStore(f"electrify/{agree(store, rank=rank, size=size, timeout_s=timeout_s)}", store)


def agree(store: td.Store, *, rank: int, size: int, timeout_s: float) -> str:
    """The same new name on all ranks, whatever earlier attempts have left in the store. Raises RuntimeError after `timeout_s`.

    Everybody writes its random number; rank 0 reads them all out; whoever hears its own number nods; when all have nodded at one reading, it holds.
    """
    mine, deadline = uuid.uuid4().hex, time.monotonic() + timeout_s
    store.set(f"electrify/here/{rank}", mine)
    while time.monotonic() < deadline:
        if rank == 0:
            present = [mine, *(_get(store, f"electrify/here/{r}") for r in range(1, size))]
            store.set("electrify/reading", " ".join(present))
            name = _name(present)
            if all(_get(store, f"electrify/nod/{r}") == name for r in range(1, size)):
                store.set("electrify/held", name)
                return name
        else:
            present = _get(store, "electrify/reading").split(" ")
            if len(present) == size and present[rank] == mine:
                store.set(f"electrify/nod/{rank}", _name(present))
                if _get(store, "electrify/held") == _name(present):
                    return _name(present)
        time.sleep(POLL_S)
    raise RuntimeError(f"not all {size} processes came within {timeout_s:.0f} s")


def _get(store: td.Store, key: str) -> str:
    """Its value, empty where there is none."""
    return store.get(key).decode() if store.check([key]) else ""


def _name(present: list[str]) -> str:
    return hashlib.sha256(" ".join(present).encode()).hexdigest()
