"""Losses that go wrong."""

from collections.abc import Mapping

import pytest

from electrify.train import loop
from electrify.train.loop import Batch, Run


def spoil(patch: pytest.MonkeyPatch, factors: Mapping[int, float]) -> None:
    """Multiplies the loss of batches, counted from 1, by these factors."""
    update, weighted = Run.update, loop.weighted
    batch = 0

    def counted(self: Run, b: Batch) -> None:
        nonlocal batch
        batch = self.step + self.state.left_out + 1
        update(self, b)

    patch.setattr(Run, "update", counted)
    patch.setattr(loop, "weighted", lambda *given: weighted(*given) * factors.get(batch, 1.0))
