"""What a run is given besides its recipe: where it runs, and what it reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.loader import Loader, Rows
from ..text.judged import more_validation
from .dist import World


@dataclass(frozen=True)
class RunContext:
    """Where a run runs."""

    world: World
    folder: Path
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """What bit-identical continuation rests on: corpus, tokenizer, version of torch, threads,
    processes, device."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """What decides the numbers of the run, see decisive.py."""
    deadline: float | None = None
    """The time, on the clock of time.monotonic(), after which the run saves and stops."""
    peak: float = math.inf
    """FLOP/s that one device can do."""
    flops_before: float = 0.0
    """FLOPs that an earlier stage has used."""
    milestones: frozenset[int] = frozenset()
    """Updates whose checkpoints are kept whatever `save_total_limit` says."""


@dataclass(frozen=True)
class TrainingData:
    """What a run reads."""

    loader: Loader
    valid: Rows | None
    """The rows used for validation; None if the corpus has no valid split."""
    micro_rows: int
    """Rows that one process takes in one forward pass."""
    unigram_entropy: float
    """The loss, in nats, of the best model that sees no context."""
    group_rows: int = 1
    """Number of consecutive rows that a loss may compare with each other; no forward pass splits
    such a group."""

    def validated(self, eval_rows: int, *, processes: int) -> tuple[int, int]:
        """How many rows are validated on, and how many of them one process takes at a time."""
        there = self.valid.num_rows if self.valid else 0
        limit = min(eval_rows, there)
        limit -= limit % self.group_rows
        groups = -(-limit // (processes * self.group_rows))
        return limit, min(self.micro_rows, groups * self.group_rows)

    def unvalidated(self, eval_rows: int, *, processes: int) -> str | None:
        """Why nothing is validated; None if something is."""
        if self.valid is None:
            advice = more_validation(self.loader.corpus.manifest)
            return f"the corpus has no valid split, so nothing is validated: {advice}"
        if self.validated(eval_rows, processes=processes)[0]:
            return None
        return (
            f"the corpus's valid split has {self.valid.num_rows:,} rows and the contrast compares "
            f"{self.group_rows:,}, so nothing is validated; prepare it with a larger "
            "--valid-fraction, or give smaller --contrast-rows"
        )

    def lost(self) -> list[str]:
        """The files of the corpus that were lost on disk but are still open here. Raises UserError
        if an open file was changed: what was trained since the last save may be based on it, and is
        not saved."""
        return []
