"""`electrify` and `python -m electrify`, also for torchrun."""

import os
import sys


def start() -> None:
    """The entry point of the command. Ctrl-C while modules are still loading ends like Ctrl-C
    later."""
    try:
        from .cli import program

        program()
    except KeyboardInterrupt:
        sys.stderr.write("electrify: stopped by SIGINT\n")
        sys.stderr.flush()
        os._exit(130)


if __name__ == "__main__":
    start()
