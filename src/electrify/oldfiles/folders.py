"""Decides who owns a folder. A file is ours if our mark is inside it, never because of its name.

A mark is a small JSON object in a regular file (never a link) that says `"electrify": KIND`:

    electrify.json          of a model folder (see model_folder.py) and of a search's folder
    finetune.json           of a folder of fine-tuning results
    blimp.json              of results of BLiMP
    unfinished/state.json   of a corpus that is being prepared

(A run's mark is the first line of its config.yaml, see train/folder.py; a prepared corpus's is its
sealed manifest.)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from ..errors import OutputError
from .lock import LOCK
from .reading import UnreadableError, unreadable
from .whole import OUTPUT, TEMPORARY, free_name

MARK = "electrify.json"
KEY = "electrify"
# The largest file that may hold a mark: the state of a corpus of 100,000 files has an eighth of it.
MOST_BYTES = 1 << 27


def open_own(path: Path) -> IO[bytes] | None:
    """A regular file, opened for reading; None for a link, a pipe, a device, a folder, and where
    there is nothing. Raises UnreadableError if the machine does not let us read the file: then
    nobody knows whose it is."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        refusal = unreadable(path, e)
        if not isinstance(refusal, UnreadableError) or _is_another_kind(path):
            return None
        raise refusal from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return os.fdopen(fd, "rb")


def _is_another_kind(path: Path) -> bool:
    """Whether something that is not a regular file has that name, whoever may read it."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def own_bytes(path: Path) -> bytes | None:
    """A small regular file; None for what `open_own` does not open, and for larger files."""
    stream = open_own(path)
    if stream is None:
        return None
    with stream, _named(path):
        small = os.fstat(stream.fileno()).st_size <= MOST_BYTES
        return stream.read(MOST_BYTES) if small else None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A context in which an error of reading names the file."""
    try:
        yield
    except OSError as e:
        raise unreadable(path, e) from e


def own_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a small regular file, None if there is none. Raises UnreadableError like
    `open_own`."""
    data = own_bytes(path) or b""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def mark_of(path: Path, kind: str) -> dict[str, Any] | None:
    """What the file says besides its mark, if it has the mark of this kind; None for anything
    else."""
    found = own_object(path)
    return (
        {k: v for k, v in found.items() if k != KEY}
        if found is not None and found.get(KEY) == kind
        else None
    )


def marked(kind: str, facts: dict[str, Any]) -> str:
    """The text of a file with a mark."""
    return json.dumps({KEY: kind, **facts}, indent=1, sort_keys=True) + "\n"


def foreign(folder: Path) -> list[str]:
    """The names in a folder, except its lock and what our writers have not finished; none if the
    folder is missing."""
    if not folder.is_dir():
        return []
    return sorted(
        name
        for name in os.listdir(folder)
        if name != LOCK and not TEMPORARY.fullmatch(name) and not OUTPUT.fullmatch(name)
    )


def must_be_new(folder: Path, what: str) -> None:
    """Raises UserError if the folder holds anything, or is a file. what: the thing
    whose mark it lacks."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise OutputError(f"{folder}: a file, not a folder", "choose another --output-dir")
    names = foreign(folder)
    if names:
        shown = ", ".join(names[:3]) + " ..." * (len(names) > 3)
        raise OutputError(
            f"{folder}: holds other files and no {what} ({shown})", "choose another --output-dir"
        )


def is_temporary(path: Path) -> bool:
    """Whether it is the name that a writer with the folder's lock gives a file until it is
    whole."""
    return TEMPORARY.fullmatch(path.name) is not None


def remove_temporaries(folder: Path) -> None:
    """What killed writers have left. Only for the process that has the folder's lock."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def aside(path: Path) -> Path | None:
    """Gives another name to whatever has this one, and returns it; None if there is nothing."""
    if not os.path.lexists(path):
        return None
    free = free_name(path.with_name(f"{path.name}.changed"))
    path.rename(free)
    return free


def relative(name: str, folder: Path) -> str:
    """The path of a folder relative to `folder`, so that both can be moved together; what is not a
    folder here (a Hub id) stays as it is."""
    path = os.path.expanduser(name)
    return (
        os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
        if os.path.isdir(path)
        else name
    )


def sha256(path: Path) -> str | None:
    """The hash of a regular file; None for a link, a folder, or nothing."""
    stream = open_own(path)
    if stream is None:
        return None
    with stream, _named(path):
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
