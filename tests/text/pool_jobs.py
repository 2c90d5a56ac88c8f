"""What the workers of test_pool.py and test_cluster.py do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electrify.errors import UserError


@dataclass(frozen=True)
class Nap:
    """A task that takes its time."""

    seconds: float
    about: str = "7 documents, the last of books.txt"


def start(factor: int) -> Callable[[Any], Any]:
    def handle(n: Any) -> Any:
        if isinstance(
            n, tuple
        ):  # ("once", signal, file): the first time only, this process gets the signal
            return once(*n[1:])
        if isinstance(n, Nap):
            time.sleep(n.seconds)
            return "slept"
        if isinstance(n, str):  # takes long to send, and the answer too
            return n
        print("a library that talks on standard output")
        if n == 13:
            raise UserError("thirteen is bad")
        if n == 14:
            raise ZeroDivisionError("our fault")
        if n == 15:
            os.kill(os.getpid(), 9)
        return n * factor

    return handle


def once(sign: int, mark: str) -> str:
    if Path(mark).exists():
        return "again"
    Path(mark).touch()
    os.kill(os.getpid(), sign)
    time.sleep(60)
    return "it lived"
