"""The files that a pattern of the user names (`corpus/**/*.txt`), however deep its folders are and
whatever vanishes from them meanwhile."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator
from pathlib import Path

DEEP = "**"


def matching(pattern: Path) -> Iterator[Path]:
    """What a pattern names, in no order, hidden names left out unless it asks for them.

    `**` stands for any number of folders, none included; it follows no link to a folder: two that
    lead back would make more paths than can be walked. Folders that cannot be read, or are gone,
    hold nothing. Raises ValueError where `**` is not a whole part of the pattern.
    """
    fixed = next(i for i, part in enumerate(pattern.parts) if glob.has_magic(part))
    base = str(Path(*pattern.parts[:fixed]))
    parts = pattern.parts[fixed:]
    if any(DEEP in part and part != DEEP for part in parts):
        raise ValueError("** is a whole part of a pattern or none")
    asked = any(part.startswith(".") for part in parts)
    # (folder, places in the pattern at which its content may go on): a stack and no recursion, for
    # folders may be deeper than Python's stack.
    waiting = [(base, _behind({0}, parts) - {len(parts)})]
    while waiting:
        folder, at = waiting.pop()
        for path, name, deep_too in _below(folder, at, parts):
            if name.startswith(".") and not asked:
                continue
            reached = {i + 1 for i in at if parts[i] != DEEP and _fits(name, parts[i])}
            kept = {i for i in at if parts[i] == DEEP} if deep_too else set()
            after = _behind(reached | kept, parts)
            if len(parts) in after:
                yield Path(path)
            inner = after - {len(parts)}
            if inner and os.path.isdir(path):
                waiting.append((path, inner))


def _behind(at: set[int], parts: tuple[str, ...]) -> set[int]:
    """The places with those behind each `**`, which may stand for nothing."""
    found = set(at)
    for i, part in enumerate(parts):
        if i in found and part == DEEP:
            found.add(i + 1)
    return found


def _below(folder: str, at: set[int], parts: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """(path, name, whether `**` may stand for it) of what the folder holds, as far as the places
    ask for it."""
    wanted = [parts[i] for i in at]
    if all(part != DEEP and not glob.has_magic(part) for part in wanted):
        yield from (
            (path, part, False)
            for part in wanted
            if os.path.lexists(path := os.path.join(folder, part))
        )
        return
    if ".." in wanted:
        yield os.path.join(folder, ".."), "..", False
    try:
        with os.scandir(folder) as found:
            entries = [(entry.path, entry.name, not entry.is_symlink()) for entry in found]
    except OSError:
        return
    yield from entries


def _fits(name: str, part: str) -> bool:
    return fnmatch.fnmatchcase(name, part) if glob.has_magic(part) else name == part
