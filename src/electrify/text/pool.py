"""Worker processes for `prepare`: fresh interpreters that communicate over pipes, each served by a
thread of the parent.

Why not multiprocessing: a fork after the tokenizers library has started threads can hang, spawn
imports the user's `__main__` again, and neither notices when the parent was killed. Here a thread
of the worker always reads the pipe, so the worker ends when the parent does, even in the middle of
a task; on Linux the kernel ensures this even if no thread can run. Ctrl-C reaches only the parent.
If a worker takes long for a task, its task is named and the parent keeps waiting, because a slow
worker cannot be told from a hanging one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from ..cores import wait_briefly
from ..errors import UserError
from ..progress import duration, say

_LENGTH = struct.Struct("<Q")
# A task of `prepare` takes about a second. One that takes five minutes is named, and again whenever
# its time has doubled.
LONG_S = 300.0
# Open files that the kernel's limit must allow besides the pipes of the workers, for the libraries,
# the corpus and the parts.
_FILES = 32
_FILES_A_WORKER = 3
_PR_SET_PDEATHSIG = 1
# ("value", result), ("user", sentence) or ("bug", stack trace): the outcome of a task, in a form
# that can be sent to another process.
Answer = tuple[str, Any]


def must_have_files(workers: int) -> None:
    """Raises UserError if so many workers need more open files than this process may have."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    need = _FILES + _FILES_A_WORKER * workers
    if allowed != resource.RLIM_INFINITY and allowed < need:
        fewer = max((allowed - _FILES) // _FILES_A_WORKER, 0)
        advice = f" or use at most {fewer} workers (--workers)" if fewer else ""
        raise UserError(
            f"this shell allows {allowed} open files, and {workers} workers need {need}; raise the "
            f"limit (`ulimit -n 1024`){advice}"
        )


@dataclass
class _Busy:
    """A worker's task: when it began (time.monotonic), after how many seconds the user is told
    next, and what it is about."""

    since: float
    told_at: float
    about: str


class Workers:
    """`count` processes. Each imports `module` and calls its `start(argument)`, which returns a
    function that is then called with every task."""

    def __init__(self, count: int, *, module: str, argument: Any) -> None:
        self.count = count
        self._module = module
        self._argument = argument
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._busy: dict[subprocess.Popen[bytes], _Busy] = {}
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="electrify-worker")

    def __enter__(self) -> Workers:
        must_have_files(self.count)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from electrify.text.pool import serve; "
            f"serve({self._module!r}, parent={os.getpid()})"
        )
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        try:
            for _ in range(self.count):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
                self._processes.append(process)
                _send(process.stdin, self._argument)
                self._idle.put(process)
        except BaseException as e:
            self.__exit__(type(e), e, None)
            if isinstance(e, OSError) and e.errno in (
                errno.EMFILE,
                errno.ENFILE,
                errno.EAGAIN,
                errno.ENOMEM,
            ):
                raise UserError(
                    f"the system lets only {len(self._processes)} of {self.count} workers start "
                    f"({e.strerror}); use fewer (--workers)"
                ) from e
            raise
        return self

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields the results in the order of the tasks. A task is taken when a worker becomes free,
        so only a few of them are in memory."""
        waiting: deque[Future[Any]] = deque()
        for task in tasks:
            waiting.append(self._threads.submit(self._do, task))
            while waiting and (len(waiting) > 2 * self.count or waiting[0].done()):
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def _result(self, future: Future[Any]) -> Any:
        while not wait([future], timeout=LONG_S / 4).done:
            now = time.monotonic()
            for process, busy in list(self._busy.items()):
                if now - busy.since >= busy.told_at:
                    busy.told_at = 2 * (now - busy.since)
                    say(
                        f"worker process {process.pid} has been at one task for "
                        f"{duration(now - busy.since)}{busy.about}; it is waited for. "
                        "If it hangs, stop this command with Ctrl-C: the same command continues"
                    )
        return future.result()

    def _do(self, task: Any) -> Any:
        process = self._idle.get()
        about = getattr(task, "about", "")
        self._busy[process] = _Busy(time.monotonic(), LONG_S, f" ({about})" if about else "")
        try:
            _send(process.stdin, task)
            done = _receive(process.stdout)
        except (OSError, EOFError) as e:
            status = process.wait()
            raise UserError(
                f"a worker process ended by itself (status {status}); if memory ran out, run the "
                "same command with fewer workers"
            ) from e
        finally:
            del self._busy[process]
            self._idle.put(process)  # also a dead one: whatever waits for it must fail, not hang
        return value_of(done)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            if kind is not None:
                process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except BrokenPipeError:
                    pass
            process.wait()


def answer(handle: Callable[[Any], Any], task: Any) -> Answer:
    """Does a task. No exception escapes except SystemExit, which tells a process to end."""
    try:
        return "value", handle(task)
    except UserError as e:
        return "user", str(e)
    except SystemExit:
        raise
    # A panic in tokenizers' Rust code is a BaseException; the parent reports it.
    except BaseException:  # noqa: BLE001
        return "bug", traceback.format_exc()


def value_of(done: Answer) -> Any:
    """The result of a task; raises the error with which it ended."""
    kind, value = done
    if kind == "user":
        raise UserError(value)
    if kind == "bug":
        raise RuntimeError(f"in a worker process:\n{value}")
    return value


def _send(pipe: IO[bytes] | None, value: Any) -> None:
    assert pipe is not None
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> Any:
    """Reads a value. Raises EOFError if the pipe ends, also in the middle of a value, when the
    other process was killed while it wrote."""
    assert pipe is not None
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(header)[0]
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def die_with(parent: int) -> None:
    """On Linux, asks the kernel to kill this process when its parent dies; elsewhere the end of the
    pipe has this effect."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if hasattr(os, "getppid") and os.name == "posix" and os.getppid() != parent:
        os._exit(0)  # the parent has already died


def serve(module: str, *, parent: int) -> None:
    """The main function of a worker process: it answers tasks until its standard input ends, which
    ends it even within a task."""
    wait_briefly()
    die_with(parent)
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output printed by a library must not get between the answers
    come: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                come.put(_receive(tasks))
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone or done; flushing into its pipe would only fail
        # If only this thread ended, the parent would wait for ever; this way it notices.
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)

    try:
        argument = _receive(tasks)
        threading.Thread(target=read, name="electrify-tasks", daemon=True).start()
        handle = importlib.import_module(module).start(argument)
        while True:
            _send(answers, answer(handle, come.get()))
    except (EOFError, BrokenPipeError):
        os._exit(0)
