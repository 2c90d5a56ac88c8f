"""The results of a study as numbers: means over seeds with intervals, differences to the first
recipe, ranks, crossings.

The score that decides is named in study.yaml before the first run: the mean rank over the tasks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .options import UNITS, Equal, with_unit
from .ranks import Rank, ranks_of
from .results import PRETRAIN, Result
from .statistics import Interval, crossing, mean, paired, reached
from .untrained import UNTRAINED

LONGEST = 40
"""Characters of a name in tables and pictures."""


@dataclass(frozen=True)
class Point:
    """A recipe at a budget on a task. Scores are fractions, each the median over the seeds of the
    task."""

    recipe: str
    budget: float
    task: str
    metric: str
    by_seed: dict[int, float]
    mean: Interval
    difference: Interval | None
    """To the first recipe with the same budget, over the seeds that both have; None for the first
    recipe itself."""


@dataclass(frozen=True)
class Crossing:
    """The budget from which a recipe is ahead of the first one, or behind it."""

    recipe: str
    task: str
    ahead: bool
    """Whether the recipe is ahead at the largest budget."""
    always: bool
    """Whether that is so at every budget."""
    grows: float
    """By how much the distance is larger at the largest budget than at the smallest."""
    seeds: int
    """The largest number of seeds that a budget has."""
    at: Interval


@dataclass(frozen=True)
class Cheaper:
    """The smallest budget at which a recipe reaches what the first one reaches at its largest."""

    recipe: str
    task: str
    score: float
    at: Interval
    times: float
    """The first recipe's largest budget over this one: at least, where the recipe reaches the score
    at the smallest budget already; 0 where it does not reach it."""


@dataclass(frozen=True)
class HeldOut:
    """A figure of pre-training on the corpus's held-out text: a loss in nats, or a share."""

    recipe: str
    budget: float
    figure: str
    seeds: int
    mean: Interval


