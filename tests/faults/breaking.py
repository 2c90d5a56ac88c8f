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
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


def _main(words: Sequence[str], errors: str, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    arm(pytest.MonkeyPatch(), os.environ.get(VARIABLE, ""))
    with (
        Path(errors).open("w", buffering=1, encoding="utf-8") as err,
        contextlib.redirect_stderr(err),
        contextlib.redirect_stdout(err),
    ):
        os.dup2(err.fileno(), 2)
        status = cli.main(list(words))
    sys.exit(status)


@dataclass(frozen=True)
class Broken:
    """`electrify WORDS`, running."""

    process: Any
    errors: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, *, seconds: float = 120) -> int:
        """Its status, negative for a signal that killed it."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"not at its end after {seconds} s: {self.said()}")
        return self.process.exitcode

    def kill_after(self, seconds: float) -> int:
        """Its status: -9, or another one where it ended before."""
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        return self.process.exitcode

    def wait_for(self, state: str, *, seconds: float = 60) -> None:
        """Until the kernel calls it `state` (T: stopped)."""
        deadline = time.monotonic() + seconds
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8") if self.errors.exists() else ""


def begin(words: Sequence[str], folder: Path, **variables: str) -> Broken:
    """Starts `electrify WORDS`; what it says goes to a file in `folder`."""
    errors = folder / "said.txt"
    process = SERVER.Process(target=_main, args=(list(words), str(errors), variables), daemon=False)
    process.start()
    return Broken(process, errors)


def run(words: Sequence[str], folder: Path, *, fault: str = "", expect: int = 0) -> str:
    """Runs `electrify WORDS` to its end with a fault, checks the status, and returns what it
    said."""
    if fault.startswith("kill"):
        broken = begin(words, folder, **{VARIABLE: fault})
        status, said = broken.end(), broken.said()
    else:
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(StringIO()) as err:
            arm(patch, fault)
            status = cli.main(list(words))
        said = err.getvalue()
    assert status == expect, f"status {status}, not {expect}: {said}"
    assert "Traceback" not in said, said
    return said


def prepare_words(text: Path, folder: Path) -> list[str]:
    options = ["--vocab-size", "300", "--workers", "1", "--valid-fraction", "0.05"]
    return ["prepare", str(text), "--output-dir", str(folder), *options]


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
