"""Progress where nobody looks at a terminal: plain lines, and never a failure."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from electrify import progress
from electrify.progress import Progress, Waiting, duration, say


def test_plain_lines_come_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Progress(100, title="reading", unit="MB") as bar:
        for _ in range(8):
            now[0] += 3
            bar.advance(5, note="loss 1.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reading: 20/100 MB, 1.67 MB/s, 48 s left, loss 1.5"
    assert len(lines) == 3


def test_what_comes_before_the_first_unit_is_not_in_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Progress(10, title="finetune", unit="updates")
    for now[0] in (60, 61, 62):  # a minute until the model is loaded
        bar.advance(1)
    assert bar.line() == "finetune: 3/10 updates, 1 updates/s, 7 s left"


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(None, title="x", unit="steps") as bar:
        bar.advance()
    say("a line with [brackets]")
    assert capsys.readouterr().err == "a line with [brackets]\n"


def test_a_bar_on_a_terminal_and_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(4, title="steps", unit="steps") as bar:
        bar.advance(2, note="loss 2.5")
        say("saved [checkpoint-2]")
    assert "saved [checkpoint-2]\n" in terminal.getvalue()
    assert "2/4 steps" in terminal.getvalue()
    assert not progress._live


def test_a_closed_stderr_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    say("nobody hears this")
    with Progress(1, title="x", unit="steps") as bar:
        bar.advance()


@pytest.mark.parametrize(
    "shown", [lambda: Progress(4, title="steps", unit="steps"), lambda: Waiting("a vocabulary")]
)
def test_a_terminal_that_is_closed_meanwhile_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, shown: Callable[[], Progress | Waiting]
) -> None:
    """From then on, each write is an error of input and output."""
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with shown():
            assert progress._live
            os.close(ours)
            say("nobody hears this")
        assert not progress._live
        with suppress(OSError):  # what rich has left in the buffer
            terminal.close()


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 59, 61, 3600, 7385)] == [
        "0 s",
        "59 s",
        "1:01",
        "1:00:00",
        "2:03:05",
    ]


def test_slow_work_is_told_by_the_hour_and_rounding_is_not_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Progress(10, title="compare", unit="encoders", done=2)
    now[0] = 60.0
    bar.advance(4e-16)
    assert bar.line() == "compare: 2/10 encoders, 0 encoders/s"
    now[0] = 1800.0
    bar.advance(1)
    assert bar.line() == "compare: 3/10 encoders, 2.07 encoders/h, 3:23:00 left"
