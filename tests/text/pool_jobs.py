"""What the workers of test_pool.py do."""

from __future__ import annotations

import os
from collections.abc import Callable

from electrify.errors import UserError


def start(factor: int) -> Callable[[int], int]:
    def handle(n: int) -> int:
        print("a library that talks on standard output")
        if n == 13:
            raise UserError("thirteen is bad")
        if n == 14:
            raise ZeroDivisionError("our fault")
        if n == 15:
            os.kill(os.getpid(), 9)
        return n * factor

    return handle
