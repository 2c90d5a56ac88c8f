"""The exceptions that are messages to the user.

`UserError` means: the input (file, configuration, checkpoint, request) is wrong, and the text says
what is wrong, where, and what to do. The command line prints it as one sentence and exits with
status 2. `Unfinished` means that nothing is wrong with it and the same command continues: status
75. Anything else that escapes is our own fault and keeps its stack trace.
"""

from __future__ import annotations

import difflib
import errno
import io
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

SHOWN = 12
# Errors of the operating system that only a mistake of this program causes. Every other one is a
# condition of the machine or its file systems, and may occur wherever a file is opened or written.
# A missing file (ENOENT) is among these because every reader reports that itself.
OWN_MISTAKES = {
    "ENOENT",
    "EBADF",
    "EFAULT",
    "ECHILD",
    "ESRCH",
    "ESPIPE",
    "ENOTTY",
    "ENOTSOCK",
    "EISCONN",
    "EDEADLK",
    "EDEADLOCK",
    "EDOM",
    "ERANGE",
}
# What to do beside looking at the file that a message names.
ADVICE = {
    "EMFILE": "raise the limit (ulimit -n)",
    "ENFILE": "the machine has no more to give",
    "ENOSPC": "make room and run the same command again",
    "EDQUOT": "make room and run the same command again",
    "EIO": "look at the disk",
    "ENOMEM": "choose smaller numbers, or another machine",
    "EBUSY": "unmount what is mounted there, or stop the program that uses it",
    "ESTALE": "look at the network disk, and run the same command again",
}


class UserError(ValueError):
    """One clear sentence for the user: what is wrong, where, and what to do.

    advice: what to do, where another part of the program shows it apart from the rest, or has other
    advice of its own. A sentence is never cut, for a `;` may stand anywhere in it.
    """

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(fact + f"; {advice}" * bool(advice))
        self.fact = fact
        self.advice = advice


class OutputError(UserError):
    """A folder cannot be written, or something in it is in the way. The advice is to name another
    one; who chooses folders without the user has other advice."""


class SpaceError(UserError):
    """A disk has too little room for what will be written. The advice names options of `pretrain`;
    who chooses them without the user has other advice."""


class Unfinished(Exception):  # noqa: N818 - it is not an error
    """One clear sentence about what ended the work early; the same command continues it."""


@contextmanager
def failing_as(what: str) -> Iterator[None]:
    """A context that turns whatever a library raises into a UserError that begins with `what`.
    (Some libraries raise bare Exceptions, and a panic of Rust code is not even an Exception.)"""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, UserError):
        raise
    except BaseException as e:
        raise UserError(f"{what} ({type(e).__name__}: {' '.join(str(e).split())[:200]})") from e


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a name close to a known one, otherwise the known names, or the most
    similar ones of a long list."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    if len(names) > SHOWN:
        likest = difflib.get_close_matches(name, names, n=SHOWN, cutoff=0.0)
        return f"; known: {', '.join(sorted(likest))} and {len(names) - SHOWN} more"
    return f"; known: {', '.join(names)}"


def need(ok: bool, fact: str, advice: str = "") -> None:
    """Raises UserError with the sentence if the condition is false."""
    if not ok:
        raise UserError(fact, advice)


def code_of(error: OSError) -> str:
    """The name of the system's error (`ENOSPC`), "" if it has none."""
    return errno.errorcode.get(error.errno or 0, "")


def is_of_the_machine(error: OSError) -> bool:
    """Whether the error is a condition of the machine or a file system, not a mistake of ours."""
    return code_of(error) not in {"", *OWN_MISTAKES}


def is_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. Torch raises a bare RuntimeError then, safetensors its own."""
    return isinstance(error, MemoryError) or (
        code_of(error) == "ENOMEM"
        if isinstance(error, OSError)
        else not isinstance(error, UserError)
        and any(sign in str(error) for sign in ("can't allocate memory", "Cannot allocate memory"))
    )


def place_of(error: OSError) -> str:
    """The file on which the machine failed. An error of opening contains the file's name. An error
    of writing does not; there it is the open file of the innermost function on the stack."""
    if isinstance(error.filename, str | bytes | os.PathLike):
        return os.fsdecode(error.filename)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    found = (name for frame in reversed(frames) for name in written_in(frame))
    return next(found, "standard output, or a file that was being written")


def written_in(frame: FrameType) -> Iterator[str]:
    """Names of the files that a function, or its object, has opened for writing (and may have
    closed since, as a `with` statement does)."""
    held = [*frame.f_locals.values(), *getattr(frame.f_locals.get("self"), "__dict__", {}).values()]
    for file in held:
        if isinstance(file, io.IOBase) and set(str(getattr(file, "mode", "r"))) & set("wax+"):
            name = getattr(file, "name", None)
            if isinstance(name, str | os.PathLike):
                yield "standard output" if name == "<stdout>" else os.fspath(name)
