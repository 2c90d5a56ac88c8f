"""The files of a folder and its subfolders in sorted order, and the names that were left out, by
reason: a corpus is never shortened silently.

Links to files are followed (caches of data sets consist of them). Links to folders are not, because
two that lead back would give more paths than can be walked; the user can name such a folder as an
input.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..oldfiles.reading import FileError, opened
from .made import is_made

SHOWN = 3  # names shown for each reason in the line about what was left out

LINKED_FOLDER = "links to folders (not followed)"
DEAD_LINK = "links that lead nowhere"
SPECIAL = "pipes, sockets or devices"
UNREADABLE_FOLDER = "folders that may not be read"
UNREADABLE = "files that may not be read"
EMPTY = "empty files"
OTHER_KIND = "files of other kinds"
ABOUT = "files about the corpus"
MADE = "folders that electrify made"
MADE_FILE = "files that electrify made"
HIDDEN = "hidden"
UNMATCHED_FOLDER = "folders into which this pattern does not lead"


@dataclass(frozen=True)
class LeftOut:
    """A name inside a folder, and one of the reasons above."""

    name: str
    reason: str


def sentence(left_out: list[LeftOut]) -> str:
    """`left out 3; hidden: 2 (.a, .b); empty files: 1 (c.txt)`; empty if nothing was."""
    groups: dict[str, list[str]] = {}
    for one in left_out:
        groups.setdefault(one.reason, []).append(one.name)
    shown = (
        f"{reason}: {len(names)} ({', '.join(names[:SHOWN])}{' ...' * (len(names) > SHOWN)})"
        for reason, names in groups.items()
    )
    return f"left out {len(left_out)}; {'; '.join(shown)}" if left_out else ""


def files(folder: Path, left_out: list[LeftOut], *, besides: Path | None = None) -> Iterator[Path]:
    """The regular files below `folder` that may be read and are not empty. besides: a folder inside
    it that is skipped silently.

    Raises UserError if `folder` itself may not be read.
    """
    passed = place_of(besides)
    waiting = _listed(folder, folder, left_out)
    while waiting:
        path = waiting.pop()
        if path.name.startswith("."):
            left_out.append(LeftOut(_inside(path, folder), HIDDEN))
        elif os.path.isdir(path):  # False if a link may not be followed, which `unfit` reports
            if passed is not None and place_of(path) == passed:
                continue
            if path.is_symlink():
                left_out.append(LeftOut(_inside(path, folder), LINKED_FOLDER))
            elif is_made(path):
                left_out.append(LeftOut(_inside(path, folder), MADE))
            else:
                waiting += _listed(path, folder, left_out)
        elif (reason := unfit(path)) is not None:
            left_out.append(LeftOut(_inside(path, folder), reason))
        else:
            yield path


def unfit(path: Path) -> str | None:
    """Why something that is not a folder cannot hold text, whatever its name; None if it can."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return SPECIAL
        opened(path).close()
    except PermissionError:
        return UNREADABLE
    except FileError:  # it was a file a moment ago
        return SPECIAL
    except OSError as e:
        return DEAD_LINK if path.is_symlink() else f"files that cannot be opened: {e.strerror}"
    return None


def place_of(path: Path | None) -> tuple[int, int] | None:
    """A folder's identity, whatever its name. Following the path of a folder that is a thousand
    levels deep takes a thousand look-ups; this takes one."""
    try:
        facts = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino) if facts else None


def _listed(folder: Path, top: Path, left_out: list[LeftOut]) -> list[Path]:
    """The entries of a folder in reverse order."""
    try:
        return sorted(folder.iterdir(), reverse=True)
    except OSError as e:
        if folder == top:
            raise UserError(f"the folder {folder} cannot be read: {e.strerror or e}") from e
        left_out.append(LeftOut(_inside(folder, top), UNREADABLE_FOLDER))
        return []


def _inside(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def identity_of(folder: Path) -> dict[str, Any]:
    """bytes and sha256 of what is in the folder of a data set; 0 and "" if it is not a folder."""
    if not folder.is_dir():
        return {"bytes": 0, "sha256": ""}
    found = hashlib.sha256()
    size = 0
    try:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            with opened(path) as f:
                digest = hashlib.file_digest(f, "sha256")
            found.update(os.fsencode(path.relative_to(folder)) + b"\0" + digest.digest())
            size += path.stat().st_size
    except OSError as e:
        raise UserError(f"{folder} cannot be read: {e.strerror or e}") from e
    return {"bytes": size, "sha256": found.hexdigest()}
