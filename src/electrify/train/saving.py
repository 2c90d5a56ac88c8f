"""Writes the checkpoints of a run. Before each one it checks the folder and the data, and puts back
what was lost, or reports it."""

from __future__ import annotations

from ..errors import UserError
from . import checkpoint
from .context import RunContext, TrainingData
from .dist import together
from .home import Home, Place
from .log import MetricsLog
from .run_state import RunState


class Saver:
    """Writes the checkpoints of one run."""

    def __init__(
        self, state: RunState, data: TrainingData, context: RunContext, *, keep: int | None
    ) -> None:
        """keep: how many checkpoints to keep; None keeps all."""
        self.state = state
        self.data = data
        self.context = context
        self.keep = keep
        self.home: Home | None = None  # on rank 0 only, once the folder has its header
        self.lost: list[str] = []  # files of the corpus that the last save found missing

    def save(self, log: MetricsLog, *, leaving: bool) -> None:
        """Writes a checkpoint of the current step. Called on all ranks; rank 0 writes. If the disk
        fails, the run goes on until the next checkpoint; a UserError is raised only if the run is
        ending.

        Raises UserError and saves nothing if the data was changed during the run. Saves, and then
        raises UserError, if the folder no longer belongs to the run (home.py).
        """
        main = self.context.world.is_main
        context = self.context
        facts = self.state.facts() | {"fingerprint": context.fingerprint, "recipe": context.recipe}
        tensors = self.state.tensors(keep=main)
        with together():
            lost = self.data.lost()
            if not main:
                return
            place = self.settled(log, lost)
            try:
                checkpoint.save(
                    place.folder,
                    self.state.step,
                    tensors=tensors,
                    state=facts,
                    keep=self.keep,
                    milestones=context.milestones,
                )
            except UserError as e:
                if leaving or place.ends:
                    raise UserError(f"{e}: free some space and run the same command again") from e
                tried = f"{e}: the run goes on, and tries again at its next save"
                log.warn(self.state.step, "save", tried)
            if place.ends:
                raise UserError(place.ends)

    def settled(self, log: MetricsLog, lost: list[str]) -> Place:
        """The folder for the next checkpoint, after it has been repaired, and the warnings about it
        and about the data. Raises UserError if the folder cannot be written."""
        place = self.home.settle() if self.home else Place(self.context.folder)
        step = self.state.step
        for warning in place.warnings:
            log.warn(step, "folder", warning)
        for sentence in lost:
            if sentence not in self.lost:
                log.warn(step, "data", f"{sentence}: {OPEN_HERE}")
        self.lost = lost
        return place


OPEN_HERE = "it is still open here, so the run goes on; put it back before the run is continued"
