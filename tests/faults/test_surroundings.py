"""What is around a run goes wrong: a full disk, a clock that jumps, other processes, foreign
files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import KILLED, SHORT, UPDATE, VARIABLE, begin, run

from small import electrify, environment, logged_step, pretrain_words, same_ending, steps_of


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
    ):
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk(small_data: Path, unbroken: Path, small_disk: Path, tmp_path: Path) -> None:
    """Filled while the run goes: it ends with the sentence, keeps what it has, and continues when
    there is room."""
    folder, ballast = small_disk / "run", small_disk / "ballast"
    words = pretrain_words(small_data, folder, **SHORT)
    process = begin(words, tmp_path, **{VARIABLE: f"stop@{UPDATE}@10"})
    process.wait_for("T")
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(8 << 20))
    os.kill(process.pid, 18)  # SIGCONT
    assert process.end() == 2, process.said()
    assert "make room and run the same command again" in process.said()
    assert "Traceback" not in process.said()
    assert steps_of(folder) == [7]
    ballast.unlink()
    run(words, tmp_path)
    same_ending(unbroken, folder, step=24)


BACKWARDS = """
import time
_now, _began = time.time, time.time()
time.time = lambda: 2 * _began - _now() - 1e6
time.time_ns = lambda: int(time.time() * 1e9)
"""


@pytest.mark.slow
def test_a_clock_set_back(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """Time runs backwards from eleven days ago, and files lie about theirs: the newest checkpoint
    is the one of the highest step."""
    (tmp_path / "sitecustomize.py").write_text(BACKWARDS)
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    run(words, tmp_path, fault=f"kill@{UPDATE}@16", expect=KILLED)
    for k, path in enumerate(sorted((tmp_path / "run").glob("checkpoint-*"))):
        os.utime(path, (k, k))
    done = electrify(
        words,
        tmp_path,
        PYTHONPATH=os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))),
    )
    assert "continuing after step 14" in done.err
    same_ending(unbroken, tmp_path / "run", step=24)


def test_two_runs_in_one_folder(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """The second is refused and disturbs nothing; the lock of a killed one is nobody's."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    process = begin(words, tmp_path, **{VARIABLE: f"stop@{UPDATE}@10"})
    process.wait_for("T")
    other = tmp_path / "other"
    other.mkdir()
    assert "another process writes into" in run(words, other, expect=2)
    assert process.kill_after(0) == KILLED
    run(words, other)
    same_ending(unbroken, tmp_path / "run", step=24)


@pytest.mark.slow
def test_no_network(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """Training and exporting ask nobody."""
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        pytest.skip("a process without network needs root")
    words = [
        sys.executable,
        "-m",
        "electrify",
        *pretrain_words(small_data, tmp_path / "run", **SHORT),
    ]
    done = subprocess.run(
        ["unshare", "-n", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    same_ending(unbroken, tmp_path / "run", step=24)
    assert logged_step(tmp_path / "run") == 24
