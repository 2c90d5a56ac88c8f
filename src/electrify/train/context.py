"""What a run is given beside its recipe: where it runs, and what it reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.loader import Loader, Rows
from .dist import World


@dataclass(frozen=True)
class RunContext:
    """Where a run runs."""

    world: World
    folder: Path
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """What bit-identical continuation rests on: corpus, tokenizer, version of torch, threads, processes, device."""
    deadline: float | None = None
    """On the clock of time.monotonic(); after it the run saves and stops."""
    peak: float = math.inf
    """FLOP/s that one device can do."""
    flops_before: float = 0.0
    """FLOPs of an earlier stage."""


@dataclass(frozen=True)
class TrainingData:
    """What a run reads."""

    loader: Loader
    valid: Rows | None
    """The rows that are validated on; None where the corpus has no valid split."""
    micro_rows: int
    """Rows of one forward pass of one process."""
    unigram_entropy: float
    """Nats: the loss of the best model that sees no context."""

    def lost(self) -> list[str]:
        """What was lost of the corpus and is still open here. Raises UserError where what is open was changed: what has
        been trained since the last save may rest on it and is not saved."""
        corpora = [self.loader.corpus] + ([self.valid.corpus] if self.valid else [])
        return [sentence for corpus in corpora for sentence in corpus.mapped.lost()]
