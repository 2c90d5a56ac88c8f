"""The files that match a pattern of the user (`corpus/**/*.txt`), however deep the folders are, and
even if files vanish meanwhile."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path

DEEP = "**"


def matching(pattern: Path, may_enter: Callable[[Path], bool]) -> Iterator[Path]:
    """The paths that match a pattern, in no particular order, without hidden names unless it asks
    for them. may_enter: whether a folder that was found may be looked into.

    `**` stands for any number of folders, including none. It does not follow links to folders,
    because two links that lead back would give more paths than can be walked. Folders that cannot
    be read or are gone count as empty. Raises ValueError if `**` is only a fragment of a path
    component.
    """
    fixed = next(i for i, part in enumerate(pattern.parts) if glob.has_magic(part))
    base = str(Path(*pattern.parts[:fixed]))
    parts = pattern.parts[fixed:]
    if any(DEEP in part and part != DEEP for part in parts):
        raise ValueError("** is a whole part of a pattern or none")
    asked = any(part.startswith(".") for part in parts)
    # (folder, positions in the pattern at which its content may continue). A stack instead of
    # recursion, because folders may be nested more deeply than Python's stack.
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
            if inner and os.path.isdir(path) and may_enter(Path(path)):
                waiting.append((path, inner))


def _behind(at: set[int], parts: tuple[str, ...]) -> set[int]:
    """The positions, together with the position after each `**`, because `**` may stand for
    nothing."""
    found = set(at)
    for i, part in enumerate(parts):
        if i in found and part == DEEP:
            found.add(i + 1)
    return found


def _below(folder: str, at: set[int], parts: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """(path, name, whether `**` may stand for it) for the entries of the folder that the positions
    ask for."""
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
