"""The lock of a folder: one writer at a time, whatever the verb. The kernel frees it when the
process ends, however it ends.

FOLDER/.lock holds `electrify` and the number of the process that works here. Where the file is
kept, it is empty between two writers.

A file of that name which is empty or holds only a number may belong to another program: it is
locked, but it stays and keeps its content.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ADVICE, OutputError, UserError, code_of
from ..progress import say
from .inside import must_not_be_in_a_checkpoint

LOCK = ".lock"
# Another writer may remove the file between our opening and our locking it, and this can happen
# again and again.
_TRIES = 100
_MOST_BYTES = 32  # the bytes of our word and a process number; a longer file is not a lock
_OURS = re.compile(rb"electrify ([0-9]+)\n")
_locked_here: set[Path] = set()  # POSIX locks do not keep two threads of one process apart


@contextmanager
def lock(folder: Path, *, keep: bool = False, again: bool = False) -> Iterator[None]:
    """Keeps every other writing process out of the folder, which is created if it is missing.

    keep: the lock's file stays, empty, when the work ends (that of a run, which is looked at while
    it is trained). A folder that was made here and is empty in the end is removed again. again: the
    folder was deleted with the lock that this process held. Raises UserError naming the process
    that holds the lock, if the file of that name is a link or somebody else's (it is neither
    followed nor emptied), and if the folder is a checkpoint, or inside one.
    """
    must_not_be_in_a_checkpoint(folder)
    # We may have no access to a folder above, or the one that we are in may be gone.
    with _writable(folder):
        path = Path(os.path.realpath(folder)) / LOCK
        made = not folder.exists()
    if path in _locked_here and not again:
        raise OutputError(f"{folder} is in use by this very process", "choose another --output-dir")
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        fd, new = _locked(path, folder)
    _locked_here.add(path)
    found = os.pread(fd, _MOST_BYTES, 0)
    ours = new or _OURS.fullmatch(found) is not None
    try:
        if ours or not found:
            _write(fd, f"electrify {os.getpid()}\n")
        yield
    finally:
        _locked_here.discard(path)
        if ours or not found:
            _write(fd, "")
        with suppress(OSError):  # the folder may be gone, with everything in it
            empty = made and os.listdir(path.parent) == [LOCK]
            if ours and (empty or not keep) and os.path.samestat(os.fstat(fd), os.lstat(path)):
                path.unlink()
            if empty:
                path.parent.rmdir()
        os.close(fd)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Raises UserError if the machine refuses an operation inside this context."""
    try:
        yield
    except OSError as e:
        fact = f"{folder} cannot be written ({e.strerror})"
        if advice := ADVICE.get(code_of(e)):
            raise UserError(fact, advice) from e
        raise OutputError(fact, "choose another --output-dir") from e


def _locked(path: Path, folder: Path) -> tuple[int, bool]:
    """The open and locked file, and whether it was made here. Raises UserError if another process
    has it, OSError if it cannot be opened."""
    for _ in range(_TRIES):
        fd, new = _opened(path)
        try:
            _lock(fd, folder)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    return fd, new
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its writer removed it when it ended: the lock of that file keeps nobody out
    raise OutputError(
        f"{folder} is taken by one process after the other",
        "wait for them, or choose another --output-dir",
    )


def _opened(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(FileExistsError):
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
    try:
        fd = os.open(path, flags | os.O_CREAT, 0o666)  # which may have gone in between
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise OutputError(
                f"{path} is a link and not a lock", "remove it, or choose another --output-dir"
            ) from e
        raise
    found = os.pread(fd, _MOST_BYTES + 1, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b"?"
    if (
        found.strip()
        and not _OURS.fullmatch(found)
        and not (len(found) <= _MOST_BYTES and found.strip().isdigit())
    ):
        os.close(fd)
        raise OutputError(
            f"{path} is somebody's own file and not a lock",
            "move it away, or choose another --output-dir",
        )
    return fd, False


def _lock(fd: int, folder: Path) -> None:
    try:
        # It is lockf, not flock: a forked worker that outlives a killed run would keep a flock.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as e:
        raise OutputError(
            f"{folder} is in use by process {_number(fd)}",
            "wait for it, stop it, or choose another --output-dir",
        ) from e
    except OSError as e:  # some network file systems have no locks
        say(
            f"warning: {folder} cannot be locked ({e.strerror}); see to it yourself that only one "
            "process writes there"
        )


def _number(fd: int) -> str:
    """The process number in the file, or "?"."""
    with suppress(OSError, ValueError):
        return str(int(os.pread(fd, _MOST_BYTES, 0).removeprefix(b"electrify ")))
    return "?"


def _write(fd: int, text: str) -> None:
    with suppress(OSError):  # a full disk: the lock holds all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
