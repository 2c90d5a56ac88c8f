"""The inputs named by the user -> sources, in an order that does not depend on the file system."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from ..errors import UserError
from .endings import FORMATS, format_of
from .found import NAMED, by_pattern, in_folder
from .source import Source, legible
from .streams import COMPRESSIONS
from .walk import LeftOut

PYDOCS = "pydocs"
HUB = "hub:"
_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?(:[\w.-]+)?")


def _lies_in(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.resolve().is_relative_to(folder.resolve())


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
    for item in inputs:
        found = _resolve_one(item, left_out, output, further)
        kept = [s for s in found if not (s.in_folder and _lies_in(s.path, output))]
        if found and not kept:
            raise UserError(
                f"all text of {item} lies in the output folder, whose files are not input; choose "
                "another --output-dir"
            )
        sources += kept
    seen: set[object] = set()
    once = []
    for source in sources:
        key = source.path.resolve() if source.path.name else _hub_key(source)
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
        return [_hub(item[len(HUB) :], output)]
    path = _at_home(item)
    if path.is_dir():
        return in_folder(path, item, left_out, output, further)
    if path.exists():
        kind = format_of(path, NAMED)
        if kind is None:
            raise UserError(
                f"{path} is not of a known kind; known endings: {', '.join(FORMATS)}, each but "
                f".parquet also with {', '.join(COMPRESSIONS)}; and those of source code and logs"
            )
        return [Source(legible(path.name), kind, path)]
    if glob.has_magic(item):
        sources = by_pattern(path, item, left_out)
        if not sources:
            raise UserError(f"no text file matches {item!r}")
        return sources
    # The Hub is asked only where hub: says so: for a mistyped folder that would take a minute.
    beside_a_folder = "/" in item and path.parent.is_dir()
    may_be_meant = format_of(path) is None and not beside_a_folder and _HUB_NAME.fullmatch(item)
    hint = f"; a data set of the Hub is written {HUB}{item}" if may_be_meant else ""
    raise UserError(f"no such file or folder: {item}{hint}")


def _at_home(item: str) -> Path:
    """A path in which ~ is the folder of a user."""
    try:
        return Path(item).expanduser()
    except RuntimeError:
        raise UserError(
            f"{item}: no user of this name has a home folder here; write the path out"
        ) from None


def _hub(name: str, output: Path | None) -> Source:
    if not name:
        raise UserError("`hub:` needs the name of a data set, as in hub:wikitext:wikitext-2-raw-v1")
    if name.startswith("~"):
        name = str(_at_home(name))
    folder = name.partition(":")[0]
    real = Path(os.path.realpath(output or ""))
    # Also if it is not there yet: afterwards it would be taken for the data set.
    if folder and output is not None and real.is_relative_to(os.path.realpath(folder)):
        raise UserError(
            f"the output folder {output} lies in the folder of the data set {HUB}{name}, all of "
            "which is read; choose another --output-dir"
        )
    shown = Path(name).name if Path(folder).is_absolute() else name
    return Source(HUB + shown, "hub", hub=name)


def _hub_key(source: Source) -> object:
    """A key that is equal for two names of the same data set: a folder here, or a name."""
    name, _, configuration = source.hub.partition(":")
    return source.format, str(Path(name).resolve()) if Path(name).is_dir() else name, configuration
