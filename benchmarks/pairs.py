"""Two sides and more, timed in turns: what every comparison here shares."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from electrify.progress import Progress


def in_turns(
    sides: dict[str, Callable[[], float]],
    *,
    rounds: int,
    title: str,
    until: float = math.inf,
) -> dict[str, list[float]]:
    """Seconds of each side in every round; the order turns round from one to the next, so that a
    drift of the machine falls on all alike. until: by time.monotonic(), when the next round would
    begin too late; the first is always run."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with Progress(rounds * len(sides), title=title, unit="runs") as bar:
        for k in range(rounds):
            if k and time.monotonic() > until:
                break
            for name in list(sides)[:: 1 if k % 2 == 0 else -1]:
                seconds[name].append(sides[name]())
                bar.advance(1, name)
    return seconds


def ratios(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """How many times as long as `base`, round by round, sorted."""
    return sorted(t / b for t, b in zip(times, base, strict=True))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """`median (lowest - highest)`."""
    ordered = sorted(values)
    return (
        f"{statistics.median(ordered):.{digits}f} ({ordered[0]:.{digits}f} - "
        f"{ordered[-1]:.{digits}f})"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left, the others to the right."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *[list(row) for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_json(path: str | None, content: Any) -> None:
    if path:
        Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
