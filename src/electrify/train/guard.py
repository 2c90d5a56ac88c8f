"""Updates that are judged before a parameter moves: one whose loss or gradient is not a number, and
one whose loss lies far above those before it (a spike). The run stops, warns, leaves the update
out, or goes back to its newest checkpoint and continues after the bad batch.

The verdict is a number on the device, the same on all ranks. The optimiser and the sums for the log
obey it, so the host does not have to wait for it. On a GPU it is read when the run waits anyway, at
a log line or a checkpoint. Refused updates are logged with the rows of their batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..errors import UserError
from ..recipe import Train
from . import checkpoint
from .dist import World, sum_across, together
from .sums import MetricSums

if TYPE_CHECKING:
    from .log import MetricsLog
    from .state import RunContext, RunState, TrainingData  # the guard's state is a part of it

Kind = Literal["non_finite", "spike"]
LOSSES = 128  # a loss is compared with those of this many last accepted updates
ENOUGH = 64  # with fewer losses than this, nothing is a spike
BEGIN_ANEW = (
    "begin anew in another folder with a lower --learning-rate, a higher --warmup-steps or --bf16 "
    "false"
)


@dataclass(frozen=True)
class Verdict:
    """An update in which something is wrong."""

    step: int
    kind: Kind
    text: str
    """What is wrong, as the beginning of a sentence."""
    refused: bool
    """Whether it was left out; False if the policy is to warn."""


class Recent:
    """The losses of the last accepted updates [LOSSES], on the device; NaN in the places not yet
    filled."""

    def __init__(self, device: torch.device) -> None:
        self.losses_U = torch.full((LOSSES,), torch.nan, device=device)

    def add(self, loss: Tensor, *, unless: Tensor) -> None:
        self.losses_U = torch.where(
            unless, self.losses_U, torch.cat([self.losses_U[1:], loss.reshape(1)])
        )

    def mean_and_deviation(self) -> tuple[Tensor, Tensor]:
        """Returns NaN if there are fewer than ENOUGH; every comparison with NaN is false."""
        known = ~self.losses_U.isnan()
        count = torch.where(known.sum() >= ENOUGH, known.sum(), torch.nan)
        mean = self.losses_U.nansum() / count
        return mean, ((self.losses_U - mean).square().nansum() / (count - 1)).sqrt()

    def save(self) -> list[float]:
        return [x for x in self.losses_U.tolist() if x == x]

    def load(self, saved: list[float]) -> None:
        filled = [torch.nan] * (LOSSES - len(saved)) + saved
        self.losses_U = torch.tensor(filled, device=self.losses_U.device)


class Guard:
    """Judges updates, and counts those that a run has refused."""

    def __init__(self, config: Train, world: World) -> None:
        self.policies: dict[Kind, str] = {"non_finite": config.non_finite, "spike": config.spike}
        self.limits: dict[Kind, int] = {
            "non_finite": config.max_non_finite,
            "spike": config.max_spikes,
        }
        self.refused: dict[Kind, int] = {"non_finite": 0, "spike": 0}
        self.sigmas = config.spike_sigmas
        self.world = world
        self.recent = Recent(world.device)
        self._unread: list[tuple[int, Tensor]] = []

    @property
    def free_to_read(self) -> bool:
        """Whether a verdict can be read at once; on a GPU the host would have to wait for it."""
        return self.world.device.type == "cpu"

    def expect_another_loss(self) -> None:
        """Called before the first update of a period in which the objective asks for something
        else, or the rows have another length: its loss is not to be compared with those before."""
        self.recent = Recent(self.world.device)

    def judge(self, step: int, loss: Tensor, norm: Tensor) -> Tensor:
        """A 0-dim float32: 1 if the update is refused, else 0; the same on all ranks.

        step: number of the update, counted from 1. loss: this rank's share of the loss; the shares
        of all ranks add up to it. norm: norm of the whole gradient.
        """
        bad = 1.0 - torch.stack([loss.isfinite(), norm.isfinite()]).all().float()
        loss = loss.detach().clone()
        sum_across([bad, loss])
        bad = bad > 0
        mean, deviation = self.recent.mean_and_deviation()
        # A comparison with NaN is false, and an infinite loss already counts as bad.
        spike = loss > mean + self.sigmas * deviation
        refused = bad if self.policies["spike"] == "warn" else bad | spike
        self.recent.add(loss, unless=refused)
        self._unread.append(
            (step, torch.stack([bad.float(), spike.float(), loss, mean, deviation]))
        )
        return refused.float()

    def settle(self) -> list[Verdict]:
        """The verdicts on updates that went wrong since the last call, the same on all ranks.
        Raises UserError if the policy is to stop, or if there have been too many."""
        unread = self._unread
        self._unread = []
        # The host waits for the device only once for all of them.
        figures = torch.stack([figures for _, figures in unread]).tolist() if unread else []
        verdicts = []
        for (step, _), (bad, spike, loss, mean, deviation) in zip(unread, figures, strict=True):
            if bad:
                verdicts.append(Verdict(step, "non_finite", not_finite(step), refused=True))
            elif spike:
                verdicts.append(
                    Verdict(
                        step,
                        "spike",
                        spike_text(step, loss, mean, deviation),
                        refused=self.policies["spike"] != "warn",
                    )
                )
        for verdict in verdicts:
            self.refused[verdict.kind] += verdict.refused
            self._must_go_on(verdict)
        return verdicts

    def _must_go_on(self, v: Verdict) -> None:
        if self.policies[v.kind] == "stop":
            raise UserError(
                f"{v.text}, so the run stopped without saving; the same command with --non-finite "
                "skip goes on from the newest checkpoint and "
                f"leaves such updates out, or {BEGIN_ANEW}"
            )
        limit = self.limits[v.kind]
        before = self.refused[v.kind] - 1
        if v.refused and before >= limit:
            flag, advice = {
                "non_finite": ("--max-non-finite", BEGIN_ANEW),
                "spike": (
                    "--max-spikes",
                    f"the same command with --spike warn trains on them, or {BEGIN_ANEW}",
                ),
            }[v.kind]
            raise UserError(
                f"{v.text}; {before} updates before it were left out, and {flag} allows {limit}, "
                f"so the run stopped without saving: {advice}"
            )

    def state(self) -> dict[str, Any]:
        """The guard's state for the checkpoint, as JSON that `restore` reads back to the bit."""
        return {"refused": self.refused.copy(), "losses": self.recent.save()}

    def restore(self, state: dict[str, Any]) -> None:
        self.refused.update(state["refused"])
        self.recent.load(state["losses"])


def not_finite(step: int) -> str:
    return f"the loss or gradient of update {step} is not finite"


def spike_text(step: int, loss: float, mean: float, deviation: float) -> str:
    far = f"{(loss - mean) / deviation:.1f} standard deviations" if deviation else "far"
    return f"the loss of update {step} is {loss:.4g}, {far} above the {mean:.4g} of those before it"


class Safety:
    """Reads the guard's verdicts between the updates of one run, and goes back where they ask for
    it."""

    def __init__(
        self, guard: Guard, state: RunState, data: TrainingData, context: RunContext
    ) -> None:
        self.guard = guard
        self.state = state
        self.data = data
        self.context = context

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
        meter = state.meter
        refused = self.guard.refused.copy()
        spent = meter.seconds_before
        left_out = behind.step + state.left_out - step
        state.sums = MetricSums(world.device)
        with together():
            path = checkpoint.folder_of(self.context.folder, step)
            tensors, facts = found[1:] if found else checkpoint.load(path)
        state.load(tensors, facts, rank=world.rank)
        self.guard.refused = refused
        state.left_out = left_out
        meter.seconds_before = spent
        meter.went_back(step=state.step, tokens=state.tokens_seen())
