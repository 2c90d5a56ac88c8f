"""Updates whose loss or gradient is not a number: every rank hears of it before a parameter moves, and the run stops, leaves the update out, or goes
back to its newest checkpoint and on behind the batch.

The verdict is a number on the device: the optimiser and the sums for the log obey it without anybody waiting. On a GPU it is read where the run
waits anyway, at a log line or a checkpoint.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..errors import UserError
from .dist import World, max_across

Policy = Literal["stop", "skip", "rollback"]
BEGIN_ANEW = "begin anew in another folder with a lower --learning-rate, a higher --warmup-steps or --bf16 false"


class Guard:
    """Judges updates, and counts those that were refused in a run."""

    def __init__(self, policy: Policy, limit: int, world: World) -> None:
        """limit: updates that may be refused before the run stops all the same."""
        self.policy: Policy = policy
        self.limit, self.world, self.refused = limit, world, 0
        self._unread: list[tuple[int, Tensor]] = []

    @property
    def free_to_read(self) -> bool:
        """Whether a verdict can be read at once: a GPU would have to be waited for."""
        return self.world.device.type == "cpu"

    def judge(self, step: int, *numbers: Tensor) -> Tensor:
        """0-dim float32: 1 where one of them is not finite on any rank, else 0. step: the update's, counted from 1."""
        bad = 1.0 - torch.stack([n.detach().isfinite() for n in numbers]).all().float()
        max_across(bad)
        self._unread.append((step, bad))
        return bad

    def settle(self) -> list[int]:
        """The updates that were refused since the last time, the same on all ranks. Raises UserError where the policy is to stop, or it is enough."""
        unread, self._unread = self._unread, []
        verdicts = torch.stack([verdict for _, verdict in unread]).tolist() if unread else []  # one wait for all of them
        bad = [step for (step, _), verdict in zip(unread, verdicts, strict=True) if verdict]
        self.refused += len(bad)
        if bad and self.policy == "stop":
            raise UserError(
                f"{not_finite(bad[0])}, so the run stopped without saving; the same command with --non-finite skip goes on from the newest "
                f"checkpoint and leaves such updates out, or {BEGIN_ANEW}"
            )
        if self.refused > self.limit:
            raise UserError(
                f"{not_finite(bad[-1])}, nor was that of {self.refused - 1} updates before it, and --max-non-finite allows {self.limit}, so the run "
                f"stopped without saving; {BEGIN_ANEW}"
            )
        return bad


def not_finite(step: int) -> str:
    return f"the loss or gradient of update {step} is not finite"
