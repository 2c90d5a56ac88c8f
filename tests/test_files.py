"""Files are written whole or not at all, into folders that are ours. What is said meanwhile."""

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from electrify import progress
from electrify.errors import UserError
from electrify.files import claim, write, written
from electrify.process import OWN_CHOICES, SPINS
from electrify.progress import Progress, say
from small import files_of_at_most

MARK = "run.json"


def test_a_file_is_replaced_by_one_rename(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, "{}")
    with files_of_at_most(10), pytest.raises(OSError, match="too large"):
        write(path, "x" * 100)
    assert path.read_text() == "{}"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old").touch()

    def fail() -> None:
        with written(folder) as part:
            part.mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [p.name for p in folder.iterdir()] == ["old"]
    with written(folder) as part:
        part.mkdir()
        (part / "new").touch()
    assert [p.name for p in folder.iterdir()] == ["new"]


def test_a_folder_is_ours_if_it_is_new_or_empty_or_has_the_mark(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty", "new"):
        with claim(tmp_path / name, MARK):
            write(tmp_path / name / MARK, "{}")
    other = tmp_path / "notes"
    other.mkdir()
    (other / "mine.txt").touch()
    with pytest.raises(UserError, match="not ours to write into"), claim(other, MARK):
        pass
    assert [p.name for p in other.iterdir()] == ["mine.txt"]
    with pytest.raises(UserError, match="not ours"), claim(other / "mine.txt", MARK):
        pass


def test_a_bar_on_a_terminal_and_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(4, title="steps", unit="steps") as bar:
        time.sleep(0.2)  # a bar is drawn ten times a second at most
        bar.advance(2, note="loss 2.5")
        say("saved [checkpoint-2]")
    assert "saved [checkpoint-2]\n" in terminal.getvalue()
    assert "2/4 steps" in terminal.getvalue()


def test_lines_elsewhere_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "say", said.append)
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_S", 0.0)
    for steps in (2, 3):
        with Progress(3, title="steps", unit="steps") as bar:
            for _ in range(steps):
                bar.advance(1)
    assert [line.split(",")[0] for line in said] == [f"steps: {n}/3 steps" for n in (1, 2, 1, 2, 3)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="another OpenMP says it in other words")
def test_the_command_line_tells_libgomp_how_long_to_spin_before_it_loads() -> None:
    clean = {k: v for k, v in os.environ.items() if k not in OWN_CHOICES}
    said = subprocess.run(
        [sys.executable, "-m", "electrify", "flops", "electra-tiny"],
        env=clean | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said) == [SPINS]
