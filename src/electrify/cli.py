"""The command line: words to a verb, and how a mistake ends.

Exit status: 0 done, 1 `doctor` found an error, 2 a mistake of the user, or a machine that has no
room or permission (one sentence on stderr), 75 stopped (run again to continue), 128 and the
signal's number where a verb that begins anew was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import re
import signal
import sys
from typing import NamedTuple, NoReturn

from .config.verbs import parser
from .cores import wait_briefly
from .errors import Unfinished, UserError, place_of
from .progress import say
from .train.signals import SAVED_EXIT, Interruptible
from .verbs import VERBS

# Verbs that the same command continues where they were stopped.
CONTINUE = {"prepare", "pretrain", "finetune", "demo"}
# What the machine refuses, wherever a file is opened or written. A file that is not there (ENOENT)
# is not such a case: every reader says that itself.
REFUSALS = {
    "ENOSPC",
    "EDQUOT",
    "EFBIG",
    "EROFS",
    "EACCES",
    "EPERM",
    "EIO",
    "ENOTDIR",
    "EISDIR",
    "EEXIST",
    "ENAMETOOLONG",
    "ELOOP",
    "EMFILE",
    "ENFILE",
}
# What helps beside the name of the file.
ADVICE = {"EMFILE": "; raise the limit (ulimit -n)", "ENFILE": "; the machine has no more to give"}
# In the environment of a process that `keep_docstrings` has started.
RESTARTED = "ELECTRIFY_RESTARTED"
HOSTILE = "its tokenizer.json is damaged or hostile"
MAX_SENTENCE = 700  # a message repeats names of others, which may be of any length


def program() -> NoReturn:
    """What `electrify` and `python -m electrify` run."""
    wait_briefly()
    keep_docstrings()
    status = main()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # DDP keeps gloo's threads beyond the end of their group. One that still lets go of a tensor
        # when the interpreter ends aborts the process (pytorch pull request 179291), and torchrun
        # calls a run failed that is done. All is flushed and closed: leave without that end.
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def keep_docstrings() -> None:
    """Starts Python once more where it strips docstrings (PYTHONOPTIMIZE=2, -OO): transformers
    builds its classes from theirs and fails without."""
    if sys.flags.optimize < 2 or os.environ.get(RESTARTED):
        return
    words = sys.orig_argv[1:]
    at = next(
        (
            i
            for i, word in enumerate(words)
            if not word.startswith("-") or word in ("-m", "-c", "-X", "-W")
        ),
        len(words),
    )
    options = ["-O" if word.startswith("-OO") else word for word in words[:at]]
    command = [sys.executable, *options, *words[at:]]
    environment = os.environ | {"PYTHONOPTIMIZE": "1", RESTARTED: "1"}
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell is needed


def main(argv: list[str] | None = None) -> int:
    for name in ("stdout", "stderr"):
        # Closed by the shell (`>&-`): or the next file that is opened would take its place.
        if getattr(sys, name) is None:
            # It stays open until the process ends.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An output that cannot say a character of the text (LC_ALL=C).
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = run(parser().parse_args(argv))
    except BrokenPipeError:  # `| head`
        status = 0
    return flushed(status)


def run(args: argparse.Namespace) -> int:
    """The status of a verb; every mistake as one sentence."""
    try:
        with Interruptible():
            return VERBS[args.verb](args)
    except BrokenPipeError:
        raise
    except BaseException as e:
        ending = ending_of(e, args.verb)
        if ending is None:
            raise
    sentence = ending.sentence
    if ending.status == 2 and not is_here():
        sentence = (
            "the folder in which this command was started has been deleted; go to one that is there"
        )
    if len(sentence) > MAX_SENTENCE:
        sentence = f"{sentence[: MAX_SENTENCE // 2]} ... {sentence[-MAX_SENTENCE // 2 :]}"
    say(f"electrify {args.verb}: {sentence}")
    return ending.status


class Ending(NamedTuple):
    """How a verb that could not be done ends."""

    sentence: str
    status: int


def ending_of(e: BaseException, verb: str) -> Ending | None:
    """The ending that an exception makes; None where the exception is our own fault and keeps its
    stack trace."""
    match e:
        case UserError():
            return Ending(str(e), 2)
        case Unfinished():
            return Ending(str(e), SAVED_EXIT)
        case KeyboardInterrupt():
            return stopped(str(e) or "SIGINT", verb)
        case MemoryError():
            return Ending("memory ran out: choose smaller numbers, or another machine", 2)
        case OSError():
            code = errno.errorcode.get(e.errno or 0, "")
            refused = code in REFUSALS or not is_here()
            said = f"{place_of(e)}: {e.strerror}{ADVICE.get(code, '')}"
            return Ending(said, 2) if refused else None
    # How the Rust code of tokenizers gives up: nobody else raises these.
    if type(e).__name__ == "PanicException" or type(e) is Exception:
        return panicked(e)
    return None


def stopped(signal_name: str, verb: str) -> Ending:
    """The ending of a verb that a signal stopped."""
    if verb in CONTINUE:
        again = f"stopped by {signal_name}; run the same command again to continue"
        return Ending(again, SAVED_EXIT)
    # The status is what a shell makes of a program that the signal ended.
    return Ending(f"stopped by {signal_name}", 128 + signal.Signals[signal_name])


def panicked(e: BaseException) -> Ending:
    """The ending of a panic in Rust code: the machine refused something, or the file is hostile."""
    said = " ".join(str(e).split())[:200]
    # How Rust writes down what the machine refused.
    if re.search(r"\(os error \d+\)", said):
        return Ending(f"a file could not be written or read ({said})", 2)
    return Ending(f"the tokenizer failed ({said}): {HOSTILE}", 2)


def is_here() -> bool:
    """Whether the folder in which we work is still there: without it no relative path leads
    anywhere."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def flushed(status: int) -> int:
    """The status, once standard output has taken everything. Where it cannot, it leads nowhere from
    then on, or the interpreter would complain."""
    try:
        sys.stdout.flush()
    except OSError as e:
        if not isinstance(e, BrokenPipeError) and not status:
            say(f"electrify: standard output cannot be written: {e.strerror or e}")
            status = 2
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return status
