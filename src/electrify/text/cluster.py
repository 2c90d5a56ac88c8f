"""A Ray cluster as the workers of `prepare`: the same `map` as in pool.py, on as many hosts as the
cluster has.

Text goes to the hosts and parts come back through Ray's object store, and only this process touches
the output folder. The alternative, workers that write part files, needs storage that all hosts
share and saves nothing, because joining reads every part on this host anyway. The parts that come
back have about half the size of the text that goes out, and the bottleneck by far is this process,
which reads, hashes and hands out all of the text.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import platform
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from importlib.metadata import version
from types import TracebackType
from typing import Any

from ..cores import cores
from ..errors import UserError
from ..progress import say
from .pool import Answer, answer, value_of

# This many hosts or processes may be lost on the same task. An exception of the task itself comes
# back as a value, and the task is not tried again.
RETRIES = 3
# Limit on the finished parts that wait for an earlier one, as a multiple of the running tasks.
_AHEAD = 4
# Size of a local cluster's object store: it holds text and parts of the tasks in flight, each of
# four million characters.
_STORE = 128 << 20
_STORE_A_WORKER = 64 << 20


def require() -> Any:
    """Imports the package ray. Raises UserError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray prints a warning about a future change for GPUs over the progress bar.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as e:
        if e.name != "ray":
            raise
        raise UserError("--engine ray needs the package ray; pip install 'electrify[ray]'") from e


@contextmanager
def joined(workers: int | None) -> Iterator[None]:
    """A context with a cluster: the one at RAY_ADDRESS, or else a new one of `workers` processes on
    this host, which ends with the context.

    A program that has called `ray.init` itself keeps its cluster.
    """
    ray = require()
    address = os.environ.get("RAY_ADDRESS", "")
    if ray.is_initialized():
        yield
        return
    if address.startswith("ray://"):
        raise UserError(
            f"RAY_ADDRESS is {address}, a Ray client's; run the command on a host of the cluster "
            "(`ray job submit`), or name HOST:PORT"
        )
    if address and address != "local":
        where = f"no Ray cluster could be joined at RAY_ADDRESS {address}"
        how = {"address": address}
    else:
        count = workers or cores()
        where = "no Ray cluster could be started on this host"
        how = {"address": "local", "num_cpus": count, "include_dashboard": False}
        how["object_store_memory"] = _STORE + _STORE_A_WORKER * count
    try:
        _must_answer(address)
        ray.init(**how, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as e:
        ray.shutdown()
        raise UserError(f"{where}: {_why(e)}") from e
    with redirect_stdout(_Aside()):
        try:
            yield
        finally:
            ray.shutdown()


def _must_answer(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT; Ray would keep trying for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


class _Aside(io.TextIOBase):
    """Standard output is for results only. What Ray prints there, about workers and hosts that
    died, is shown like all other progress messages."""

    def write(self, text: str) -> int:
        if plain := re.sub(r"\x1b\[\d*m", "", text).strip():
            say(plain)
        return len(text)


def _why(error: BaseException) -> str:
    """Ray's error message on one line. If it refuses a token, only the end of the exception chain
    says so."""
    if "AuthenticationError" in f"{error} {error.__cause__}":
        return (
            "it asks for a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file "
            "that holds it"
        )
    return " ".join(str(error).split())[:200]


class Cluster:
    """Processes of the joined cluster. Each imports `module` and calls its `start(argument)`, which
    returns a function that is then called with every task.

    count: the maximum number of tasks that run at the same time; None for as many as the cluster
    has CPUs, including hosts that join later.
    """

    def __init__(self, count: int | None, *, module: str, argument: Any) -> None:
        self._ray = require()
        self._count = count
        self._start = self._ray.put((versions(), module, argument))
        self._do = self._ray.remote(_do).options(max_retries=RETRIES, num_cpus=1)
        self._waiting: deque[Any] = deque()

    @property
    def count(self) -> int:
        return self._count or max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def __enter__(self) -> Cluster:
        return self

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields the results in the order of the tasks. A task is taken when the cluster has
        capacity, so only a few of them are in memory."""
        waiting = self._waiting
        for task in tasks:
            given = self._ray.put(task)
            # Twice as many tasks as CPUs, so that the text of the next task is there when one ends.
            # A number that the user gave is not exceeded.
            room = self._count or 2 * self.count
            while waiting:
                running = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0)[1]
                if waiting[0] not in running or len(waiting) >= _AHEAD * room:
                    yield self._result(waiting.popleft())
                elif len(running) >= room:
                    self._ray.wait(running, num_returns=1)
                else:
                    break
            waiting.append(self._do.remote(self._start, given))
        while waiting:
            yield self._result(waiting.popleft())

    def _result(self, reference: Any) -> Any:
        try:
            return value_of(self._ray.get(reference))
        # `_do` itself raises nothing, so it could not be loaded there.
        except self._ray.exceptions.RayTaskError as e:
            last = str(e).strip().splitlines()[-1]
            raise UserError(
                f"a host of the Ray cluster cannot run electrify ({last}); install the same "
                "version of it on every host"
            ) from e
        except self._ray.exceptions.RayError as e:
            raise UserError(
                f"the Ray cluster lost a task {RETRIES + 1} times ({type(e).__name__}); if memory "
                "ran out, use fewer workers; "
                "run the same command again, it continues"
            ) from e

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Tasks left after an error: a cluster that was there before us is not to continue them.
        for reference in self._waiting:
            self._ray.cancel(reference)
        self._waiting.clear()


def versions() -> dict[str, str]:
    """The versions that must be the same on every host to give the same ids."""
    names = {name: version(name) for name in ("electrify", "tokenizers", "numpy")}
    return names | {
        "Python": platform.python_version().rpartition(".")[0]
    }  # decides which characters are letters and spaces


def _do(start: tuple[dict[str, str], str, Any], task: Any) -> Answer:
    """Runs a task in a process of the cluster. It raises nothing, so that Ray tries again only if
    the process dies."""
    wanted, module, argument = start
    here = versions()
    if here != wanted:
        name = next(n for n in wanted if here.get(n) != wanted[n])
        return (
            "user",
            (
                f"a host of the Ray cluster has {name} {here.get(name)}, this one {wanted[name]}; "
                "install the same versions on every host"
            ),
        )
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return answer(lambda task: _handle(module, argument)(task), task)


@lru_cache(maxsize=1)
def _handle(module: str, argument: Any) -> Callable[[Any], Any]:
    """This is kept between tasks."""
    return importlib.import_module(module).start(argument)
