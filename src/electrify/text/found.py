"""The texts in a folder of the user, and those that match a pattern; what is left out is recorded
with its reason (walk.py)."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from ..errors import UserError
from . import walk
from .endings import FORMATS, LOGS, SOURCE_CODE, Format, format_of
from .patterns import matching
from .source import Source, legible
from .streams import compression_of
from .walk import LeftOut

NAMED = SOURCE_CODE | LOGS  # text if the user asks for it by name or pattern
# Files that describe a corpus and are not part of it. They are used only if the user names them.
_ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|notice|changelog|contributing|code_of_conduct)(\..*)?",
    re.IGNORECASE,
)


def in_folder(
    folder: Path,
    item: str,
    left_out: list[LeftOut],
    output: Path | None,
    further: frozenset[str],
) -> list[Source]:
    """The text files in a folder of the user and its subfolders. Raises UserError if the folder is
    one that electrify made, or holds no text."""
    must_not_be_made(folder)
    sources = []
    before = len(left_out)
    top = Path(os.path.realpath(folder)).name
    for path in walk.files(folder, left_out, besides=output):
        inside = path.relative_to(folder)
        kind = _kind_of(path, inside.as_posix(), left_out, further, about=True)
        if kind is not None:
            sources.append(
                Source(legible(f"{top}/{inside.as_posix()}"), kind, path, in_folder=True)
            )
    if not sources:
        raise UserError(_nothing_in(item, left_out[before:]))
    return sources


def must_not_be_made(folder: Path) -> None:
    """Raises UserError for a folder that electrify made."""
    if walk.is_made(folder):
        raise UserError(
            f"{folder} is a folder that electrify made, and its vocabularies and reports are not a "
            "corpus; name the texts themselves"
        )


def _nothing_in(item: str, left_out: list[LeftOut]) -> str:
    linked = [one.name for one in left_out if one.reason == walk.LINKED_FOLDER]
    if linked and len(linked) == len(left_out):
        names = ", ".join(linked[: walk.SHOWN]) + " ..." * (len(linked) > walk.SHOWN)
        return (
            f"the folder {item} holds only links to folders ({names}), which are not followed; "
            "name the linked folders themselves"
        )
    why = f" ({walk.sentence(left_out)})" if left_out else ""
    return (
        f"the folder {item} holds no text file; known endings: {', '.join(FORMATS)}; source code "
        f"with --preset code, .log with --preset logs{why}"
    )


def _kind_of(
    path: Path, name: str, left_out: list[LeftOut], further: frozenset[str], *, about: bool
) -> Format | None:
    """The format of a file that was found; None if it is left out. about: whether files that
    describe a corpus are left out, too."""
    kind = format_of(path, further)
    reason = ""
    if kind is None:
        reason = walk.OTHER_KIND
    elif about and _ABOUT.fullmatch(path.name):
        reason = walk.ABOUT
    elif path.stat().st_size == 0 and not compression_of(path):
        reason = walk.EMPTY  # an empty archive is damaged, and reading it reports that
    if reason:
        left_out.append(LeftOut(legible(name), reason))
    return None if reason else kind


def by_pattern(pattern: Path, item: str, left_out: list[LeftOut]) -> list[Source]:
    """The text files that match. Matches that are left out, and folders that cannot be read, are
    recorded."""
    fixed = next(i for i, part in enumerate(pattern.parts) if glob.has_magic(part))
    deep = "**" in pattern.parts
    must_not_be_made(Path(*pattern.parts[:fixed]))
    made: list[str] = []

    def may_enter(folder: Path) -> bool:
        if walk.is_made(folder):
            made.append(legible(folder.name))
            return False
        return True

    try:
        found = sorted(matching(pattern, may_enter))
    except ValueError as e:
        advice = (
            "write ** between slashes, as in FOLDER/**/*.txt, or one *" if "**" in item else str(e)
        )
        raise UserError(f"the pattern {item} cannot be followed: {advice}") from e
    left_out += [LeftOut(name, walk.MADE) for name in sorted(made)]
    sources = []
    for path in found:
        if os.path.isdir(path):
            if not deep:
                left_out.append(LeftOut(legible(path.name), walk.UNMATCHED_FOLDER))
        elif (reason := walk.unfit(path)) is not None:
            left_out.append(LeftOut(legible(path.name), reason))
        elif (kind := _kind_of(path, path.name, left_out, NAMED, about=False)) is not None:
            sources.append(Source(legible(path.name), kind, path, in_folder=True))
    if deep:
        aside: list[LeftOut] = []
        for _ in walk.files(Path(*pattern.parts[:fixed]), aside):
            pass
        left_out += [
            one for one in aside if one.reason in (walk.LINKED_FOLDER, walk.UNREADABLE_FOLDER)
        ]
    return sources
