"""The log of a cell: only a file of our own is written to, and only its end is read."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

from ..errors import UserError
from ..oldfiles.folders import open_own
from ..oldfiles.reading import UnreadableError

LOG = "log.txt"
TAIL = 1 << 14


def opened_log(path: Path) -> IO[bytes]:
    """The log, opened to be lengthened. Raises UserError for a link, a pipe, a device and a file
    that has a second name elsewhere."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _not_a_log(path) from e
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(fd)
        raise _not_a_log(path)
    return os.fdopen(fd, "ab")


def _not_a_log(path: Path) -> UserError:
    return UserError(f"{path} is not a log that electrify compare wrote; move it away")


def own_tail(path: Path, since: int = 0) -> bytes:
    """The last bytes of a regular file from byte `since` on; nothing if it is anything else, or
    cannot be read: they are only shown, and no study ends for lack of them."""
    with suppress(UnreadableError, OSError):
        stream = open_own(path)
        if stream is not None:
            with stream:
                stream.seek(max(since, os.fstat(stream.fileno()).st_size - TAIL))
                return stream.read(TAIL)
    return b""
