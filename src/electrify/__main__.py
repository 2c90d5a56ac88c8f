"""`electrify` and `python -m electrify`, also for torchrun."""

import os
import sys

from . import POSIX


def start() -> None:
    """The entry point of the command."""
    if os.name != "posix":
        sys.stderr.write(f"electrify cannot be used here: {POSIX}\n")
        sys.exit(2)
    from .cli import program

    program()


if __name__ == "__main__":
    start()
