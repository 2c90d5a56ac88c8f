"""One thread computes for all requests. Waiting requests of the same kind and model are joined."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Job:
    """What a request asks for. Jobs with the same key may be computed together."""

    key: Hashable
    items: list[Any]
    characters: int
    answer: Future[list[Any]] = field(default_factory=Future)


@dataclass
class Batches:
    """A queue and the thread that computes it, as soon as that is started."""

    work: Callable[[Any, list[Any]], list[Any]]
    """From a key and items to an answer for each item, in the thread."""
    max_items: int
    """Items that are computed together, unless a single job has more."""
    max_characters: int
    """Characters that are computed together, likewise."""
    waiting: deque[Job] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="electrify-models", daemon=True)

    def submit(self, job: Job) -> Future[list[Any]]:
        with self._changed:
            self.waiting.append(job)
            self._changed.notify()
        return job.answer

    def _run(self) -> None:
        while True:
            # A request that was given up is not computed.
            jobs = [job for job in self._take() if job.answer.set_running_or_notify_cancel()]
            self._compute(jobs)

    def _take(self) -> list[Job]:
        """The first job and those that can be joined with it."""
        with self._changed:
            self._changed.wait_for(lambda: self.waiting)
            taken = [self.waiting.popleft()]
            items, characters = len(taken[0].items), taken[0].characters
            for job in [job for job in self.waiting if job.key == taken[0].key]:
                items += len(job.items)
                characters += job.characters
                if items > self.max_items or characters > self.max_characters:
                    break
                taken.append(job)
                self.waiting.remove(job)
            return taken

    def _compute(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        try:
            found = self.work(jobs[0].key, [item for job in jobs for item in job.items])
        # It belongs to a request, and the thread goes on. Rust's panics are no Exceptions.
        except BaseException as e:  # noqa: BLE001
            if len(jobs) == 1:
                jobs[0].answer.set_exception(e)
                return
            for job in jobs:  # one of them is at fault, and the others have answers
                self._compute([job])
        else:
            answers = iter(found)
            for job in jobs:
                job.answer.set_result([next(answers) for _ in job.items])
