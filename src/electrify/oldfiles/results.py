"""Writes result files into a folder in which the user may write, too: a report that the user has
edited gets another name before the new one takes its place.

FOLDER/.written.json    the hashes of our results there, recorded before these are written
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..progress import say
from .folders import aside, mark_of, marked, sha256
from .whole import write_atomically

RECORD = ".written.json"
KIND = "results"


def write_results(
    folder: Path, files: Mapping[str, str | bytes], ours: Collection[str] = ()
) -> None:
    """Writes each file whole or not at all. An existing file of that name with other content than
    ours is kept as NAME.changed, which is reported. ours: names of files that are as we write them;
    this counts if this folder has no record of what we wrote, because they were carried here. Needs
    the folder's lock; raises OSError if the disk fails."""
    known = _known(folder)
    data = {
        name: content.encode("utf-8") if isinstance(content, str) else content
        for name, content in files.items()
    }
    new = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    for name, digest in new.items():
        there = sha256(folder / name)
        carried = name in ours and name not in known
        if there is None or not (carried or there in {digest, *known.get(name, ())}):
            keep_changed(folder / name)
            there = None
        # A kill leaves one or the other.
        known[name] = [digest] if there in (None, digest) else [digest, there]
    write_atomically(folder / RECORD, marked(KIND, {"files": known}))
    for name, content in data.items():
        if sha256(folder / name) != new[name]:
            write_atomically(folder / name, content)


def keep_changed(path: Path) -> None:
    """Renames the file of this name, if there is one, and reports it."""
    where = aside(path)
    if where is not None:
        say(f"{path} is not what electrify wrote there: it is kept as {where.name}")


def _known(folder: Path) -> dict[str, list[str]]:
    """The hashes of what we wrote, by name; none if the record is missing or is not ours."""
    if os.path.lexists(folder / RECORD) and mark_of(folder / RECORD, KIND) is None:
        keep_changed(folder / RECORD)
    files: Any = (mark_of(folder / RECORD, KIND) or {}).get("files")
    if not isinstance(files, dict):
        return {}
    return {
        name: [d for d in digests if isinstance(d, str)]
        for name, digests in files.items()
        if isinstance(digests, list)
    }
