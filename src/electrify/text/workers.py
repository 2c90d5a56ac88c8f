"""Workers of `prepare`: processes of this host (`Processes`), or a Ray cluster (`cluster`) behind
the same interface.

Each worker calls `start(*given)` once, and what that returns with every task. With Ray, text goes
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

from ..errors import UserError, failing_as, need
from ..process import SIGNALS, cores

Start = Callable[..., Callable[[Any], Any]]
RETRIES = 3  # of a task whose host or process Ray has lost
_PR_SET_PDEATHSIG = 1


def ordered(pool: Any, tasks: Iterable[Any]) -> Iterator[Any]:
    """Yields the results in the order of the tasks. A task is taken when there is room, so only a
    few of them are in memory. Raises UserError if a process or a host is lost."""
    waiting: deque[Any] = deque()
    try:
        for task in tasks:
            waiting.append(pool.begin(task))
            while waiting and (len(waiting) > pool.ahead or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except pool.lost as e:
        # What a task raises on a host is the cause of an error of Ray.
        if isinstance(cause := getattr(e, "cause", None), UserError):
            raise cause from e
        raise UserError(
            f"a worker process ended by itself ({type(e).__name__}); if memory ran out, run the "
            "same command with fewer --workers, it continues"
        ) from e


def do(task: Any, start: Start, *given: Any) -> Any:
    """Does a task in a worker."""
    return _worker(start, *given)(task)


@lru_cache(maxsize=1)
def _worker(start: Start, *given: Any) -> Callable[[Any], Any]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return start(*given)


# ------------------------------------------------------------------ processes of this host


class Processes(ProcessPoolExecutor):
    """Fresh interpreters: a fork after the tokenizers library has started threads can hang. count:
    the maximum number of tasks at a time [default: the number of cores]. given: hashable."""

    lost = BrokenProcessPool

    def __init__(self, count: int | None, start: Start, *given: Any) -> None:
        count, spawn = count or cores(), multiprocessing.get_context("spawn")
        super().__init__(count, spawn, _begin, (os.getpid(), start, *given))
        self.ahead = 2 * count
        """Tasks that are begun before the first of them has ended."""

    def begin(self, task: Any) -> Any:
        """Starts processes, too. They are not to run the user's script again, as multiprocessing
        would, and signals to the whole group of processes are for this one."""
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return self.submit(_do, task)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            sys.modules["__main__"] = main

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:  # Python 3.14 has kill_workers
            for process in list((self._processes or {}).values()):
                process.kill()
        super().__exit__(kind, error, trace)


_work: tuple[Any, ...] = ()
"""In a worker: `start` and what it is given, which are sent once."""


def _begin(parent: int, *work: Any) -> None:
    global _work
    die_with(parent)
    _work = work


def _do(task: Any) -> Any:
    return do(task, *_work)


def die_with(parent: int) -> None:
    """On Linux, asks the kernel to kill this process when its parent dies."""
    with contextlib.suppress(OSError, AttributeError):  # others than Linux have no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # the parent has already died


# ------------------------------------------------------------------ a Ray cluster


@contextlib.contextmanager
def cluster(count: int | None, start: Start, *given: Any) -> Iterator[Any]:
    """The cluster at RAY_ADDRESS, or a new one on this host that ends with the context. A program
    that has called `ray.init` itself keeps its cluster. count: as in `Processes` [default: the CPUs
    of the cluster]."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = importlib.import_module("ray")
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
            work = ray.put((versions(), start, given))
            yield SimpleNamespace(
                begin=lambda task: remote.remote(task, work).future(),
                ahead=count or 2 * max(1, int(ray.cluster_resources().get("CPU", 0))),
                lost=ray.exceptions.RayError,
            )
        finally:
            if joined:
                ray.shutdown()


def versions() -> dict[str, str]:
    """The versions that must be the same on every host to give the same ids. That of Python decides
    which characters are letters and spaces."""
    names = {name: version(name) for name in ("electrify", "tokenizers", "numpy")}
    return names | {"Python": platform.python_version().rpartition(".")[0]}


def on_host(task: Any, work: tuple[dict[str, str], Start, tuple[Any, ...]]) -> Any:
    """Does a task in a process of the cluster. Raises UserError if its host has other versions."""
    wanted, start, given = work
    here = versions()
    odd = next((name for name in wanted if here[name] != wanted[name]), "")
    fact = f"a host of the Ray cluster has {odd} {here.get(odd)}, this one {wanted.get(odd)}"
    need(not odd, fact, "install the same versions on every host")
    return do(task, start, *given)
