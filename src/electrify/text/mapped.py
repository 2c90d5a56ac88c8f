"""Reads memory-mapped files that somebody may truncate, change or replace meanwhile.

A process that touches a mapped page beyond the end of its file, or one that the disk cannot read,
is killed by SIGBUS, and no handler in Python can report that. If the kernel itself touches such a
page, it gets an error instead (EFAULT). So the kernel copies: one system call writes all pieces of
a batch from the maps into a file in memory, from which they are read. This leaves no time between a
check and the reading in which the file could change, and it does not cost more than numpy's own
concatenation.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..oldfiles.folders import sha256

AT_ONCE = 1024  # pieces per system call: IOV_MAX of Linux
AGAIN = "put it back or prepare the corpus again, then run the same command again to continue"
_scratch = threading.local()  # one file in memory for each reading thread


@dataclass(frozen=True)
class Named:
    """A file, the number of its items and the hash of its bytes, according to a manifest."""

    path: Path
    items: int
    sha256: str


class MappedFiles:
    """Memory-mapped files of one dtype. Raises UserError if a file has the wrong size, and OSError
    if it does not exist."""

    def __init__(self, files: list[Named], dtype: np.dtype[Any]) -> None:
        self.files = files
        self.dtype = dtype
        found = [_opened(file.path, dtype) for file in files]
        self.arrays = [array for array, _ in found]
        self._identities = [identity for _, identity in found]
        for file, identity in zip(files, self._identities, strict=True):
            self._require_size(file, identity.size)

    def read(self, pieces: list[np.ndarray]) -> np.ndarray:
        """Pieces of `arrays`, concatenated. Raises UserError if a file was truncated since it was
        opened, or if its disk fails."""
        try:
            return joined(pieces)
        except OSError as e:
            if e.errno == errno.EFBIG:
                raise UserError(
                    "a batch is read through a file in memory, and the limit on the size of files "
                    "(ulimit -f) does not let it be made; raise the limit, then run the same "
                    "command again to continue"
                ) from e
            list(self.lost())  # a better sentence, where a file was cut
            raise UserError(
                f"{self.files[0].path.parent} cannot be read any more ({e.strerror}); {AGAIN}"
            ) from e

    def lost(self) -> Iterator[str]:
        """A sentence for each name that now leads to another file than the open one, or to none.
        The open file is still read as it was.

        Raises UserError if the open file was changed or truncated, because then nobody knows what
        was read from it.
        """
        for number, (file, before) in enumerate(zip(self.files, self._identities, strict=True)):
            try:
                now = _identity(os.stat(file.path))
            except OSError as e:
                yield f"{file.path} cannot be found any more ({e.strerror})"
                continue
            same_file = (now.device, now.inode) == (before.device, before.inode)
            if same_file:
                self._require_size(file, now.size)
            if now == before:
                continue
            if now.size == before.size and sha256(file.path) == file.sha256:
                self._identities[number] = now  # only touched, or replaced by a copy
            elif same_file:
                raise UserError(f"{file.path} was changed while it was read; {AGAIN}")
            else:
                yield f"{file.path} was replaced by another file"

    def _require_size(self, file: Named, size: int) -> None:
        if size != file.items * self.dtype.itemsize:
            wanted = file.items * self.dtype.itemsize
            raise UserError(
                f"{file.path} has {size} bytes where the manifest says {wanted}: it was cut while "
                f"it was read; {AGAIN}"
            )


@dataclass(frozen=True)
class Identity:
    """Tells whether a name still leads to the same file with the same content."""

    device: int
    inode: int
    size: int
    changed_ns: int


def _identity(found: os.stat_result) -> Identity:
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _opened(path: Path, dtype: np.dtype[Any]) -> tuple[np.ndarray, Identity]:
    with path.open("rb") as f:
        identity = _identity(os.fstat(f.fileno()))
        return (
            np.memmap(f, dtype=dtype, mode="r") if identity.size else np.empty(0, dtype)
        ), identity


class _MemoryFile:
    """A file in memory that is gone with the thread that has it."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("electrify-batch")

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.fd)


def joined(pieces: list[np.ndarray]) -> np.ndarray:
    """The pieces (1-dimensional, of one dtype), concatenated. Raises OSError if one of them is in a
    page that no longer exists."""
    if not pieces:
        return np.empty(0, np.uint16)
    if not hasattr(os, "memfd_create"):  # not Linux: without the protection
        return np.concatenate(pieces)
    if not hasattr(_scratch, "file"):
        _scratch.file = _MemoryFile()
    fd = _scratch.file.fd
    wanted = sum(piece.nbytes for piece in pieces)
    done = 0
    for first in range(0, len(pieces), AT_ONCE):
        some: Any = pieces[first : first + AT_ONCE]  # any buffer is accepted
        done += os.pwritev(fd, some, done)
    if done < wanted:
        os.pwrite(fd, b"\0", done)  # raises where it is the file that may not grow
    data = os.pread(fd, wanted, 0) if done == wanted else b""
    if len(data) != wanted:
        raise OSError(None, "a part of it is no longer there")
    return np.frombuffer(data, pieces[0].dtype)
