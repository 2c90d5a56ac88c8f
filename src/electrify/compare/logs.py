"""The log of a cell, whose end is shown."""

from __future__ import annotations

from pathlib import Path

LOG = "log.txt"
TAIL = 1 << 14


def tail(path: Path, since: int = 0) -> bytes:
    """The last bytes of a file from byte `since` on; nothing if there is none."""
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        stream.seek(max(since, path.stat().st_size - TAIL))
        return stream.read(TAIL)
