"""The manifest of a checkpoint folder: what is in it, with sizes and hashes, and whether the folder
is as it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..console import brief
from ..oldfiles.reading import FileError, UnreadableError, must_be_regular, read_object, sha256_of
from ..oldfiles.run_folder import NUMBERED
from ..oldfiles.schema import Count, FileName, SchemaError, check, is_file_name

MANIFEST = "manifest.json"
STATE = "state.json"
FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """A file of a checkpoint."""

    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Contents:
    """The manifest of a checkpoint."""

    format: int
    step: Count
    files: dict[FileName, Entry]


def why_bad(path: Path, *, hashes: bool = True) -> str | None:
    """What is wrong with a checkpoint folder, or None. Without `hashes` only the names and sizes of
    files are checked."""
    try:
        return damage(path, hashes=hashes)
    except UnreadableError as e:
        return f"{e.path.name} {e.why}"


def damage(path: Path, *, hashes: bool = True) -> str | None:
    """As `why_bad`. Raises UnreadableError for a file that may be sound, but that the machine does
    not let us read."""
    try:
        manifest = contents_of(path)
        match = NUMBERED.fullmatch(path.name)
        if match and int(match[1]) != manifest.step:
            return f"{MANIFEST} is of step {manifest.step!r}"
        if STATE not in manifest.files:
            return f"{MANIFEST} does not list {STATE}"
        for name, want in manifest.files.items():
            size = must_be_regular(path / name, within=path.parent).stat().st_size
            if size != want.bytes:
                return f"{name} has {size} bytes where {MANIFEST} says {want.bytes}"
            if hashes and sha256_of(path / name, within=path.parent) != want.sha256:
                return f"{name} does not have the hash in {MANIFEST}"
    except UnreadableError as e:
        if e.code != "EIO":
            raise
        return f"{e.path.name} {e.why}"  # a disk loses sectors
    except FileError as e:
        return f"{e.path.name} {e.why}" if path.is_dir() else "it is not a folder"
    except OSError as e:  # removed meanwhile
        return f"{Path(e.filename or path).name} cannot be read ({e.strerror})"
    except SchemaError as e:
        return f"{MANIFEST} is damaged: {e.what}"
    return None


def written_here(path: Path) -> frozenset[str] | None:
    """The names of the files that we put into a checkpoint folder, according to its own manifest.
    None if the manifest does not tell: the folder is not ours, or it is too damaged to know."""
    match = NUMBERED.fullmatch(path.name)
    if path.is_symlink() or not path.is_dir():
        return None
    try:
        manifest = contents_of(path)
    except (FileError, SchemaError, OSError):
        return None
    ours = STATE in manifest.files and (match is None or int(match[1]) == manifest.step)
    return frozenset({MANIFEST, *manifest.files}) if ours else None


def contents_of(path: Path) -> Contents:
    """The manifest of a checkpoint folder, which must lie in its run. Raises FileError and
    SchemaError."""
    raw = read_object(path / MANIFEST, within=path.parent)
    if raw.get("format") != FORMAT:
        raise FileError(
            path / MANIFEST, f"has format {brief(raw.get('format'))}, this version reads {FORMAT}"
        )
    files = raw.get("files")
    odd = (
        next((name for name in files if not is_file_name(name)), None)
        if isinstance(files, dict)
        else None
    )
    if odd is not None:
        raise FileError(path / MANIFEST, f"names {odd!r}, which is not a file of this folder")
    return check(Contents, raw, MANIFEST)
