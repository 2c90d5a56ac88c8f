"""How long a user waits for the command line: `--help` of electrify and of every command, and an
empty Python process.

    python benchmarks/startup.py [--rounds 9] [--quick] [--json FILE]

The commands take turns; each is a process of its own. Imports that a command does not need show
up here.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from pairs import in_turns, spread, table, write_json

from electrify.cli import COMMANDS


def seconds(words: list[str]) -> Callable[[], float]:
    """Runs a command and gives its wall time. Raises CalledProcessError where it fails."""

    def run() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        return time.perf_counter() - began

    return run


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--quick", action="store_true", help="two rounds")
    p.add_argument("--json", help="write the figures here too")
    a = p.parse_args()
    sides = {
        "python -c pass": seconds(["-c", "pass"]),
        "import electrify": seconds(["-c", "import electrify"]),
    }
    sides["electrify --help"] = seconds(["-m", "electrify", "--help"])
    sides |= {
        f"electrify {name} --help": seconds(["-m", "electrify", name, "--help"])
        for name in COMMANDS
    }
    for run in sides.values():
        run()  # the first one compiles and fills the disk's cache
    found = in_turns(sides, rounds=2 if a.quick else a.rounds, title="start-up")
    print(table(["command", "seconds"], [[name, spread(times)] for name, times in found.items()]))
    slowest = max((statistics.median(times), name) for name, times in found.items())
    print(f"\nslowest: {slowest[1]}, {slowest[0]:.2f} s")
    write_json(a.json, found)


if __name__ == "__main__":
    main()
