"""Writes a file whole or not at all: under a unique temporary name next to its place, then synced
and renamed."""

from __future__ import annotations

import json
import math
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

TEMPORARY = re.compile(r"\.electrify-[0-9a-f]{32}\.part")


def temporary(folder: Path) -> Path:
    """A unique temporary name in the folder, by which leftovers of a killed writer can be told from
    files of the user."""
    return folder / f".electrify-{uuid.uuid4().hex}.part"


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file when the block ends without an error. A link of that
    name is replaced, not followed."""
    part = temporary(path.parent)
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException as e:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.filename in (None, str(part), part):
            e.filename = str(path)  # what the user knows of, and not the name that is gone
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes the whole file or none of it."""
    with written(path) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Returns when the file, or the folder with its names, is on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        e.filename = str(path)
        raise
    finally:
        os.close(fd)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that every reader accepts: numbers that are not finite, which JSON cannot express,
    become null."""
    return json.dumps(_finite(value), indent=indent, sort_keys=True, allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {k: _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
        case _:
            return value
