"""Losses that go wrong: `python spoiled.py {"8": "nan"} 1 WORDS...` is `electrify WORDS` whose loss
of the eighth batch is not a number on rank 1. Used by test_guard.py."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

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


if __name__ == "__main__":
    factors: dict[str, Any] = json.loads(sys.argv[1])
    if os.environ.get("RANK") == sys.argv[2]:
        spoil(pytest.MonkeyPatch(), {int(n): float(x) for n, x in factors.items()})
    sys.exit(cli.main(sys.argv[3:]))
