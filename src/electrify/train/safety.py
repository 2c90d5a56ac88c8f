"""Protects a run from bad updates. The loop asks what happens to a loss, whether an update counts,
and whether the run has gone back to a checkpoint; and it says when a different loss begins.

Refused updates are logged with the rows of their batches. A run that rolls back returns to its
newest checkpoint.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import faults
from ..errors import UserError
from . import checkpoint
from .dist import sum_across, together
from .guard import BEGIN_ANEW, Guard, Recent, Verdict
from .log import MetricsLog
from .state import RunContext, RunState, TrainingData


class Safety:
    """The guard, the faults that tests provoke, and the rollback, for one run."""

    def __init__(
        self, guard: Guard, state: RunState, data: TrainingData, context: RunContext
    ) -> None:
        self.guard = guard
        self.state = state
        self.data = data
        self.context = context

    def loss(self, loss: Tensor) -> Tensor:
        """Called before the backward pass: the loss, made invalid if a test asks for that."""
        for action in faults.asked("batch", self.state.step + self.state.left_out + 1):
            loss = loss * faults.SPOILS.get(action, 1.0)
        return loss

    def expects_another_loss(self) -> None:
        """Called before the first update of a period in which the objective asks for something
        else, or the rows have another length: its loss is not to be compared with those before."""
        self.guard.recent = Recent(self.context.world.device)

    def refuses(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Called before the optimiser: a 0-dim float32, 1 if the update must change nothing, else
        0; the same on all ranks.

        loss: this rank's share of the loss. norm: the norm of the whole gradient.
        """
        return self.guard.judge(self.state.step + 1, loss, norm)

    def went_back(self, log: MetricsLog, *, wait: bool) -> bool:
        """Called between updates: reads the verdicts and logs what was wrong. Returns True if the
        run is now at an earlier step.

        wait: whether the device may be waited for. All ranks ask at the same updates.
        """
        if not (wait or self.guard.free_to_read):
            return False
        state = self.state
        verdicts = self.guard.settle()
        before = state.step
        refused = [v for v in verdicts if v.refused]
        back = any(self.guard.policies[v.kind] == "rollback" for v in refused)
        rows = {
            v.step: self.data.loader.rows(v.step - 1 + state.left_out).tolist() for v in verdicts
        }
        if back:
            self.go_back(behind=refused[-1])
            log.rewind(state.step)
        for v in verdicts:
            left_out = (
                f"left out ({self.guard.refused[v.kind]} so far, {self.guard.limits[v.kind]} "
                "allowed)"
            )
            happened = left_out if v.refused else "trained on; --spike skip leaves such updates out"
            log.warn(state.step, v.kind, f"{v.text}: {happened}", rows=rows[v.step])
        if back:
            log.warn(
                state.step,
                "went_back",
                f"went back from update {before} to the checkpoint of {state.step}; the "
                "batches between them are left out",
            )
        return back

    def go_back(self, *, behind: Verdict) -> None:
        """Returns to the newest checkpoint, and continues with the batches after that of `behind`.
        The number of refused updates and the time spent still count."""
        world = self.context.world
        # Ranks may see the folder of a shared file system at different times, so the first one
        # decides.
        with together():
            found = checkpoint.newest(self.context.folder) if world.is_main else None
        number = torch.tensor(found[2]["step"] if found else 0)
        sum_across([number])
        step = int(number)
        if not step:
            flag = behind.kind.replace("_", "-")
            raise UserError(
                f"{behind.text} and there is no checkpoint yet to go back to, so the run stopped; "
                "the same command with "
                f"--{flag} skip leaves such updates out, or {BEGIN_ANEW}"
            )
        state = self.state
        meter = self.state.meter
        refused = self.guard.refused.copy()
        spent = meter.seconds_before, meter.joules_before
        left_out = behind.step + state.left_out - step
        with together():
            path = checkpoint.folder_of(self.context.folder, step)
            tensors, facts = found[1:] if found else checkpoint.load(path)
        state.load(tensors, facts, rank=world.rank)
        self.guard.refused = refused
        state.left_out = left_out
        meter.seconds_before, meter.joules_before = spent
        meter.went_back(step=state.step, tokens=state.tokens_seen())
