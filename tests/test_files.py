"""Files are written whole or not at all, and a folder has one writer and is ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.files import LOCK, claim, read_json, write, written
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
