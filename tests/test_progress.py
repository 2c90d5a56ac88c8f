"""Progress where nobody looks at a terminal: plain lines, and never a failure."""

from __future__ import annotations

import io
import sys

import pytest

from electrify import progress
from electrify.progress import Progress, say


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
