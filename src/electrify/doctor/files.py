"""Reads untrusted files: only regular ones, only up to a limit, and every problem becomes a
finding."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..oldfiles import reading
from ..progress import Progress
from ..text.manifest import TOKENIZER
from .findings import DamageError, Finding, as_sentence, warning

# The largest tokenizer.json published stays below 40 MB; a manifest of 100 000 shards is about as
# large.
MAX_JSON_BYTES = 1 << 27
T = TypeVar("T")
# In bytes, a multiple of every token size. A chunk stays in the caches while it is hashed and
# counted.
CHUNK = 1 << 20
AGAIN = "Restore it from a copy, or make the folder again."


class Bar(Progress):
    """Progress in MB."""

    def __init__(self, paths: Iterable[Path], *, title: str) -> None:
        super().__init__(sum(size_of(p) for p in paths) / 1e6, title=title, unit="MB")

    def read(self, size: int) -> None:
        self.advance(size / 1e6)


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 if it is not a regular file."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return 0
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def is_regular(path: Path, *, within: Path | None = None) -> bool:
    """Whether it is a file, or a link to one (in the folder `within`): reading pipes and devices
    would never end."""
    return reading.is_regular(path, within=within)


def files_below(folder: Path) -> list[Path]:
    """Every regular file, without following links to folders."""
    return [
        path
        for root, _, names in os.walk(folder)
        for name in names
        if is_regular(path := Path(root, name))
    ]


def chunks(path: Path, bar: Bar) -> Iterator[bytes]:
    with reading.open_regular(path) as f:
        while data := f.read(CHUNK):
            bar.read(len(data))
            yield data


def sha256(path: Path, bar: Bar) -> str:
    found = hashlib.sha256()
    for data in chunks(path, bar):
        found.update(data)
    return found.hexdigest()


def read_bytes(path: Path, *, limit: int = MAX_JSON_BYTES) -> bytes:
    """Raises DamageError if the file is missing, or larger than any such file should be."""
    return found_in(path, lambda: reading.read_bytes(path, limit=limit, within=path.parent))


def read_json(path: Path, *, repeats: bool = False) -> dict[str, Any]:
    """Raises DamageError if it is not a JSON object. repeats: whether a key may occur twice."""
    return found_in(path, lambda: reading.read_object(path, repeats=repeats, within=path.parent))


def must_open(path: Path) -> None:
    """Raises DamageError if the file is missing, cannot be opened, or is a link that leads out
    of its folder."""
    found_in(path, lambda: reading.open_regular(path, within=path.parent).close())


def found_in(path: Path, read: Callable[[], T]) -> T:
    """What `read` reads; if files/reading.py refuses it, a finding."""
    try:
        return read()
    except reading.MissingError as e:
        raise DamageError("missing", f"{path.name} is missing", AGAIN) from e
    except reading.UnreadableError as e:
        raise DamageError("unreadable", f"{path.name} {e.why}", as_sentence(e.advice)) from e
    except reading.FileError as e:
        raise DamageError(
            "too-large" if isinstance(e, reading.TooLargeError) else "damaged",
            f"{path.name} {e.why}",
            as_sentence(e.advice) if e.advice else AGAIN,
        ) from e


def links_out(folder: Path) -> Iterator[Finding]:
    """Links that leave the folder, or its tokenizer's: no verb follows them."""
    here = folder.resolve()
    out = []
    below = [folder / TOKENIZER] if (folder / TOKENIZER).is_dir() else []
    for path in sorted(p for one in (folder, *below) for p in one.iterdir()):
        if path.is_symlink():
            try:
                inside = reading.is_inside(path.resolve(strict=True), here)
            except (OSError, RuntimeError):  # a circle, or a link to nothing
                inside = False
            if not inside:
                out.append(str(path.relative_to(folder)))
    if out:
        yield warning(
            "link-out",
            (
                f"{named(out)} {'is a link' if len(out) == 1 else 'are links'} that "
                f"leave{'s' * (len(out) == 1)} the folder"
            ),
            (
                "What they point to is not read, and a copy of the folder would lack it: put the "
                "files themselves here."
            ),
        )


def named(names: Iterable[str], *, at_most: int = 3) -> str:
    """The first names, and how many more."""
    names = list(names)
    return ", ".join(names[:at_most]) + (
        f" and {len(names) - at_most:,} more" if len(names) > at_most else ""
    )


def amount(n: float) -> str:
    """57.1 M, 31,204."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:,.0f}"
