"""The only way in which foreign files are opened: they must be regular files inside their folder,
and their size is checked before a byte is read.

| what lies there                       | what would follow without this           |
|---------------------------------------|------------------------------------------|
| a pipe, a socket, a device            | a read that never ends                   |
| a file of the kernel that waits       | a read that never ends                   |
| for news (/proc/kmsg)                 |                                          |
| a link that leads out of the folder   | a secret of this machine is read, and    |
|                                       | copied into what is published            |
| a sparse file of many gigabytes       | the memory fills                         |
| JSON with NaN, a key twice, 10^5      | values that nobody wrote, or a stack     |
| brackets                              | trace                                    |

A folder of the Hub's cache (models--ORG--NAME/snapshots/HASH) holds links to ../../blobs: those are
inside.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ADVICE, UserError, code_of, is_of_the_machine

MB = 1 << 20
# A manifest of 100 000 shards and the largest published tokenizer.json have about 40 MB each.
MAX_JSON_BYTES = 1 << 27
ITSELF = "put the file itself there"
_CACHES = ("models--", "datasets--", "spaces--")  # how huggingface_hub names what it downloaded
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
READABLE = "make sure that you may read it"
# Errors by which the system says what is there, or that no file can be there.
_OF_WHAT_IS_THERE = {"ELOOP", "ENOTDIR", "EISDIR", "ENAMETOOLONG", "EINVAL", "ENXIO", "EAGAIN"}


class FileError(UserError):
    """A file that is not read. `why` is the reason without the file's name, `advice` what to do."""

    def __init__(self, path: Path, why: str, advice: str = "") -> None:
        super().__init__(f"{path} {why}", advice)
        self.path = path
        self.why = why


class MissingError(FileError):
    """There is nothing of that name."""


class TooLargeError(FileError):
    """The file is larger than any such file should be."""


class UnreadableError(FileError):
    """The machine does not let us read the file, which may be undamaged: a permission, too many
    open files, a disk that fails. There is always advice."""

    @property
    def code(self) -> str:
        """The name of the system's error."""
        return code_of(self.__cause__) if isinstance(self.__cause__, OSError) else ""


def open_regular(
    path: Path, *, within: Path | None = None, limit: int | None = None
) -> io.BufferedReader:
    """The file, opened for reading bytes.

    within: the folder that it must lie in when every link has been followed. limit: its size in
    bytes at most. Raises FileError.
    """
    real = must_be_regular(path, within=within, limit=limit)
    try:
        # This looks again, for the name may have been given to another file since.
        return _opened(real, _OPEN | _NO_LINK, path)
    except OSError as e:
        raise unreadable(path, e) from e


def opened(path: Path) -> io.BufferedReader:
    """A regular file that the user named, wherever links lead, opened for reading bytes. Nothing is
    waited for. Raises FileError for a pipe or a device, and OSError if opening, or reading later,
    fails.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return _opened(path, _OPEN, path)


def _opened(real: Path, flags: int, path: Path) -> io.BufferedReader:
    descriptor = os.open(real, flags)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise FileError(path, f"is {_kind(mode)}, not a file", ITSELF)
    return io.BufferedReader(_Ready(descriptor, "rb"), io.DEFAULT_BUFFER_SIZE)


class _Ready(io.FileIO):
    """A file opened so that reading does not wait. One that has nothing yet, such as the kernel's
    log, is refused and not taken for empty."""

    def readinto(self, buffer: Any, /) -> int:
        read = super().readinto(buffer)
        if read is None:
            raise OSError(errno.EAGAIN, "it waits for what is to come, as a pipe does")
        return read

    def readall(self) -> bytes:
        parts = []
        while data := self.read(MB):
            parts.append(data)
        return b"".join(parts)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        data = bytearray(size)
        return bytes(data[: self.readinto(data)])


def must_be_regular(path: Path, *, within: Path | None = None, limit: int | None = None) -> Path:
    """Where the file really is. Nothing is opened. Raises FileError like `open_regular`."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        facts = os.stat(real)
    except FileNotFoundError as e:
        if os.path.islink(path):
            raise FileError(path, "is a link that leads nowhere", ITSELF) from e
        raise MissingError(path, "is missing") from e
    except (OSError, ValueError) as e:  # a circle of links, a name with a zero byte
        raise unreadable(path, e) from e
    if not stat.S_ISREG(facts.st_mode):
        raise FileError(path, f"is {_kind(facts.st_mode)}, not a file", ITSELF)
    if within is not None and not is_inside(real, within):
        raise FileError(path, "is a link that leads out of its folder", ITSELF)
    if limit is not None and facts.st_size > limit:
        why = f"has {_size(facts.st_size)}, and such a file has at most {_size(limit)}"
        raise TooLargeError(path, why)
    return real


