"""The score that decides a study, and how often a recipe is ahead of the first one: ranks over the
tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .statistics import Interval, mean, mean_ranks, paired, tasks_won

WON = "tasks won"
Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Recipe -> task -> seed -> score, higher is better."""


@dataclass(frozen=True)
class Rank:
    """The score that decides, of a recipe at a budget: its mean rank over the tasks, 1 the best,
    over the seeds that every ranked recipe has; without such a seed, the rank of its means."""

    by_seed: dict[int, float]
    """The mean rank for each of these seeds."""
    mean: Interval
    difference: Interval | None
    """To the first recipe, over the same seeds: below 0 where this one is better. None for the
    first recipe itself, and where the first one has no rank."""
    tasks: int
    won_by_seed: dict[int, float]
    """On how many of the tasks it is ahead of the first recipe, a tie one half, for each seed that
    both have; empty for the first recipe itself, and where the first one has no rank."""
    won: Interval | None
    """The mean over these seeds. Unlike the rank, it does not depend on the other recipes."""

    @property
    def lead(self) -> Interval | None:
        """By how many tasks more than one half it is ahead of the first recipe."""
        if self.won is None:
            return None
        half = self.tasks / 2
        return Interval(self.won.value - half, self.won.low - half, self.won.high - half)


def ranks_of(scores: Scores, first: str) -> dict[str, Rank]:
    """The rank of each recipe that has all tasks. first: the recipe that the others are compared
    with."""
    tasks = sorted({task for of in scores.values() for task in of})
    ranked = {recipe: of for recipe, of in scores.items() if len(of) == len(tasks)}
    of_means = mean_ranks(
        {t: {name: mean(list(of[t].values())).value for name, of in ranked.items()} for t in tasks}
    )
    every = [set(by_seed) for of in ranked.values() for by_seed in of.values()]
    seeds = sorted(set.intersection(*every)) if every else []
    by_seed = {
        s: mean_ranks({t: {name: of[t][s] for name, of in ranked.items()} for t in tasks})
        for s in seeds
    }
    found = {}
    for recipe, rank in of_means.items():
        own = {s: ranks[recipe] for s, ranks in by_seed.items()}
        difference, won = None, {}
        if recipe != first and first in ranked:
            difference = paired(own, {s: ranks[first] for s, ranks in by_seed.items()})
            won = tasks_won(ranked[recipe], ranked[first])
        found[recipe] = Rank(
            own,
            mean(list(own.values()) or [rank]),
            difference,
            len(tasks),
            won,
            mean(list(won.values())) if won else None,
        )
    return found
