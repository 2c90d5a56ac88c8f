"""Errors of the machine: one sentence that names the file, and status 2. A stack trace is left for
what can only be a mistake of ours."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from electrify import cli
from electrify.cli import ending_of
from small import one_sentence, pretrain_words

MACHINE = """
    EAGAIN EBUSY ECONNREFUSED ECONNRESET EDQUOT EINVAL EIO EMLINK ENODEV ENOLCK ENOLINK ENOSYS
    ENOTEMPTY ENXIO EOPNOTSUPP EOVERFLOW EPROTO EREMOTEIO ESTALE ETIMEDOUT ETXTBSY EXDEV
""".split()  # noqa: SIM905 - forty lines otherwise
OURS = ["ENOENT", "EBADF", "EFAULT", "ENOTSOCK", "ESPIPE"]


@pytest.mark.parametrize("name", MACHINE)
def test_a_condition_of_the_machine_is_one_sentence(name: str) -> None:
    number = getattr(errno, name)
    ending = ending_of(OSError(number, os.strerror(number), "a", None, "b"), "pretrain")
    assert ending is not None
    assert ending.status == 2
    assert ending.sentence.startswith(f"a: {os.strerror(number)}")


@pytest.mark.parametrize(
    "error", [*(OSError(getattr(errno, n), "why", "a") for n in OURS), OSError("oh"), OSError()]
)
def test_a_mistake_of_ours_keeps_its_stack_trace(error: OSError) -> None:
    assert ending_of(error, "pretrain") is None


@pytest.mark.parametrize("name", ["EBUSY", "ESTALE"])
def test_a_file_that_cannot_be_replaced_is_named(
    small_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """A mount point, or a file of a server that has forgotten it."""
    number = getattr(errno, name)

    def refused(part: Any, path: Any, **_: Any) -> None:
        raise OSError(number, os.strerror(number), str(part), None, str(path))

    monkeypatch.setattr(os, "replace", refused)
    assert cli.main(pretrain_words(small_data, tmp_path / "run", max_steps=1)) == 2
    said = one_sentence(capsys.readouterr().err)
    assert f"{tmp_path / 'run' / '.run.json.'}{os.getpid()}.part: {os.strerror(number)}; " in said


def test_memory_that_runs_out_before_a_verb_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: str) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "parser", full)
    assert cli.main(["doctor", "x"]) == 2
    assert one_sentence(capsys.readouterr().err).startswith("electrify: memory ran out")
