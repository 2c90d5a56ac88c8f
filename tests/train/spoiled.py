"""Losses that go wrong: with SPOILED=8=nan%1 in its environment `python spoiled.py WORDS...` is
`electrify WORDS` whose loss of the eighth batch is not a number on rank 1. Used by test_guard.py
and many_runs.py."""

import os
import sys
from collections.abc import Mapping

import pytest

from electrify import cli
from electrify.train import loop
from electrify.train.loop import Batch, Run


def spoil(patch: pytest.MonkeyPatch, factors: Mapping[int, float], *, other: float = 1.0) -> None:
    """Multiplies the loss of batches, counted from 1, by these factors, and that of others by
    `other`."""
    update, weighted = Run.update, loop.weighted
    batch = 0

    def counted(self: Run, b: Batch) -> None:
        nonlocal batch
        batch = self.step + self.state.left_out + 1
        update(self, b)

    patch.setattr(Run, "update", counted)
    patch.setattr(loop, "weighted", lambda *given: weighted(*given) * factors.get(batch, other))


def arm() -> None:
    """Spoils what the environment asks for."""
    what, _, rank = os.environ.get("SPOILED", "").partition("%")
    if what and rank == os.environ.get("RANK"):
        batch, _, factor = what.partition("=")
        spoil(pytest.MonkeyPatch(), {int(batch): float(factor)})


if __name__ == "__main__":
    arm()
    sys.exit(cli.main(sys.argv[1:]))
