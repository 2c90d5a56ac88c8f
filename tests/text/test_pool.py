"""Worker processes: order, errors, and that nothing hangs when one of them dies."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pool_jobs import Nap

from electrify.errors import UserError
from electrify.text import pool as pool_module
from electrify.text.workers import Workers


def test_results_come_in_the_order_of_the_tasks_and_tasks_are_drawn_late() -> None:
    drawn = [0]

    def tasks() -> Iterator[int]:
        for i in range(40):
            drawn[0] += 1
            yield i if i not in (13, 14, 15) else 0

    with Workers(2, module="pool_jobs", argument=10) as pool:
        results = pool.map(tasks())
        assert next(results) == 0
        assert drawn[0] <= 2 * pool.count + 1
        assert list(results) == [10 * i if i not in (13, 14, 15) else 0 for i in range(1, 40)]


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        (13, UserError, "thirteen is bad"),
        (14, RuntimeError, "ZeroDivisionError: our fault"),
        (15, UserError, r"ended by itself \(status -9\)"),
    ],
)
@pytest.mark.timeout(60)
def test_an_error_ends_the_map(task: int, kind: type[Exception], message: str) -> None:
    pool = Workers(1, module="pool_jobs", argument=10)
    with pytest.raises(kind, match=message), pool:
        list(pool.map([1, 2, task, 3, 4, 5]))
    assert all(process.poll() is not None for process in pool._processes)


# ------------------------------------------------------------------ slow workers


@pytest.mark.timeout(120)
def test_a_worker_that_takes_long_is_named_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool_module, "LONG_S", 0.4)
    with Workers(1, module="pool_jobs", argument=10) as pool:
        assert list(pool.map([1])) == [10]  # it has started
        capsys.readouterr()
        assert list(pool.map([Nap(3.0), 4])) == ["slept", 40]
        said = [line for line in capsys.readouterr().err.splitlines() if "worker process" in line]
        assert 2 <= len(said) <= 4  # after .4, .8, 1.6 seconds or so, not at every look
        assert f"worker process {pool._processes[0].pid} has been at one task for" in said[0]
        assert "(7 documents, the last of books.txt); it is waited for" in said[0]


@pytest.mark.timeout(120)
def test_a_worker_that_hangs_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool_module, "LONG_S", 0.4)
    with Workers(1, module="pool_jobs", argument=10) as pool:
        assert list(pool.map([1])) == [10]
        pool._processes[0].send_signal(signal.SIGSTOP)
        results = pool.map([2])
        waker = subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {pool._processes[0].pid}"])
        assert next(results) == 20
        assert waker.wait() == 0
    assert (
        f"worker process {pool._processes[0].pid} has been at one task" in capsys.readouterr().err
    )


# ------------------------------------------------------------------ the parent dies

PARENT = """
import sys
sys.path[:0] = {path!r}
from electrify.text.workers import Workers
from pool_jobs import Nap
with Workers(2, module="pool_jobs", argument=1) as pool:
    assert list(pool.map([1, 2, 3, 4])) == [1, 2, 3, 4]
    print(*(p.pid for p in pool._processes), flush=True)
    list(pool.map({tasks}))
"""


def killed_parent(tasks: str, errors: Path, *, after: float) -> list[int]:
    """Numbers of the workers of a process that was killed `after` seconds from its first results
    on."""
    code = PARENT.format(path=[str(Path(__file__).parent), *sys.path], tasks=tasks)
    with errors.open("wb") as err:
        parent = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=err, text=True
        )
        assert parent.stdout is not None
        workers = [int(n) for n in parent.stdout.readline().split()]
        time.sleep(after)
        parent.kill()
        parent.communicate()
    return workers


def alive(numbers: list[int], *, seconds: float = 20) -> list[int]:
    ends = time.monotonic() + seconds
    left = numbers
    while left and time.monotonic() < ends:
        time.sleep(0.02)
        left = [
            n
            for n in left
            if psutil.pid_exists(n) and psutil.Process(n).status() != psutil.STATUS_ZOMBIE
        ]
    for n in left:
        os.kill(n, signal.SIGKILL)
    return left


@pytest.mark.timeout(120)
def test_workers_die_with_their_parent_within_a_task(tmp_path: Path) -> None:
    workers = killed_parent("[Nap(600.0), Nap(600.0)]", tmp_path / "err", after=0.5)
    assert len(workers) == 2
    assert alive(workers) == []
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.mark.timeout(120)
def test_a_parent_killed_while_it_sends_leaves_no_trace(tmp_path: Path) -> None:
    """Half a task was half a pickle: UnpicklingError."""
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}; from "
        "electrify.text import pool; "
    )
    code += f"pool.serve('pool_jobs', parent={os.getpid()})"
    with (tmp_path / "err").open("wb") as err:
        worker = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err
        )
    assert worker.stdin is not None
    assert worker.stdout is not None
    pool_module._send(worker.stdin, 1)
    pool_module._send(worker.stdin, "one")
    assert pool_module._receive(worker.stdout) == ("value", "one")
    worker.stdin.write(pool_module._LENGTH.pack(1000) + b"half")
    worker.stdin.close()
    assert worker.wait(timeout=60) == 0
    worker.stdout.close()
    assert (tmp_path / "err").read_text() == ""


@pytest.mark.timeout(120)
def test_without_the_kernel_s_help_the_pipe_ends_a_worker_within_a_task() -> None:
    """As on systems other than Linux."""
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}; from "
        "electrify.text import pool; pool.die_with = lambda p: None; "
    )
    code += f"pool.serve('pool_jobs', parent={os.getpid()})"
    worker = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    pool_module._send(worker.stdin, 1)
    pool_module._send(worker.stdin, 5)
    assert pool_module._receive(worker.stdout) == ("value", 5)
    pool_module._send(worker.stdin, Nap(600.0))
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(b"half")
    worker.stdin.close()
    assert worker.wait(timeout=60) == 0
    worker.stdout.close()


# ------------------------------------------------------------------ limits of the system


def test_too_few_open_files_are_one_sentence() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, hard))
    try:
        with pytest.raises(
            UserError,
            match=(
                r"allows 16 open files, and 2 workers need 38; raise the limit \(`ulimit -n "
                r"1024`\)$"
            ),
        ):
            Workers(2, module="pool_jobs", argument=1).__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_workers_that_cannot_start_end_those_that_did(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def refused(*words: object, **more: object) -> subprocess.Popen[bytes]:
        if len(started) == 2:
            raise OSError(24, "Too many open files")
        started.append(popen(*words, **more))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(
        UserError, match=r"only 2 of 4 workers start \(Too many open files\); use fewer"
    ):
        Workers(4, module="pool_jobs", argument=1).__enter__()
    assert [process.poll() is None for process in started] == [False, False]


def test_workers_of_prepare_do_not_load_torch() -> None:
    """A second of start and 200 MB for each."""
    code = "import sys, electrify.text.encode; print('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
