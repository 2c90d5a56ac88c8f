"""Writes a file whole or not at all: under a unique temporary name next to its place, then synced
and renamed."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from ..errors import UserError


class GoneError(UserError, FileNotFoundError):
    """A file cannot be written because its folder is gone, or is not a place for files."""

    def __init__(self, path: Path) -> None:
        said = (
            f"{path}: no file of this name can be made; choose another place"
            if path.parent.is_dir()
            else f"{path.parent} was removed or moved away; run the same command again"
        )
        super().__init__(said)
        self.errno = errno.ENOENT
        self.strerror = os.strerror(errno.ENOENT)
        self.said = said

    def __str__(self) -> str:
        return self.said


TEMPORARY = re.compile(r"\.electrify-[0-9a-f]{32}\.part")
"""The names of `temporary`, for writers that have the folder's lock: who has it next may remove
what they left."""
OUTPUT = re.compile(r"\.electrify-output-[0-9a-f]{32}\.part")
"""Those for writers without it, which may still be at work: nobody removes them."""


def temporary(folder: Path, *, locked: bool = True) -> Path:
    """A unique temporary name in the folder, by which leftovers of a killed writer can be told from
    the user's files. locked: whether this process has the folder's lock."""
    return folder / f".electrify-{'' if locked else 'output-'}{uuid.uuid4().hex}.part"


def free_name(wanted: Path, ending: str = "") -> Path:
    """The path with the ending, and a number before the ending where the name is taken."""
    numbers = chain([""], (f"-{k}" for k in count(2)))
    names = (f"{wanted.name}{number}{ending}" for number in numbers)
    return next(p for p in map(wanted.with_name, names) if not os.path.lexists(p))


@contextmanager
def written(path: Path, *, over: bool = True, locked: bool = True) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file when the block ends without an error. A link of that
    name is replaced, not followed. over: whether a file may be replaced; if not, and one has
    appeared, the content gets a name beside it, and a UserError says which. locked: whether this
    process has the folder's lock; if not, whoever has it leaves the unfinished file alone."""
    part = temporary(path.parent, locked=locked)
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if over and not path.is_dir():
            part.replace(path)
        else:
            _put(part, path)
    except BaseException as e:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.filename in (None, str(part), part):
            e.filename = str(path)  # the name that the user knows, and not the one that is gone
        if isinstance(e, FileNotFoundError) and not isinstance(e, GoneError):
            raise GoneError(path) from e
        raise


def _put(part: Path, path: Path) -> None:
    """Gives the file its name, or another one if that is taken by now."""
    try:
        os.link(part, path)
    except FileExistsError:
        free = free_name(path.with_name(f"{path.stem}-new"), path.suffix)
        os.rename(part, free)
        raise UserError(
            f"{path} was taken by another {'folder' if path.is_dir() else 'file'} meanwhile, which "
            f"was left alone: the result is in {free}"
        ) from None
    except OSError:  # this disk has no second names for a file
        if os.path.lexists(path):
            raise
        part.rename(path)
    else:
        part.unlink()


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