@dataclass(frozen=True)
class Table:
    """Everything that a report says."""

    recipes: list[str]
    budgets: list[float]
    tasks: list[str]
    points: list[Point]
    ranks: dict[float, dict[str, Rank]]
    """Budget -> recipe -> mean rank over the tasks."""
    crossings: list[Crossing]
    cheaper: list[Cheaper]
    costs: dict[tuple[str, float], dict[str, float | None]]
    """Recipe and budget -> medians of FLOPs, tokens and seconds of pre-training; None where
    no encoder's were measured."""
    held_out: list[HeldOut]
    equal: Equal = "flops"
    """What budgets count."""
    failed: list[str] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """The unit of the budgets, in the words that follow a number."""
        return UNITS[self.equal]

    @property
    def shown(self) -> dict[str, str]:
        """A name for each recipe that fits into a table and a legend."""
        return short_names(self.recipes)

    def point(self, recipe: str, budget: float, task: str) -> Point | None:
        """The point of this name, if there is one."""
        wanted = (recipe, budget, task)
        return next((p for p in self.points if (p.recipe, p.budget, p.task) == wanted), None)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Name -> one of at most LONGEST characters; those that would be alike get numbers."""
    found: dict[str, str] = {}
    for name in names:
        cut = short = name if len(name) <= LONGEST else f"{name[: LONGEST - 4]} ..."
        number = 1
        while short in found.values():
            number += 1
            short = f"{cut} #{number}"
        found[name] = short
    return found


def table_of(
    results: Sequence[Result],
    *,
    recipes: Sequence[str],
    tasks: Sequence[str],
    equal: Equal = "flops",
) -> Table:
    """The numbers of a study. recipes, tasks: those of the report, in its order; the first recipe
    is the one to which others are compared. equal: what budgets count."""
    first = recipes[0]
    trained = [r for r in results if r.entry not in UNTRAINED]
    budgets = sorted({r.budget for r in trained})
    points = _points(results, tasks, first)
    scored = {p.task for p in points}
    curves = list(_against_the_first(points, budgets, recipes, tasks))
    return Table(
        list(recipes),
        budgets,
        [task for task in tasks if task in scored],
        points,
        {b: _ranks(points, b, first) for b in budgets},
        list(_crossings(curves)),
        list(_cheaper(curves)),
        _costs(trained),
        list(_held_out(trained)),
        equal,
        list(_failures(results, equal)),
    )


def _points(results: Iterable[Result], tasks: Sequence[str], first: str) -> list[Point]:
    scores: dict[tuple[str, float, str], dict[int, float]] = {}
    metrics: dict[str, str] = {}
    for r in results:
        for task in tasks:
            found = r.median(task)
            if found is not None:
                scores.setdefault((r.entry, r.budget, task), {})[r.seed] = found
                metrics[task] = r.scores[task]["metric"]
    return [
        Point(
            recipe,
            budget,
            task,
            metrics[task],
            values,
            mean(list(values.values())),
            None if recipe == first else paired(values, scores.get((first, budget, task), {})),
        )
        for (recipe, budget, task), values in scores.items()
    ]


def _failures(results: Iterable[Result], equal: Equal) -> Iterable[str]:
    for r in results:
        for task, reason in r.failed.items():
            yield f"{r.entry} at {with_unit(r.budget, equal)}, seed {r.seed}: {task}: {reason}"


def _ranks(points: Iterable[Point], budget: float, first: str) -> dict[str, Rank]:
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for p in points:
        if p.budget == budget:
            scores.setdefault(p.recipe, {})[p.task] = p.by_seed
    return ranks_of(scores, first)


def _curves(
    points: Iterable[Point], budgets: Sequence[float], recipe: str, task: str
) -> list[Point]:
    """The points of a recipe on a task by budget; empty unless there is one for each budget."""
    found = {p.budget: p for p in points if (p.recipe, p.task) == (recipe, task)}
    return [found[b] for b in budgets] if all(b in found for b in budgets) else []


def _against_the_first(
    points: Sequence[Point], budgets: Sequence[float], recipes: Sequence[str], tasks: Sequence[str]
) -> Iterator[tuple[list[Point], list[Point]]]:
    """The curves of each further recipe and of the first one on each task. Needs two budgets."""
    for recipe in recipes[1:] if len(budgets) > 1 else ():
        for task in tasks:
            ours = _curves(points, budgets, recipe, task)
            theirs = _curves(points, budgets, recipes[0], task)
            if ours and theirs:
                yield ours, theirs


def _crossings(curves: Iterable[tuple[list[Point], list[Point]]]) -> Iterator[Crossing]:
    for ours, theirs in curves:
        differences = [
            [a.by_seed[s] - b.by_seed[s] for s in sorted(a.by_seed.keys() & b.by_seed.keys())]
            for a, b in zip(ours, theirs, strict=True)
        ]
        means = [statistics.fmean(found) for found in differences if found]
        # A recipe that ends level is neither ahead nor behind.
        if len(means) == len(differences) and means[-1]:
            ahead = [x > 0 for x in means]
            at = crossing([p.budget for p in ours], differences)
            always = len(set(ahead)) == 1 and all(means)
            seeds = max(map(len, differences))
            grows = round(abs(means[-1]) - abs(means[0]), 12)
            yield Crossing(ours[0].recipe, ours[0].task, ahead[-1], always, grows, seeds, at)


def _cheaper(curves: Iterable[tuple[list[Point], list[Point]]]) -> Iterator[Cheaper]:
    for ours, theirs in curves:
        score = theirs[-1].mean.value
        budgets = [p.budget for p in ours]
        at = reached(budgets, [list(p.by_seed.values()) for p in ours], score)
        times = budgets[-1] / max(at.value, budgets[0])
        yield Cheaper(ours[0].recipe, ours[0].task, score, at, times)


def _costs(results: Iterable[Result]) -> dict[tuple[str, float], dict[str, float | None]]:
    grouped: dict[tuple[str, float], list[Result]] = {}
    for r in results:
        if not r.failed.get(PRETRAIN):
            grouped.setdefault((r.entry, r.budget), []).append(r)
    return {
        key: {
            name: _median(getattr(r, name) for r in found)
            for name in ("flops", "tokens", "seconds")
        }
        for key, found in grouped.items()
    }


def _median(values: Iterable[float | None]) -> float | None:
    """Of what was measured; None where nothing was."""
    found = [float(v) for v in values if v is not None]
    return statistics.median(found) if found else None


def _held_out(results: Iterable[Result]) -> Iterator[HeldOut]:
    grouped: dict[tuple[str, float, str], list[float]] = {}
    for r in results:
        for figure, value in r.validation.items():
            if isinstance(value, int | float):
                grouped.setdefault((r.entry, r.budget, figure), []).append(float(value))
    for (recipe, budget, figure), values in grouped.items():
        yield HeldOut(recipe, budget, figure, len(values), mean(values))
