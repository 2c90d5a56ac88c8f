"""The phases of a run: the row length and the batch size at each update.

- length curriculum: with seq_length_schedule {128: 0.9} and max_seq_length 512 rows have 128 tokens
  for 90 % of the updates and 512 for the rest, as BERT's have
- batch warm-up: with batch_size_schedule {32: 0.1} and train_batch_size 128 batches have 32 rows
  for the first 10 % of the updates

One prepared corpus serves any length. The rows of each length are a stream of their own; a phase
continues its stream where an earlier phase stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..recipe import Recipe, first_steps


@dataclass(frozen=True)
class Phase:
    """The updates from `first` on, with batches of `batch_rows` rows (over all ranks) of
    `row_length` tokens."""

    first: int
    row_length: int
    batch_rows: int

    @property
    def slots(self) -> int:
        """Tokens of a batch, including padding."""
        return self.row_length * self.batch_rows


class Phases:
    """The phases of a run in order; the last one has no end."""

    def __init__(self, *phases: Phase) -> None:
        assert phases
        assert phases[0].first == 0
        self.all = phases

    def at(self, step: int) -> Phase:
        """The phase of an update, counted from 0."""
        return next((p for p in reversed(self.all) if p.first <= step), self.all[0])

    def rows_taken(self, step: int) -> dict[int, int]:
        """The number of rows used before `step`, for each row length."""
        taken = dict.fromkeys(self.row_lengths, 0)
        for phase, updates in self.updates(step):
            taken[phase.row_length] += updates * phase.batch_rows
        return taken

    def updates(self, step: int) -> list[tuple[Phase, int]]:
        """How many of the updates before `step` belong to each phase."""
        ends = [p.first for p in self.all[1:]] + [step]
        return [
            (p, max(0, min(end, step) - p.first)) for p, end in zip(self.all, ends, strict=True)
        ]

    def first_row(self, step: int) -> int:
        """The number of a batch's first row in the stream of its row length."""
        return self.rows_taken(step)[self.at(step).row_length]

    def slots(self, step: int) -> int:
        """Tokens of all batches before `step`, including padding."""
        return sum(phase.slots * updates for phase, updates in self.updates(step))

    @property
    def row_lengths(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(p.row_length for p in self.all))

    @property
    def length_changes(self) -> set[int]:
        """The updates at which the length of the rows changes."""
        return {b.first for a, b in pairwise(self.all) if a.row_length != b.row_length}

    @property
    def batch_rows(self) -> dict[int, int]:
        """For each row length, the rows of its last batches."""
        return {p.row_length: p.batch_rows for p in self.all}


def phases_of(recipe: Recipe) -> Phases:
    """The phases of a recipe. A schedule gives shares of all updates, in its order; the remaining
    updates have the recipe's own row length and batch size."""
    t = recipe.train
    d = recipe.data
    lengths = first_steps(d.seq_length_schedule, d.max_seq_length, t.max_steps)
    batches = first_steps(t.batch_size_schedule, t.train_batch_size, t.max_steps)
    return Phases(
        *(
            Phase(first, _at(lengths, first), _at(batches, first))
            for first in sorted({*lengths, *batches})
        )
    )


def _at(values: dict[int, int], step: int) -> int:
    return values[max(first for first in values if first <= step)]
