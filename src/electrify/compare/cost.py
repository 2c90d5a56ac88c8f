"""What a run costs, and what of it a budget counts: FLOPs, tokens, or passes over the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..config.compare import UNITS, Equal
from ..config.flops import Convention
from ..config.pretrain import PretrainConfig
from ..data.phases import phases_of
from ..flops.count import recipe_flops
from ..text.shards import Corpus


@dataclass(frozen=True)
class Cost:
    """What runs cost, and what of it a budget counts."""

    vocab_size: int
    num_rows: Callable[[int, int], int] | None = None
    """(tokens of a row, segments) -> rows that the corpus fills; needed where passes over it
    count."""
    convention: Convention = "hardware"
    equal: Equal = "flops"

    def flops(self, config: PretrainConfig) -> float:
        """Of the whole run, a first stage included."""
        found = recipe_flops(config, vocab_size=self.vocab_size, convention=self.convention)
        return found.train

    def spent(self, config: PretrainConfig) -> float:
        """What the whole run takes from a budget."""
        if self.equal == "flops":
            return self.flops(config)
        return self.passes(config) if self.equal == "epochs" else float(tokens_of(config))

    def passes(self, config: PretrainConfig) -> float:
        """How often the whole run, a first stage included, sees the corpus: the rows that it takes
        over those that the corpus fills, as its log counts them."""
        assert self.num_rows is not None
        t, segments = config.train, config.data.num_segments
        taken = phases_of(config).rows_taken(t.max_steps + t.generator_steps)
        return sum(rows / max(1, self.num_rows(length, segments)) for length, rows in taken.items())

    def shown(self, budget: float) -> str:
        """A budget with its unit."""
        return f"{budget:.3g} {UNITS[self.equal]}"


def tokens_of(config: PretrainConfig) -> int:
    """Places for tokens that a run reads, padding and a first stage included."""
    return phases_of(config).slots(config.train.max_steps + config.train.generator_steps)


def rows_of(corpus: Corpus) -> Callable[[int, int], int]:
    """(tokens of a row, segments) -> how many rows the corpus fills."""

    @cache
    def num_rows(length: int, segments: int) -> int:
        from ..data.loader import Rows  # imports torch

        return Rows(corpus, max_seq_length=length, num_segments=segments).num_rows

    return num_rows
