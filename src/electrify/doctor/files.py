"""Reading files that nobody vouches for: only regular ones, only so much of them, and every complaint as a finding."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..progress import Progress
from .findings import DamageError, Finding, warning

# The largest tokenizer.json published stays below 40 MB; a manifest of 100 000 shards has about as much.
MAX_JSON_BYTES = 1 << 27
CHUNK = 1 << 20  # bytes, a multiple of every token size; stays in the caches while it is hashed and counted
AGAIN = "Restore it from a copy, or make the folder again."


class Bar(Progress):
    """Progress in MB."""

    def __init__(self, paths: Iterable[Path], *, title: str) -> None:
        super().__init__(sum(size_of(p) for p in paths) / 1e6, title=title, unit="MB")

    def read(self, size: int) -> None:
        self.advance(size / 1e6)


def size_of(path: Path) -> int:
    """0 where there is no regular file."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def is_regular(path: Path) -> bool:
    """A file, or a link to one: pipes and devices would be read for ever."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def files_below(folder: Path) -> list[Path]:
    """Every regular file, without following links to folders."""
    return [path for root, _, names in os.walk(folder) for name in names if is_regular(path := Path(root, name))]


def chunks(path: Path, bar: Bar) -> Iterator[bytes]:
    with path.open("rb") as f:
        while data := f.read(CHUNK):
            bar.read(len(data))
            yield data


def sha256(path: Path, bar: Bar) -> str:
    found = hashlib.sha256()
    for data in chunks(path, bar):
        found.update(data)
    return found.hexdigest()


def read_bytes(path: Path, *, limit: int = MAX_JSON_BYTES) -> bytes:
    """Raises DamageError where there is no such file or it is larger than anything of its kind."""
    if not is_regular(path):
        what = "is no file" if os.path.lexists(path) else "is missing"
        raise DamageError("missing", f"{path.name} {what}", AGAIN)
    if path.stat().st_size > limit:
        raise DamageError("too-large", f"{path.name} has {path.stat().st_size >> 20} MB, which no such file has", AGAIN)
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """Raises DamageError where it is no JSON object."""
    try:
        found = json.loads(read_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as e:
        why = "nested too deeply" if isinstance(e, RecursionError) else " ".join(str(e).split())[:120]
        raise DamageError("damaged", f"{path.name} is no JSON ({why})", AGAIN) from e
    if not isinstance(found, dict):
        raise DamageError("damaged", f"{path.name} holds {type(found).__name__}, not an object", AGAIN)
    return found


def links_out(folder: Path) -> Iterator[Finding]:
    """Links that leave the folder: a copy of it would lack them."""
    here, out = folder.resolve(), []
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            try:
                inside = path.resolve().is_relative_to(here)
            except (OSError, RuntimeError):  # a circle
                inside = False
            if not inside:
                out.append(path.name)
    if out:
        yield warning(
            "link-out",
            f"{named(out)} {'is a link' if len(out) == 1 else 'are links'} that leave{'s' * (len(out) == 1)} the folder",
            "A copy of the folder would lack what they point to: put the files themselves here.",
        )


def named(names: Iterable[str], *, at_most: int = 3) -> str:
    """The first names, and how many more."""
    names = list(names)
    return ", ".join(names[:at_most]) + (f" and {len(names) - at_most:,} more" if len(names) > at_most else "")


def amount(n: float) -> str:
    """57.1 M, 31,204."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:,.0f}"
