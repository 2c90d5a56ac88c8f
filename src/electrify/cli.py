"""The command line: runs the verb that the arguments name, and turns errors into messages and
statuses.

Exit status: 0 done, 1 `doctor` found an error or a run of `compare` failed, 2 a mistake of the
user, or a lack of space or permission on the machine (one sentence on stderr), 75 stopped (run
again to continue), 128 plus the signal's number if a verb was stopped that cannot be continued.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
from typing import NamedTuple, NoReturn

from .config.rows import OWN_ROWS
from .config.verbs import parser
from .cores import wait_briefly
from .errors import (
    ADVICE,
    Unfinished,
    UserError,
    code_of,
    is_of_memory,
    is_of_the_machine,
    place_of,
)
from .progress import say
from .train.signals import SAVED_EXIT, Stop

# Verbs that the same command continues after they were stopped.
CONTINUE = {"prepare", "pretrain", "finetune", "compare", "demo"}
HOSTILE = "its tokenizer.json is damaged or hostile"
MAX_SENTENCE = 700  # a message repeats names given by others, which may be of any length


def program() -> NoReturn:
    """The main function of `electrify` and `python -m electrify`."""
    wait_briefly()
    status = main()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # DDP keeps gloo's threads beyond the end of their group. If one of them still frees a
        # tensor when the interpreter ends, the process aborts (pytorch pull request 179291), and
        # torchrun reports a finished run as failed. Everything is flushed and closed here, so leave
        # without the interpreter's clean-up.
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def main(argv: list[str] | None = None) -> int:
    """Runs the verb that the arguments name, and returns the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An output that cannot encode a character of the text (LC_ALL=C).
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = started(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # `| head`
        status = 0
    try:
        sys.stdout.flush()
    except OSError:  # told before; the interpreter would complain at its end once more
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return status


def started(words: list[str]) -> int:
    """Reads the command line, runs its verb and returns the exit status."""
    try:
        if os.environ.get(OWN_ROWS):  # else the tables are not imported before a verb needs them
            from .config.own_rows import load

            load()
        args = parser(*words[:1]).parse_args(words)
    except BrokenPipeError:
        raise
    except (MemoryError, OSError, UserError) as e:  # other mistakes are argparse's to report
        ending = ending_of(e, "")
        if ending is None:
            raise
        return told(ending, "electrify")
    return run(args)


def run(args: argparse.Namespace) -> int:
    """Runs a verb and returns its exit status; every mistake becomes one sentence."""
    try:
        with Stop(at_once=True):
            from .verbs import VERBS

            status = VERBS[args.verb](args)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        raise
    except BaseException as e:
        ending = ending_of(e, args.verb)
        if ending is None:
            raise
    return told(ending, f"electrify {args.verb}")


def told(ending: Ending, name: str) -> int:
    """Says how `name` ended, and returns the exit status."""
    sentence = ending.sentence
    if len(sentence) > MAX_SENTENCE:
        sentence = f"{sentence[: MAX_SENTENCE // 2]} ... {sentence[-MAX_SENTENCE // 2 :]}"
    say(f"{name}: {sentence}")
    return ending.status


class Ending(NamedTuple):
    """How a verb that failed ends."""

    sentence: str
    status: int


def ending_of(e: BaseException, verb: str) -> Ending | None:
    """The ending for an exception; None if the exception is our own fault and keeps its stack
    trace."""
    if is_of_memory(e):
        return Ending("memory ran out: choose smaller numbers, or another machine", 2)
    match e:
        case UserError():
            return Ending(str(e), 2)
        case Unfinished():
            return Ending(str(e), SAVED_EXIT)
        case KeyboardInterrupt():
            return stopped(str(e) or "SIGINT", verb)
        case OSError():
            advice = ADVICE.get(code_of(e), "")
            said = f"{place_of(e)}: {e.strerror}" + f"; {advice}" * bool(advice)
            return Ending(said, 2) if is_of_the_machine(e) else None
    # The exceptions with which the Rust code of tokenizers gives up; nothing else raises them.
    if type(e).__name__ == "PanicException" or type(e) is Exception:
        return panicked(e)
    return None


def stopped(signal_name: str, verb: str) -> Ending:
    """The ending of a verb that a signal stopped."""
    if verb in CONTINUE:
        again = f"stopped by {signal_name}; run the same command again to continue"
        return Ending(again, SAVED_EXIT)
    # The status is the one that a shell reports for a program that the signal ended.
    return Ending(f"stopped by {signal_name}", 128 + signal.Signals[signal_name])


def panicked(e: BaseException) -> Ending:
    """The ending of a panic in Rust code: the machine refused something, or the file is hostile."""
    said = " ".join(str(e).split())[:200]
    # The form in which Rust reports an error of the machine.
    if re.search(r"\(os error \d+\)", said):
        return Ending(f"a file could not be written or read ({said})", 2)
    return Ending(f"the tokenizer failed ({said}): {HOSTILE}", 2)
