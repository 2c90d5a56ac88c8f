"""Checkpoints of a run: before each, folder and data are looked at, and what was lost is put back
or said."""

from __future__ import annotations

from ..errors import UserError
from . import checkpoint
from .context import RunContext, TrainingData
from .dist import together
from .home import Home, Place
from .log import MetricsLog
from .state import RunState


class Saver:
    """Writes the checkpoints of one run."""

    def __init__(
        self, state: RunState, data: TrainingData, context: RunContext, *, keep: int | None
    ) -> None:
        """keep: how many checkpoints stay; None: all."""
        self.state = state
        self.data = data
        self.context = context
        self.keep = keep
        self.home: Home | None = None  # rank 0's, once the folder has its header
        self.lost: list[str] = []  # what the last save missed of the data

    def save(self, log: MetricsLog, *, leaving: bool) -> None:
        """A checkpoint of the step that the run is at. Called on all ranks; rank 0 writes. Where
        the disk fails the run goes on until the next one, and raises UserError only where it is
        leaving.

        Raises UserError, and saves nothing, where the data was changed under the run; saves, and
        raises it, where the folder is not the run's any more (home.py).
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
                    place.folder, self.state.step, tensors=tensors, state=facts, keep=self.keep
                )
            except UserError as e:
                if leaving or place.ends:
                    raise UserError(f"{e}: free some space and run the same command again") from e
                log.warn(self.state.step, f"{e}: the run goes on, and tries again at its next save")
            if place.ends:
                raise UserError(place.ends)

    def settled(self, log: MetricsLog, lost: list[str]) -> Place:
        """The folder for the next checkpoint, made whole again, and the warnings about it and about
        the data. Raises UserError where it cannot be written."""
        place = self.home.settle() if self.home else Place(self.context.folder)
        again = [LOG_AGAIN] if not place.ends and log.put_back() else []
        new = [f"{sentence}: {OPEN_HERE}" for sentence in lost if sentence not in self.lost]
        self.lost = lost
        for warning in (*place.warnings, *again, *new):
            log.warn(self.state.step, warning)
        return place


LOG_AGAIN = "metrics.jsonl was lost while the run trained; it is written again"
OPEN_HERE = "it is still open here, so the run goes on; put it back before the run is continued"
