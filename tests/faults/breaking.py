"""Breaking `electrify` at little cost: a run ends in this process, which has imported everything,
and one that is killed in a process that is forked from a server that has.

A fault is SIGNAL@MODULE:FUNCTION@N[%RANK], in the environment: the process sends itself the signal
as it calls the function for the n-th time. `python breaking.py WORDS` is `electrify WORDS` with it.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from small import DROPOUT

VARIABLE = "BREAK_AT"
UPDATE = "electrify.train.loop:clip"  # between the gradients of an update and its optimiser

# Of the intervals none divides another: a checkpoint stands in the middle of a log line, and the
# sums of that line must survive.
SHORT: dict[str, Any] = {"max_steps": 24, "logging_steps": 3, "save_steps": 7, "eval_steps": 10}
SHORT |= DROPOUT
SERVER = multiprocessing.get_context("forkserver")
PRELOADED = ["electrify.train.run", "electrify.text.prepare", "electrify.text.encode"]
SERVER.set_forkserver_preload([*PRELOADED, "transformers.models.electra", "breaking"])


def variables(fault: str) -> dict[str, str]:
    """The environment of `python breaking.py WORDS`."""
    here = Path(__file__).parent
    path = os.pathsep.join((str(here.parent), os.environ.get("PYTHONPATH", "")))
    return {VARIABLE: fault, "PYTHONPATH": path}


def arm(patch: pytest.MonkeyPatch, faults: str) -> None:
    for wish in filter(None, faults.split(",")):
        name, where, call = wish.split("@")
        call, _, rank = call.partition("%")
        if rank in ("", os.environ.get("RANK", "0")):
            at_call(patch, where, int(call), signal.Signals[f"SIG{name.upper()}"])


def at_call(patch: pytest.MonkeyPatch, where: str, call: int, number: signal.Signals) -> None:
    """The process sends itself the signal as it calls the function `module:name` for the n-th
    time."""
    module, _, name = where.partition(":")
    *owner, last = name.split(".")
    thing: Any = importlib.import_module(module)
    for part in owner:
        thing = getattr(thing, part)
    work: Callable[..., Any] = getattr(thing, last)
    calls = 0

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), number)
        return work(*given, **named)

    patch.setattr(thing, last, counted)


def _main(words: Sequence[str], errors: str, fault: str) -> None:
    torch.set_num_threads(1)
    arm(pytest.MonkeyPatch(), fault)
    with (
        Path(errors).open("w", buffering=1, encoding="utf-8") as err,
        contextlib.redirect_stderr(err),
        contextlib.redirect_stdout(err),
    ):
        os.dup2(err.fileno(), 2)
        status = cli.main(list(words))
    sys.exit(status)


def forked(words: Sequence[str], folder: Path, fault: str) -> tuple[int, str]:
    """The status of `electrify WORDS` in a process of its own, negative for a signal that killed
    it, and what it said."""
    errors = folder / "said.txt"
    process = SERVER.Process(target=_main, args=(list(words), str(errors), fault), daemon=False)
    process.start()
    process.join(120)
    status, said = process.exitcode, errors.read_text(encoding="utf-8")
    process.kill()
    assert status is not None, said
    assert "Traceback" not in said, said
    return status, said


def run(words: Sequence[str], folder: Path, *, fault: str = "", expect: int = 0) -> str:
    """Runs `electrify WORDS` to its end with a fault, checks the status, and returns what it
    said."""
    if fault.startswith("kill"):
        status, said = forked(words, folder, fault)
    else:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(StringIO()) as err:
            arm(patch, fault)
            status = cli.main(list(words))
        said = err.getvalue()
    assert status == expect, f"status {status}, not {expect}: {said}"
    assert "Traceback" not in said, said
    return said


KILLED = -signal.SIGKILL
SAVED = 75


def core(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """The cases of a test, of which only `fast` are for every day."""
    return [
        case
        if case in fast
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]


if __name__ == "__main__":
    arm(pytest.MonkeyPatch(), os.environ.get(VARIABLE, ""))
    cli.program()
