"""The one lock: who is kept out, and what is not touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.oldfiles.lock import LOCK, lock

HOLD = """
import sys
from pathlib import Path
from electrify.oldfiles.lock import lock
with lock(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_is_named_and_the_file_goes_with_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine").touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(UserError, match=f"in use by process {other.pid};"), lock(folder):
            pass
        other.stdin.close()
    assert [p.name for p in folder.iterdir()] == ["mine"]


def test_a_lock_that_is_kept_and_a_folder_made_for_nothing(tmp_path: Path) -> None:
    with lock(tmp_path / "run", keep=True):
        (tmp_path / "run" / "config.yaml").touch()
    assert (tmp_path / "run" / LOCK).read_bytes() == b""
    with pytest.raises(UserError, match="a mistake"), lock(tmp_path / "new", keep=True):
        raise UserError("a mistake")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["link", "dangling link", "text", "pipe", "folder"])
def test_a_file_of_that_name_is_not_followed_and_not_emptied(tmp_path: Path, kind: str) -> None:
    folder, target = tmp_path / "out", tmp_path / "thesis.tex"
    folder.mkdir()
    target.write_text("years of work")
    match kind:
        case "link":
            (folder / LOCK).symlink_to(target)
        case "dangling link":
            (folder / LOCK).symlink_to(tmp_path / "nothing")
        case "text":
            (folder / LOCK).write_text("12 is my number")
        case "pipe":
            os.mkfifo(folder / LOCK)
        case _:
            (folder / LOCK).mkdir()
    before = (folder / LOCK).lstat()
    with (
        pytest.raises(
            UserError, match=r"is a link and not a lock|somebody's own file|cannot be written"
        ),
        lock(folder),
    ):
        pass
    assert (folder / LOCK).lstat().st_size == before.st_size
    assert target.read_text() == "years of work"
    assert not (tmp_path / "nothing").exists()


def test_a_linked_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    with (
        lock(tmp_path / "real"),
        pytest.raises(UserError, match="this very process"),
        lock(tmp_path / "link"),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "keep"), [("", False), ("4711\n", False), ("4711\n", True), ("", True)]
)
def test_a_file_that_may_be_of_another_program_stays(tmp_path: Path, text: str, keep: bool) -> None:
    """Empty, or a number: nobody can tell whose it is."""
    (tmp_path / LOCK).write_text(text)
    with lock(tmp_path, keep=keep):
        code = (
            "from electrify.oldfiles.lock import lock\nfrom pathlib import Path\nwith "
            f"lock(Path({str(tmp_path)!r})): pass"
        )
        second = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert "is in use by process" in second.stderr
        if text:
            assert (tmp_path / LOCK).read_text() == text
    assert (tmp_path / LOCK).read_text() == text


def test_the_lock_of_a_killed_process_is_ours(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("electrify 4711\n")
    with lock(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"electrify {os.getpid()}\n"
    assert not (tmp_path / LOCK).exists()


def test_a_lock_that_was_replaced_meanwhile_is_not_removed(tmp_path: Path) -> None:
    with lock(tmp_path):
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).write_text("mine")
    assert (tmp_path / LOCK).read_text() == "mine"
