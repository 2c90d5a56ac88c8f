"""The exceptions that are messages to the user.

`UserError` means: the input (file, configuration, checkpoint, request) is wrong, and the text says
what is wrong, where, and what to do. The command line prints it as one sentence and exits with
status 2. `Unfinished` means that nothing is wrong with it and the same command continues: status
75. Anything else that escapes is our own fault and keeps its stack trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class UserError(ValueError):
    """What is wrong, and where, and what to do, in one or two sentences.

    advice: what to do, where another part of the program shows it apart from the rest, or has other
    advice of its own. It is a sentence of its own.
    """

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(fact + f". {advice[:1].upper()}{advice[1:]}" * bool(advice))
        self.fact = fact
        self.advice = advice


class Unfinished(Exception):  # noqa: N818 - it is not an error
    """One clear sentence about what ended the work early; the same command continues it."""


@contextmanager
def failing_as(what: str) -> Iterator[None]:
    """A context that turns whatever a library raises into a UserError that begins with `what`, but
    for a lack of memory. (Some libraries raise bare Exceptions, and a panic of Rust code is not
    even an Exception.)"""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, UserError):
        raise
    except BaseException as e:
        if is_of_memory(e):
            raise
        raise UserError(f"{what} ({type(e).__name__}: {' '.join(str(e).split())[:200]})") from e


def need(ok: bool, fact: str, advice: str = "") -> None:
    """Raises UserError with the sentence if the condition is false."""
    if not ok:
        raise UserError(fact, advice)


def must_have(what: str, extra: str, *packages: str) -> None:
    """Raises UserError with the command that installs an extra of electrify, if packages of it are
    missing. what: needs them."""
    missing = [name for name in packages if find_spec(name) is None]
    need(not missing, f"{what} needs {' and '.join(missing)}: pip install 'electrify[{extra}]'")


def is_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of which torch and safetensors tell by errors of other kinds."""
    text = str(error)
    said = "allocate memory" in text or "out of memory" in text
    return isinstance(error, MemoryError) or (said and not isinstance(error, UserError))
