"""The inputs named by the user -> sources, in an order that does not depend on the file system. A
source is a file, the corpus `pydocs`, or a data set."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files.reading import opened
from . import walk
from .endings import FORMATS, LOGS, SOURCE_CODE, Format, format_of
from .patterns import matching
from .streams import COMPRESSIONS, compression_of
from .walk import LeftOut

PYDOCS = "pydocs"
HUB = "hub:"
NAMED = SOURCE_CODE | LOGS  # text where the user asks for it by name or pattern
# Files that describe a corpus and are not part of it. They are used only if the user names them.
_ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|notice|changelog|contributing|code_of_conduct)(\..*)?",
    re.IGNORECASE,
)
_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?(:[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """One input. `name` goes into the manifest: relative, never an absolute path."""

    name: str
    format: Format
    path: Path = Path()
    hub: str = ""
    """data set name or a local folder, followed by `:CONFIG` if one was given"""
    in_folder: bool = False
    """found in a folder or by a glob, not named by the user"""

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if unknown."""
        try:
            return self.path.stat().st_size if self.path.name else 0
        except OSError as e:
            raise UserError(f"{self.path} cannot be read: {e.strerror or e}") from e

    def stamp(self) -> tuple[int, int, int, int] | None:
        """Size, modification time, number and change time, which tell whether the file is
        unchanged. None if it is not a file, or gone."""
        try:
            status = self.path.stat() if self.path.name else None
        except OSError:
            return None
        return (
            (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
            if status
            else None
        )

    def identity(self) -> dict[str, Any]:
        """name, bytes and sha256: whether this is the same input as before. A data set is known by
        its name only, unless it is a folder here."""
        if self.format == "hub":
            return {"name": self.name} | walk.identity_of(Path(self.hub.partition(":")[0]))
        if self.format == "pydocs":
            from .pydocs import identity

            return {"name": self.name, "bytes": 0, "sha256": identity()}
        try:
            with opened(self.path) as f:
                return {
                    "name": self.name,
                    "bytes": self.size,
                    "sha256": hashlib.file_digest(f, "sha256").hexdigest(),
                }
        except OSError as e:
            raise UserError(f"{self.path} cannot be read: {e.strerror or e}") from e


class _Places:
    """The places of files. Each folder is looked up only once: following the path from the root for
    every file takes time that grows with the square of the depth."""

    def __init__(self, made: Path | None) -> None:
        self._made = walk.place_of(made)
        self._inside: dict[Path, bool] = {}

    def key(self, path: Path) -> object:
        """A key that is equal for two names of the same file: its folder and its name there, with
        links followed."""
        real = Path(os.path.realpath(path)) if path.is_symlink() else path
        return walk.place_of(real.parent) or str(real.parent), real.name

    def in_made(self, path: Path) -> bool:
        """Whether a file is inside the output folder, at any depth."""
        if self._made is None:
            return False
        real = Path(os.path.realpath(path)) if path.is_symlink() else path
        above: list[Path] = []
        found = False
        for folder in real.absolute().parents:
            if folder in self._inside:
                found = self._inside[folder]
                break
            above.append(folder)
            if walk.place_of(folder) == self._made:
                found = True
                break
        self._inside |= dict.fromkeys(above, found)
        return found


def resolve(
    inputs: tuple[str, ...],
    *,
    output: Path | None = None,
    further: frozenset[str] = frozenset(),
) -> tuple[list[Source], list[LeftOut]]:
    """The sources in order, each file once; and the names that were found in folders or by patterns
    and left out, with the reasons (walk.py).

    output: the output folder, whose files are not input even if it is inside an input folder.
    further: endings of text in folders beside the known ones; source code and logs that are named,
    or asked for by a pattern, are text anyway.
    Raises UserError for an input that does not exist or holds no text.
    """
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    places = _Places(output)
    for item in inputs:
        found = _resolve_one(item, left_out, output, further)
        kept = [s for s in found if not (s.in_folder and places.in_made(s.path))]
        if found and not kept:
            raise UserError(
                f"all text of {item} lies in the output folder, whose files are not input; choose "
                "another --output-dir"
            )
        sources += kept
    seen: set[object] = set()
    once = []
    for source in sources:
        key = places.key(source.path) if source.path.name else source.name
        if key not in seen:
            seen.add(key)
            once.append(source)
    return once, left_out


def _resolve_one(
    item: str, left_out: list[LeftOut], output: Path | None, further: frozenset[str]
) -> list[Source]:
    if item == PYDOCS:
        return [Source(PYDOCS, "pydocs")]
    if item.startswith(HUB):
        return [_hub(item[len(HUB) :])]
    try:
        path = Path(item).expanduser()
    except RuntimeError:
        raise UserError(
            f"{item}: no user of this name has a home folder here; write the path out"
        ) from None
    if path.is_dir():
        return _folder(path, item, left_out, output, further)
    if path.exists():
        if not path.is_file():  # never open anything on which we would have to wait
            raise UserError(
                f"{path} is a pipe or a device; a corpus is read several times, so write it to a "
                "file first"
            )
        kind = format_of(path, NAMED)
        if kind is None:
            raise UserError(
                f"{path} is not of a known kind; known endings: {', '.join(FORMATS)}, each but "
                f".parquet also with {', '.join(COMPRESSIONS)}; and those of source code and logs"
            )
        return [Source(legible(path.name), kind, path)]
    if glob.has_magic(item):
        sources = _pattern(path, item, left_out)
        if not sources:
            raise UserError(f"no text file matches {item!r}")
        return sources
    # It is a mistyped name, and not a name on the Hub, which would take half a minute to say so.
    beside_a_folder = "/" in item and path.parent.is_dir()
    if format_of(path) is None and not beside_a_folder and _HUB_NAME.fullmatch(item):
        return [_hub(item)]
    raise UserError(f"no such file or folder: {item}")


def legible(name: str) -> str:
    """A file name as text. Bytes that are not UTF-8 are escaped, because the manifest is UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _hub(name: str) -> Source:
    if not name:
        raise UserError("`hub:` needs the name of a data set, as in hub:wikitext:wikitext-2-raw-v1")
    shown = Path(name).name if Path(name.split(":")[0]).is_absolute() else name
    return Source(HUB + shown, "hub", hub=name)


def _folder(
    folder: Path,
    item: str,
    left_out: list[LeftOut],
    output: Path | None,
    further: frozenset[str],
) -> list[Source]:
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
    else:
        reason = _empty_or_gone(path)
    if reason:
        left_out.append(LeftOut(legible(name), reason))
    return None if reason else kind


def _empty_or_gone(path: Path) -> str:
    """Why a file that was found cannot hold text; empty if it can."""
    try:
        empty = path.stat().st_size == 0
    except OSError:
        return walk.UNREADABLE
    # An empty archive is damaged, and reading it reports that.
    return walk.EMPTY if empty and not compression_of(path) else ""


def _pattern(pattern: Path, item: str, left_out: list[LeftOut]) -> list[Source]:
    """The text files that match. Matches that are left out, and folders that cannot be read, are
    recorded."""
    fixed = next(i for i, part in enumerate(pattern.parts) if glob.has_magic(part))
    deep = "**" in pattern.parts
    try:
        found = sorted(matching(pattern))
    except ValueError as e:
        advice = (
            "write ** between slashes, as in FOLDER/**/*.txt, or one *" if "**" in item else str(e)
        )
        raise UserError(f"the pattern {item} cannot be followed: {advice}") from e
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
