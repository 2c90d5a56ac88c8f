"""`electrify` and `python -m electrify`, also for torchrun."""

import os
import sys

from . import POSIX


def start() -> None:
    """The entry point of the command. Ctrl-C while modules are still loading ends like Ctrl-C
    later."""
    if os.name != "posix":
        sys.stderr.write(f"electrify cannot be used here: {POSIX}\n")
        sys.exit(2)
    try:
        from .cli import program

        program()
    except KeyboardInterrupt:
        sys.stderr.write("electrify: stopped by SIGINT\n")
        sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    start()