def is_regular(path: Path, *, within: Path | None = None) -> bool:
    """Whether `open_regular` would open it. Raises UnreadableError if we may not look."""
    try:
        must_be_regular(path, within=within)
    except UnreadableError:
        raise
    except FileError:
        return False
    return True


def is_inside(real: Path, folder: Path) -> bool:
    """Whether a path without links is in a folder, or in the blobs that a snapshot of the Hub's
    cache links to."""
    return any(real.is_relative_to(root) for root in _roots(Path(os.path.realpath(folder))))


def _roots(folder: Path) -> Iterator[Path]:
    yield folder
    for one in (folder, *folder.parents):
        if one.parent.name == "snapshots" and one.parent.parent.name.startswith(_CACHES):
            yield one.parent.parent / "blobs"


def read_bytes(path: Path, *, limit: int = MAX_JSON_BYTES, within: Path | None = None) -> bytes:
    """All of a file of at most `limit` bytes. Raises FileError."""
    with open_regular(path, within=within, limit=limit) as f:
        try:
            data = f.read(limit + 1)
        except OSError as e:
            raise unreadable(path, e) from e
    if len(data) > limit:  # it grows
        raise TooLargeError(path, f"has more than {_size(limit)}")
    return data


def read_text(path: Path, *, limit: int = MAX_JSON_BYTES, within: Path | None = None) -> str:
    """The text of a UTF-8 file. Raises FileError."""
    try:
        return read_bytes(path, limit=limit, within=within).decode("utf-8")
    except UnicodeDecodeError as e:
        raise FileError(path, f"is not UTF-8 text (byte {e.start})") from e


def read_json(
    path: Path, *, limit: int = MAX_JSON_BYTES, within: Path | None = None, repeats: bool = False
) -> Any:
    """The content of a JSON file. repeats: whether a key may occur twice (the last counts). Raises
    FileError."""
    return json_of(read_bytes(path, limit=limit, within=within), path, repeats=repeats)


def read_object(
    path: Path, *, limit: int = MAX_JSON_BYTES, within: Path | None = None, repeats: bool = False
) -> dict[str, Any]:
    """The JSON object in a file. Raises FileError, also for other JSON."""
    found = read_json(path, limit=limit, within=within, repeats=repeats)
    if not isinstance(found, dict):
        raise FileError(path, f"holds {type(found).__name__}, not a JSON object")
    return found


def json_of(data: bytes | str, path: Path, *, repeats: bool = False, finite: bool = True) -> Any:
    """Bytes or text of a file as JSON. repeats: whether a key may occur twice; finite: whether NaN
    and Infinity are refused. Raises FileError."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(
            text,
            parse_constant=_constant if finite else None,
            parse_float=_finite if finite else None,
            object_pairs_hook=None if repeats else each_once,
        )
    except RecursionError as e:
        raise FileError(path, "is not JSON (nested too deeply)") from e
    # Bytes that are not UTF-8 and integers of thousands of digits raise it, too.
    except ValueError as e:
        raise FileError(path, f"is not JSON ({' '.join(str(e).split())[:120]})") from e


def sha256_of(path: Path, *, within: Path | None = None) -> str:
    """The hash of a file's content. Raises FileError."""
    with open_regular(path, within=within) as f:
        try:
            return hashlib.file_digest(f, "sha256").hexdigest()
        except OSError as e:
            raise unreadable(path, e) from e


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError if a key occurs twice, because a value would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:40]!r} occurs twice")
    return found


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return name
    return "a device"


def _size(n: int) -> str:
    return f"{n / MB:,.0f} MB" if n >= MB else f"{n:,} bytes"


def unreadable(path: Path, error: Exception) -> FileError:
    """What to raise for an error in opening or reading a file."""
    why = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if (
        not isinstance(error, OSError)
        or not is_of_the_machine(error)
        or code_of(error) in _OF_WHAT_IS_THERE
    ):
        return FileError(path, why)
    mine = isinstance(error, PermissionError)
    advice = READABLE if mine else ADVICE.get(code_of(error), "look at the disk")
    return UnreadableError(path, why, advice)
