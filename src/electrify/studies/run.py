"""Runs the cells of a study, several side by side, each in a process of its own.

    Study  ->  waiting cells  ->  Running processes  ->  Result lines

A cell that leaves a trunk waits until the trunk has saved the checkpoint from which it starts. If
the trunk is not here, because its results came from another machine, or its checkpoint is damaged,
the cell is run whole.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..files import read_json
from ..progress import Progress, say
from ..recipe import dump, override
from ..train.signals import SAVED_EXIT
from .cell import LOG, OUTCOME, Work, last_words, tail
from .measures import Measuring
from .plan import Cell
from .processes import gpus, slots, spawn
from .results import PRETRAIN, Result, merged, read_results, write_results
from .shares import progress_of, trained_share, weights_of
from .study import (
    Study,
    finished,
    folder_name,
    key_of,
    must_be_ours,
    write_study,
)
from .trunks import as_it_comes, home_of, sound_start_of, start_of, trunk_of

POLL_S = 0.5
GRACE_S = 120.0
"""How long a process that was told to stop may take for its checkpoint."""
SAVES = 20
"""Checkpoints during a run."""


@dataclass
class Running:
    """A cell at work."""

    cell: Cell
    folder: Path
    process: subprocess.Popen[bytes]
    core: int | None
    log_start: int = 0
    """The byte of its log at which this process began: earlier processes wrote what comes
    before."""


def run_study(study: Study) -> list[Result]:
    """Trains and measures what is not finished yet, and returns the results of all cells. Needs the
    folder's lock. Raises UserError for a folder that cannot be used; a cell that fails is a result
    with its reason."""
    must_be_ours(study)  # what another command has meanwhile written there is not overwritten
    write_study(study)
    return Runner(study).run()


class Runner:
    """The processes of a study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.kept = {r.key: r for r in read_results(study.out)}
        self.done = finished(study, self.kept.values())
        # All recipes of one seed before the next seed: a study that is stopped compares them.
        in_order = sorted(study.cells, key=lambda c: c.seed)
        self.waiting = [c for c in in_order if key_of(c) not in self.done]
        self.running: list[Running] = []
        self.slots = slots(study.config.processes, study.config.device)
        # As they are going to be run, for the bar.
        self.shown = {key_of(c): as_it_comes(study, c, self.done) for c in self.waiting}
        self.weights = weights_of(list(self.shown.values()))
        # What failed is tried again, so only what was trained counts.
        self.begun = {key: 0.5 * trained_share(c, self.folder(c)) for key, c in self.shown.items()}

    def run(self) -> list[Result]:
        """Every cell, until none is left."""
        if len(self.done):
            say(f"{len(self.done)} of {len(self.study.cells)} encoders are done already")
        total = len(self.study.cells)
        with Progress(total, title="compare", unit="encoders", done=self.share()) as bar:
            try:
                while self.waiting or self.running:
                    self.fill()
                    time.sleep(POLL_S)
                    self.collect()
                    bar.advance(max(0.0, self.share() - bar.done))
            except BaseException:
                self.stop()
                raise
        return [self.kept[key_of(c)] for c in self.study.cells if key_of(c) in self.kept]

    def share(self) -> float:
        """How many encoders are done; those that were begun count in part."""
        tasks = self.study.config.tasks
        folders = {key_of(r.cell): r.folder for r in self.running}
        done = self.begun | {
            key: progress_of(self.shown[key], folder, tasks) for key, folder in folders.items()
        }
        unfinished = [*self.waiting, *(r.cell for r in self.running)]
        left = sum(self.weights[key] * (1 - done[key]) for key in map(key_of, unfinished))
        return round(len(self.study.cells) - left, 6)  # without rounding errors of equal sums

    def fill(self) -> None:
        """Starts cells in the free slots."""
        free = list(self.slots)
        for r in self.running:
            free.remove(r.core)
        while free and (ready := next(filter(self.is_ready, self.waiting), None)) is not None:
            self.waiting.remove(ready)
            self.running.append(self.start(ready, free.pop(0)))

    def is_ready(self, cell: Cell) -> bool:
        """Whether nothing that the cell needs is still to come."""
        trunk = trunk_of(self.study, cell)
        comes = trunk in self.waiting or any(r.cell is trunk for r in self.running)
        return not comes or start_of(self.study, cell) is not None

    def folder(self, cell: Cell) -> Path:
        return home_of(self.study, cell)

    def start(self, cell: Cell, core: int | None) -> Running:
        """Starts the process of a cell."""
        c = self.study.config
        folder = self.folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OUTCOME).unlink(missing_ok=True)
        work = self.work(cell, folder, core)
        if work.trunk is None:
            self.shown[key_of(cell)] = dataclasses.replace(cell, starts_at=None)
        with (folder / LOG).open("ab") as errors:
            log_start = os.fstat(errors.fileno()).st_size
            process = spawn(work, errors, core, c.device)
        return Running(cell, folder, process, core, log_start)

    def work(self, cell: Cell, folder: Path, core: int | None) -> Work:
        start = sound_start_of(self.study, cell)
        c = self.study.config
        every = max(1, cell.steps // SAVES)
        recipe = override(
            cell.config,
            {
                "save_steps": every,
                "save_total_limit": 1,
                "eval_steps": every,
                "logging_steps": max(1, every // 5),
                "report_to": (),
                "device": c.device,
            },
        )
        return Work(
            data=c.data,
            folder=str(folder),
            recipe=dump(recipe),
            starts=cell.starts,
            corpus=self.study.manifest.fingerprint,
            tasks=c.tasks,
            measuring=Measuring.of(c, self.study.task_data),
            trunk=str(start) if start else None,
            milestones=tuple(sorted(self.milestones(cell))),
            core=None if gpus(c.device) else core,
            parent=os.getpid(),
        )

    def milestones(self, cell: Cell) -> set[int]:
        """The updates at which shorter runs leave this one."""
        return {
            c.starts_at
            for c in self.study.cells
            if c.starts_at is not None and trunk_of(self.study, c) is cell
        }

    def collect(self) -> None:
        """Writes the lines of the processes that have ended."""
        for r in [r for r in self.running if r.process.poll() is not None]:
            self.running.remove(r)
            new = result_of(r, self.study.config.tasks)
            result = self.kept[new.key] = merged(
                self.kept.get(new.key), new, self.study.config.tasks
            )
            self.done = finished(self.study, self.kept.values())
            write_results(self.study.out, self.kept.values())
            said = "; ".join(f"{k}: {v}" for k, v in new.failed.items())
            say(f"{folder_name(r.cell)}: {f'failed ({said})' if said else summary(result)}")

    def stop(self) -> None:
        """Tells every process to save and end, and waits for them."""
        for r in self.running:
            r.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        for r in self.running:
            try:
                r.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                r.process.kill()


def result_of(running: Running, tasks: Sequence[str]) -> Result:
    """The line of a cell whose process has ended. Tasks to which it did not come failed with
    it."""
    cell = running.cell
    where = key_of(cell)
    try:
        result = Result(*where, **read_json(running.folder / OUTCOME))
        missing = [task for task in tasks if task not in {*result.scores, *result.failed}]
        failed = dict.fromkeys(missing, reason_of(running)) if missing else {}
        return dataclasses.replace(result, failed=result.failed | failed)
    except UserError:
        reason = {PRETRAIN: reason_of(running)}
        return Result(*where, cell.steps, cell.flops, 0, 0, 0, {}, reason)


def reason_of(running: Running) -> str:
    """Why a process ended without an outcome, or without that of all tasks."""
    said = last_words(tail(running.folder / LOG, running.log_start))
    status = running.process.returncode
    if status == SAVED_EXIT:
        return f"stopped ({said})"
    if status >= 0:
        return said
    memory = ", perhaps because memory ran out" if -status == signal.SIGKILL else ""
    return f"killed by signal {-status} ({signal.strsignal(-status)}){memory}; it said last: {said}"


def summary(result: Result) -> str:
    """The scores of a cell in one line."""
    shown = (f"{task} {100 * (result.median(task) or 0):.1f}" for task in result.scores)
    return ", ".join(shown)
