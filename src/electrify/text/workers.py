"""Workers of `prepare`: processes of this host, or a Ray cluster behind the same interface.

Each worker calls `start(argument)` once, and what that returns with every task. With Ray, text goes
to the hosts and results come back through its object store: workers that write files would need
storage that all hosts share, and joining reads every part on this host anyway.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import platform
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

from ..errors import UserError, failing_as, must_have
from ..process import cores

Start = Callable[[Any], Callable[[Any], Any]]
RETRIES = 3  # of a task whose host or process Ray has lost
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
_PR_SET_PDEATHSIG = 1


def workers(
    engine: str, count: int | None, start: Start, argument: Any
) -> contextlib.AbstractContextManager[Any]:
    """Processes of this host, or those of a Ray cluster. count: the maximum number of tasks at a
    time [default: the number of cores, or the CPUs of the cluster]. argument: hashable."""
    return (cluster if engine == "ray" else Processes)(count, start, argument)


def ordered(pool: Any, tasks: Iterable[Any]) -> Iterator[Any]:
    """Yields the results in the order of the tasks. A task is taken when there is room, so only a
    few of them are in memory. Raises UserError if a process or a host is lost."""
    waiting: deque[Any] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(_do, task))
            while waiting and (len(waiting) > pool.ahead or waiting[0].done()):
                yield _told(waiting.popleft().result())
        while waiting:
            yield _told(waiting.popleft().result())
    except pool.lost as e:
        raise UserError(
            f"a worker process ended by itself ({type(e).__name__}); if memory ran out, run the "
            "same command with fewer --workers, it continues"
        ) from e


def _told(result: Any) -> Any:
    if isinstance(result, UserError):
        raise result
    return result


# ------------------------------------------------------------------ processes of this host

_handle: Callable[[Any], Any] | None = None


class Processes(ProcessPoolExecutor):
    """Fresh interpreters: a fork after the tokenizers library has started threads can hang."""

    lost = BrokenProcessPool

    def __init__(self, count: int | None, start: Start, argument: Any) -> None:
        count, spawn = count or cores(), multiprocessing.get_context("spawn")
        super().__init__(count, spawn, _begin, (os.getpid(), start, argument))
        self.ahead = 2 * count
        """Tasks that are submitted before the first of them has ended."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Submitting starts processes. They are not to run the user's script again, as
        multiprocessing would, and signals to the whole group of processes are for this one."""
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            sys.modules["__main__"] = main

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:  # Python 3.14 has kill_workers
            for process in list((self._processes or {}).values()):
                process.kill()
        super().__exit__(kind, error, trace)


def _begin(parent: int, start: Start, argument: Any) -> None:
    global _handle
    die_with(parent)
    _handle = _handler(start, argument)


def _do(task: Any) -> Any:
    assert _handle is not None
    return _handle(task)


@lru_cache(maxsize=1)
def _handler(start: Start, argument: Any) -> Callable[[Any], Any]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return start(argument)


def die_with(parent: int) -> None:
    """On Linux, asks the kernel to kill this process when its parent dies."""
    with contextlib.suppress(OSError, AttributeError):  # others than Linux have no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # the parent has already died


# ------------------------------------------------------------------ a Ray cluster


@contextlib.contextmanager
def cluster(count: int | None, start: Start, argument: Any) -> Iterator[Any]:
    """The cluster at RAY_ADDRESS, or a new one on this host that ends with the context. A program
    that has called `ray.init` itself keeps its cluster."""
    ray = require()
    joined = not ray.is_initialized()
    # Ray prints there about hosts that it lost; standard output is for results.
    with contextlib.redirect_stdout(sys.stderr):
        if joined:
            address = os.environ.get("RAY_ADDRESS", "local")
            new = {"num_cpus": count or cores(), "include_dashboard": False}
            how = {"address": address} | (new if address == "local" else {})
            with failing_as(f"no Ray cluster at RAY_ADDRESS {address}"):
                ray.init(**how, log_to_driver=False, logging_level="ERROR")
        try:
            remote = ray.remote(on_host).options(max_retries=RETRIES, num_cpus=1)
            first = ray.put((versions(), start, argument))
            yield SimpleNamespace(
                submit=lambda _, task: remote.remote(first, task).future(),
                ahead=count or 2 * max(1, int(ray.cluster_resources().get("CPU", 0))),
                lost=ray.exceptions.RayError,
            )
        finally:
            if joined:
                ray.shutdown()


def require() -> Any:
    """Imports the package ray. Raises UserError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    must_have("--engine ray", "ray", "ray")
    return importlib.import_module("ray")


def versions() -> dict[str, str]:
    """The versions that must be the same on every host to give the same ids. That of Python decides
    which characters are letters and spaces."""
    names = {name: version(name) for name in ("electrify", "tokenizers", "numpy")}
    return names | {"Python": platform.python_version().rpartition(".")[0]}


def on_host(start: tuple[dict[str, str], Start, Any], task: Any) -> Any:
    """Does a task in a process of the cluster. A UserError is a value, because Ray puts stack
    traces into the text of exceptions."""
    wanted, begin, argument = start
    here = versions()
    if odd := [name for name in wanted if here.get(name) != wanted[name]]:
        return UserError(
            f"a host of the Ray cluster has {odd[0]} {here.get(odd[0])}, this one "
            f"{wanted[odd[0]]}. Install the same versions on every host"
        )
    try:
        return _handler(begin, argument)(task)
    except UserError as e:
        return e
