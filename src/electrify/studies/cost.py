"""What a run costs, and what of that a budget counts: FLOPs, tokens, or passes over the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..data.phases import phases_of
from ..flop_counts.count import recipe_flops
from ..flop_counts.options import Convention
from ..recipe import Recipe, stages_of
from ..text.corpus import Corpus
from .options import Equal, with_unit


@dataclass(frozen=True)
class Cost:
    """What runs cost, and what of that a budget counts."""

    vocab_size: int
    num_rows: Callable[[int, int], int] | None = None
    """(tokens of a row, segments) -> rows that the corpus fills; needed if passes over it count."""
    convention: Convention = "hardware"
    equal: Equal = "flops"

    def flops(self, config: Recipe) -> float:
        """The FLOPs of the whole run, a first stage included."""
        found = recipe_flops(config, vocab_size=self.vocab_size, convention=self.convention)
        return found.train

    def spent(self, config: Recipe) -> float:
        """What the whole run takes from a budget."""
        if self.equal == "flops":
            return self.flops(config)
        return self.passes(config) if self.equal == "epochs" else float(tokens_of(config))

    def passes(self, config: Recipe) -> float:
        """How often the whole run, a first stage included, sees the corpus: the rows that it takes
        over those that the corpus fills, as its log counts them."""
        assert self.num_rows is not None
        segments = config.data.num_segments
        return sum(
            rows / max(1, self.num_rows(length, segments))
            for stage in stages_of(config)
            for length, rows in phases_of(stage).rows_taken(stage.train.max_steps).items()
        )

    def shown(self, budget: float) -> str:
        """A budget with its unit."""
        return with_unit(budget, self.equal)


def tokens_of(config: Recipe) -> int:
    """Places for tokens that a run reads, padding and a first stage included."""
    return sum(phases_of(stage).slots(stage.train.max_steps) for stage in stages_of(config))


def rows_of(corpus: Corpus) -> Callable[[int, int], int]:
    """(tokens of a row, segments) -> how many rows the corpus fills."""

    @cache
    def num_rows(length: int, segments: int) -> int:
        from ..data.loader import Rows  # imports torch

        return Rows(corpus, max_seq_length=length, num_segments=segments).num_rows

    return num_rows
