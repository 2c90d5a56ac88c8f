"""Files are written whole or not at all, and a folder has one writer and is ours."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from electrify import progress
from electrify.cores import OWN_CHOICES, SPINS
from electrify.errors import UserError
from electrify.files import LOCK, claim, read_json, write, written
from electrify.progress import Progress, say
from small import environment, files_of_at_most

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


def test_nothing_is_left_of_a_claim_in_which_nothing_was_written(tmp_path: Path) -> None:
    with pytest.raises(UserError), claim(tmp_path / "run", MARK):
        raise UserError("no such file")
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".discriminator.1.part").mkdir()
    (tmp_path / ".run.json.1.part").touch()
    with claim(tmp_path, MARK):
        assert [p.name for p in tmp_path.iterdir()] == [LOCK]


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from electrify.files import claim, write
with claim(Path({str(tmp_path)!r}), {MARK!r}):
    write(Path({str(tmp_path / MARK)!r}), "{{}}")
    print("held", flush=True)
    input()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="another process writes into"), claim(tmp_path, MARK):
        pass
    other.kill()  # the lock of a process that is killed is nobody's
    other.communicate()
    with claim(tmp_path, MARK):
        assert read_json(tmp_path / MARK) == {}


def test_plain_lines_come_every_few_seconds(monkeypatch, capsys):
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


ASKED = {"OMP_DISPLAY_ENV": "verbose"}  # every libgomp that loads says what it was told
DEFAULT, ACTIVE = "300000", "30000000000"
GNU = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="the OpenMP of other systems says it in other words",
)


def spins(*words: str, **variables: str) -> list[str]:
    """What each libgomp of a fresh `python WORDS` is told to spin."""
    clean = {k: v for k, v in os.environ.items() if k not in OWN_CHOICES}
    ran = subprocess.run(
        [sys.executable, *words],
        env=clean | ASKED | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return re.findall(r"GOMP_SPINCOUNT = '(\d+)'", ran.stderr)


@pytest.mark.slow
@GNU
def test_the_command_line_tells_libgomp_before_it_loads() -> None:
    assert spins("-m", "electrify", "flops", "electra-tiny") == [SPINS]


@GNU
@pytest.mark.slow
def test_a_choice_of_the_user_stays() -> None:
    for variables, told in (
        ({"OMP_WAIT_POLICY": "active"}, ACTIVE),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"KMP_BLOCKTIME": "5"}, DEFAULT),
    ):
        assert spins("-m", "electrify", "flops", "electra-tiny", **variables) == [told]


def test_what_comes_before_the_first_unit_is_not_in_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Progress(10, title="finetune", unit="updates")
    for now[0] in (60, 61, 62):  # a minute until the model is loaded
        bar.advance(1)
    assert bar.line() == "finetune: 3/10 updates, 1 updates/s, 7 s left"
