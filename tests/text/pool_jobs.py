"""What the workers of test_workers.py do."""

import os
import time
from collections.abc import Callable
from typing import Any

from electrify.errors import UserError


def start(factor: int) -> Callable[[Any], Any]:
    def handle(n: int) -> int:
        if n == 12:
            time.sleep(600)
        if n == 13:
            raise UserError("thirteen is bad")
        if n == 14:
            raise ZeroDivisionError("our fault")
        if n == 15:
            os.kill(os.getpid(), 9)
        return n * factor

    return handle
