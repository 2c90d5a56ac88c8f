"""Names of models, tasks and settings as parts of the names of files and folders."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from ..errors import UserError

MOST_BYTES = 80
LONGEST = 255
"""Bytes of a name that file systems take."""


def relative(name: str, folder: Path) -> str:
    """The path of a folder relative to `folder`, so that both can be moved together; what is not a
    folder here (a Hub id) stays as it is."""
    path = os.path.expanduser(name)
    return (
        os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
        if os.path.isdir(path)
        else name
    )


def folder_name(label: str) -> str:
    """A model's label as the name of a folder."""
    readable = re.sub(r"[^\w-]+", "-", label.replace("..", "").strip("./"))
    return f"{_cut(readable)}-{_digest(label)}"


def short(name: str, *, longest: int = MOST_BYTES) -> str:
    """A name as a part of the name of a file or folder; one of more than `longest` bytes is cut,
    and its hash distinguishes it from others."""
    return name if len(name.encode()) <= longest else f"{_cut(name)}-{_digest(name)}"


def must_be_encodable(name: str) -> None:
    """Raises UserError for the name of a model or a task in another encoding, because our files
    hold it."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as e:
        raise UserError(
            f"{name}: this name is not UTF-8, and results cannot be written under it; rename the "
            "file or folder"
        ) from e


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]


def _cut(name: str) -> str:
    """At most MOST_BYTES of a name: two such names and their hashes stay below LONGEST."""
    return name.encode()[:MOST_BYTES].decode("utf-8", "ignore")
