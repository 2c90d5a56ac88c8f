"""Worker processes for `prepare`: fresh interpreters that talk over pipes, one thread of the parent for each.

Why not multiprocessing: a fork after the tokenizers library has started threads can hang, spawn imports the user's `__main__` again, and neither
notices that the parent was killed. Here a worker reads its pipe, so it ends when the parent does, however that happened; Ctrl-C reaches the parent
only.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, Any

from ..cores import cores as cores
from ..cores import wait_briefly
from ..errors import UserError

_LENGTH = struct.Struct("<Q")
# ("value", result), ("user", sentence) or ("bug", stack trace): what became of a task, fit to be sent to another process.
Answer = tuple[str, Any]


class Workers:
    """`count` processes, each of which imports `module` and calls its `start(argument)`; what that returns is called with every task."""

    def __init__(self, count: int, *, module: str, argument: Any) -> None:
        self.count, self._module, self._argument = count, module, argument
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="electrify-worker")

    def __enter__(self) -> Workers:
        code = f"import sys; sys.path[:] = {sys.path!r}; from electrify.text.pool import serve; serve({self._module!r})"
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        for _ in range(self.count):
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
            )
            self._processes.append(process)
            _send(process.stdin, self._argument)
            self._idle.put(process)
        return self

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results in the order of the tasks. Tasks are drawn as workers become free, so few of them are in memory."""
        waiting: deque[Future[Any]] = deque()
        for task in tasks:
            waiting.append(self._threads.submit(self._do, task))
            while waiting and (len(waiting) > 2 * self.count or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _do(self, task: Any) -> Any:
        process = self._idle.get()
        try:
            _send(process.stdin, task)
            done = _receive(process.stdout)
        except (OSError, EOFError) as e:
            status = process.wait()
            raise UserError(f"a worker process ended by itself (status {status}); if memory ran out, run the same command with fewer workers") from e
        finally:
            self._idle.put(process)  # a dead one too: what waits for it must fail, not hang
        return value_of(done)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
    """Does a task. Nothing escapes but SystemExit, with which a process is told to end."""
    try:
        return "value", handle(task)
    except UserError as e:
        return "user", str(e)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - a panic in tokenizers' Rust code is a BaseException; the parent reports it
        return "bug", traceback.format_exc()


def value_of(done: Answer) -> Any:
    """The result of a task, or the error that it ended with."""
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
    assert pipe is not None
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    return pickle.loads(pipe.read(_LENGTH.unpack(header)[0]))


def serve(module: str) -> None:
    """What a worker process runs: answers tasks until its standard input ends."""
    wait_briefly()
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may get between the answers
    try:
        handle = importlib.import_module(module).start(_receive(tasks))
        while True:
            _send(answers, answer(handle, _receive(tasks)))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone or done; flushing into its pipe would only fail
