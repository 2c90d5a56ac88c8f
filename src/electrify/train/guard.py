"""Updates that are judged before a parameter moves: one whose loss or gradient is not a number, and
one whose loss lies far above those before it (a spike). The run stops, warns, leaves the update
out, or goes back to its newest checkpoint and continues after the bad batch.

The verdict is a number on the device, the same on all ranks. The optimiser and the sums for the log
obey it, so the host does not have to wait for it. On a GPU it is read when the run waits anyway, at
a log line or a checkpoint. Refused updates are logged with the rows of their batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import UserError
from ..recipe import Train
from .dist import World, sum_across

Kind = Literal["non_finite", "spike"]
LOSSES = 128  # a loss is compared with those of this many last accepted updates
ENOUGH = 64  # with fewer losses than this, nothing is a spike
BEGIN_ANEW = (
    "begin anew in another folder with a lower learning_rate, a higher warmup_steps or bf16=false"
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


class Guard:
    """Judges updates, and counts those that a run has refused."""

    def __init__(self, settings: Train, world: World) -> None:
        s = settings
        self.policies: dict[Kind, str] = {"non_finite": s.non_finite, "spike": s.spike}
        self.limits: dict[Kind, int] = {"non_finite": s.max_non_finite, "spike": s.max_spikes}
        self.refused: dict[Kind, int] = {"non_finite": 0, "spike": 0}
        self.sigmas = s.spike_sigmas
        self.world = world
        self._unread: list[tuple[int, Tensor]] = []
        # The losses of the last accepted updates, NaN in the places not yet filled; always in the
        # same memory.
        self.losses_U = torch.full((LOSSES,), torch.nan, device=world.device)

    def expect_another_loss(self) -> None:
        """Called before the first update of a period in which the objective asks for something
        else, or the rows have another length: its loss is not to be compared with those before."""
        self.losses_U.fill_(torch.nan)

    def judge(self, loss: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        """A 0-dim float32, 1 if the update is refused, else 0, the same on all ranks; and the
        figures of the verdict, for `remember`.

        loss: this rank's share of the loss; the shares of all ranks add up to it. norm: norm of the
        whole gradient.
        """
        bad = 1.0 - (loss.isfinite() & norm.isfinite()).float()
        loss = loss.detach().clone()
        sum_across([bad, loss])
        bad = bad > 0
        # Every comparison with NaN is false, so with too few losses nothing is a spike. An infinite
        # loss already counts as bad.
        known = (~self.losses_U.isnan()).sum()
        count = torch.where(known >= ENOUGH, known, torch.nan)
        mean = self.losses_U.nansum() / count
        deviation = ((self.losses_U - mean).square().nansum() / (count - 1)).sqrt()
        spike = loss > mean + self.sigmas * deviation
        refused = bad if self.policies["spike"] == "warn" else bad | spike
        with_it_U = torch.cat([self.losses_U[1:], loss.reshape(1)])
        self.losses_U.copy_(torch.where(refused, self.losses_U, with_it_U))
        figures = torch.stack([bad.float(), spike.float(), loss, mean, deviation])
        return refused.float(), figures

    def remember(self, step: int, figures: Tensor) -> None:
        """Keeps a verdict until it is read. step: number of the update, counted from 1."""
        self._unread.append((step, figures))

    def settle(self) -> list[Verdict]:
        """The verdicts on updates that went wrong since the last call, the same on all ranks.
        Raises UserError if the policy is to stop, or if there have been too many."""
        unread, self._unread = self._unread, []
        # The host waits for the device only once for all of them.
        figures = torch.stack([figures for _, figures in unread]).tolist() if unread else []
        verdicts = []
        for (step, _), (bad, spike, loss, mean, deviation) in zip(unread, figures, strict=True):
            if bad:
                text = f"the loss or gradient of update {step} is not finite"
                verdicts.append(Verdict(step, "non_finite", text, refused=True))
            elif spike:
                far = f"{(loss - mean) / deviation:.1f} standard deviations" if deviation else "far"
                text = f"the loss of update {step} is {loss:.4g}, {far} above the {mean:.4g} of "
                text += "those before it"
                refused = self.policies["spike"] != "warn"
                verdicts.append(Verdict(step, "spike", text, refused))
        for verdict in verdicts:
            self.refused[verdict.kind] += verdict.refused
            self._must_go_on(verdict)
        return verdicts

    def _must_go_on(self, v: Verdict) -> None:
        if self.policies[v.kind] == "stop":
            raise UserError(
                f"{v.text}, so the run stopped without saving; the same run with non_finite=skip "
                f"goes on from the newest checkpoint and leaves such updates out, or {BEGIN_ANEW}"
            )
        before, limit = self.refused[v.kind] - 1, self.limits[v.kind]
        if v.refused and before >= limit:
            field = {"non_finite": "max_non_finite", "spike": "max_spikes"}[v.kind]
            raise UserError(
                f"{v.text}; {before} updates before it were left out, and {field} allows {limit}, "
                f"so the run stopped without saving: {BEGIN_ANEW}"
            )

    def state(self) -> dict[str, Any]:
        """The guard's state for the checkpoint, as JSON that `restore` reads back to the bit."""
        losses = [x for x in self.losses_U.tolist() if x == x]
        return {"refused": self.refused.copy(), "losses": losses}

    def restore(self, state: dict[str, Any]) -> None:
        self.refused.update(state["refused"])
        self.expect_another_loss()
        if losses := state["losses"]:
            self.losses_U[-len(losses) :] = torch.tensor(losses)
