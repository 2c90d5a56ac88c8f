"""A Ray cluster as the workers of `prepare`: the same `map` as in pool.py, on as many hosts as the
cluster has.

Text goes to the hosts and parts come back through Ray's object store, and only this process touches
the output folder. The other way, workers that write part files, needs storage that all hosts share,
and it saves nothing: joining reads every part on this host anyway. What comes back is about half of
what goes out, and this process, which reads, hashes and hands out all of the text, is the narrower
place by far.
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

# A host or process may be lost this often at the same task. What the task itself raises comes back
# as a value and is never tried again.
RETRIES = 3
# Finished parts that wait for an earlier one: as many as this times the tasks that run.
_AHEAD = 4
# The store of a local cluster: the text and the parts of the tasks in flight, four MB of characters
# each.
_STORE = 128 << 20
_STORE_A_WORKER = 64 << 20


def require() -> Any:
    """The package ray, imported. Raises UserError where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray warns, over the progress bar, of what it will do to GPUs some day.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as e:
        if e.name != "ray":
            raise
        raise UserError("--engine ray needs the package ray; pip install 'electrify[ray]'") from e


@contextmanager
def joined(workers: int | None) -> Iterator[None]:
    """With a cluster: that of RAY_ADDRESS, or else one of `workers` processes on this host, which
    ends with the block.

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
    """Raises OSError where nothing listens at HOST:PORT, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


class _Aside(io.TextIOBase):
    """Standard output belongs to results; what Ray prints there, of workers and hosts that died, is
    said like everything else on the way."""

    def write(self, text: str) -> int:
        if plain := re.sub(r"\x1b\[\d*m", "", text).strip():
            say(plain)
        return len(text)


def _why(error: BaseException) -> str:
    """What Ray says, on one line; of its refusals of a token only the end of a chain speaks."""
    if "AuthenticationError" in f"{error} {error.__cause__}":
        return (
            "it asks for a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file "
            "that holds it"
        )
    return " ".join(str(error).split())[:200]


class Cluster:
    """Processes of the joined cluster, each of which imports `module` and calls its
    `start(argument)`; what that returns is called with every task.

    count: how many tasks run at the same time at most; None for as many as the cluster has CPUs,
    hosts that join later included.
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
        """The results in the order of the tasks. Tasks are drawn as the cluster has room, so few of
        them are in memory."""
        waiting = self._waiting
        for task in tasks:
            given = self._ray.put(task)
            # Twice as many tasks as CPUs: the text of the next is there when one ends. A number
            # that the user gave is kept to.
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
        # `_do` itself raises nothing: it could not be loaded there.
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
        # Left after an error; a cluster that was there before us shall not go on with them.
        for reference in self._waiting:
            self._ray.cancel(reference)
        self._waiting.clear()


def versions() -> dict[str, str]:
    """What must be the same on every host for the same ids to come out."""
    names = {name: version(name) for name in ("electrify", "tokenizers", "numpy")}
    return names | {
        "Python": platform.python_version().rpartition(".")[0]
    }  # which characters are letters and spaces


def _do(start: tuple[dict[str, str], str, Any], task: Any) -> Answer:
    """What a process of the cluster does with a task. It raises nothing, so that only its death
    makes Ray try again."""
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
    """Kept from task to task."""
    return importlib.import_module(module).start(argument)
