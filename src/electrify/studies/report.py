"""The report of a study: means over seeds with intervals, differences to the first recipe, ranks,
crossings; as report.md, report.csv, report.json and report.png."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from itertools import chain, count, product
from statistics import fmean, median
from typing import Any

import numpy as np

from ..files import json_text
from ..finetuning.report import markdown_table
from ..progress import aligned, inert
from . import intervals
from .budgets import BASELINES, RANDOM
from .intervals import Interval, mean_ranks, tasks_won
from .measures import MEAN_RANK, Score
from .options import UNITS, Equal, with_unit
from .study import Result

WON = "tasks won"
DECLARED, PLAIN = "declared score", "mean of the tasks"
MEANS = (DECLARED, PLAIN)
HELD_OUT = "held-out text"
PLACES = {DECLARED: 0, PLAIN: 0, MEAN_RANK: 2, WON: 2, HELD_OUT: 3}
"""In the order of the rows; the tasks have 1."""
LONGEST = 40
"""Characters of a name in tables and plots."""
COSTS = ("flops", "tokens", "seconds")
COLUMNS = ("recipe", "budget", "task", "metric", "seeds", "mean", "low", "high")
COLUMNS += ("difference", "difference_low", "difference_high")
BySeed = dict[str, dict[int, float]]
"""Recipe -> seed -> value."""
Values = dict[tuple[float, str, str], BySeed]
"""Budget, task and metric -> the values of all encoders."""
PAGE = """\
# Comparison

The score that was named before the first run: {score}. Scores times 100, means over the seeds of \
pre-training with their 95 % intervals, each the median over the seeds of the task. The variance \
of seeds is that of all recipes with the same budget; one that spreads more keeps its own. The \
intervals cover seeds on fixed examples. Bold: better than {first}, italic: worse, after Holm over \
the tasks. Tasks won: on how many a recipe is better than {first} with the same seed, a tie one \
half (bold or italic: half of the tasks lies outside the interval). Minutes: of pre-training, the \
median; longer than those of an idle core if other work ran.
"""


@dataclass(frozen=True)
class Row:
    """A recipe at a budget: on a task (scores are fractions, each the median over the seeds of the
    task), in a mean over the tasks (MEANS), in ranks (task MEAN_RANK, 1 the best), in tasks won
    against the first recipe (task WON), or in a figure of pre-training on the validation set (task
    HELD_OUT)."""

    recipe: str
    budget: float
    task: str
    metric: str
    by_seed: dict[int, float]
    mean: Interval
    difference: Interval | None = None
    """To the first recipe with the same budget."""
    chance: float = 1.0
    """The probability of so large a difference if there is none."""
    significant: bool = False
    """Whether the difference is: on tasks together with those of all other tasks (Holm)."""

    @property
    def lead(self) -> float:
        """By how much it is better than the first recipe: below 0 in ranks, above half of the tasks
        won."""
        if self.task == WON:
            return self.mean.value - int(self.metric.removeprefix("of ")) / 2
        value = self.difference.value if self.difference else 0.0
        return -value if self.task == MEAN_RANK else value

    def shown(self, *, marks: bool) -> str:
        """`67.1 ± 1.2` of a fraction, `1.67 ± 0.72` of a rank, `5.8 ± 1.2 of 9`. marks: bold where
        it is significantly better than the first recipe, italic where it is worse."""
        scale, digits = {MEAN_RANK: (1, 2), WON: (1, 1)}.get(self.task, (100, 1))
        half = scale * (self.mean.high - self.mean.low) / 2
        text = f"{scale * self.mean.value:.{digits}f}"
        text += f" ± {half:.{digits}f}" if math.isfinite(half) else ""
        text += f" {self.metric}" if self.task == WON else ""
        mark = ("**" if self.lead > 0 else "*") if marks and self.significant else ""
        return f"{mark}{text}{mark}"


@dataclass(frozen=True)
class Curve:
    """A recipe on a task over all budgets, against the first recipe."""

    recipe: str
    task: str
    leads: list[float]
    """By how much it is ahead of the first recipe at each budget, below 0 if it is behind."""
    seeds: int
    """The largest number of seeds that a budget has."""
    crosses: Interval
    """The budget from which it is as at the largest one."""
    score: float
    """The score of the first recipe at its largest budget."""
    reached: Interval
    """The smallest budget at which the recipe reaches that."""
    times: float
    """The first recipe's largest budget over that one: at least, where the recipe reaches the score
    at the smallest budget already."""

    def since(self, unit: str) -> str:
        """Where the crossing lies. unit: of the budgets."""
        at = self.crosses
        if not math.isfinite(at.value):
            if not all(lead * self.leads[-1] > 0 for lead in self.leads):
                return "at the largest budget, and it was otherwise in between"
            grows = abs(self.leads[-1]) > abs(self.leads[0])
            how = f"by {'more' if grows else 'less'} at the largest than at the smallest"
            return f"at every budget, {how}: where they cross is not within the range"
        low, high = (
            f"{x:.3g}" if math.isfinite(x) else "below the range" if x < 0 else "beyond it"
            for x in (at.low, at.high)
        )
        bounds = f"{low} to {high}" if self.seeds > 1 else "one seed"
        return f"from {at.value:.3g} {unit} on ({bounds})"

    def cheaper(self, equal: Equal) -> str:
        less = "at least " * (self.reached.value == -math.inf) + f"{self.times:.1f} times"
        return f"{less} cheaper" if equal == "flops" else f"with {less} less text"


@dataclass(frozen=True)
class Table:
    """Everything that a report contains."""

    recipes: list[str]
    budgets: list[float]
    tasks: list[str]
    rows: list[Row]
    costs: dict[tuple[str, float], dict[str, float]]
    """Recipe and budget -> medians of FLOPs, tokens and seconds of pre-training."""
    failed: list[str]
    equal: Equal = "flops"
    """What budgets count."""
    score: Score | None = None
    """What decides; None: the mean rank."""

    @cached_property
    def shown(self) -> dict[str, str]:
        """A name for each recipe that fits into a table and a legend."""
        return short_names(self.recipes)

    @cached_property
    def curves(self) -> list[Curve]:
        return list(_curves(self))

    @cached_property
    def _rows(self) -> dict[tuple[str, float, str], Row]:
        return {(r.recipe, r.budget, r.task): r for r in self.rows}

    def row(self, recipe: str, budget: float, task: str) -> Row | None:
        return self._rows.get((recipe, budget, task))

    def seconds(self, recipe: str, budget: float) -> float:
        """Of pre-training; 0 if no encoder was trained."""
        return self.costs.get((recipe, budget), {}).get("seconds", 0.0)

    def metric(self, task: str) -> str:
        return next(row.metric for row in self.rows if row.task == task)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Name -> one of at most LONGEST characters; those that would be alike get numbers."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        cut = name if len(name) <= LONGEST else f"{name[: LONGEST - 4]} ..."
        numbered = chain([cut], (f"{cut} #{number}" for number in count(2)))
        found[name] = next(short for short in numbered if short not in found.values())
    return found


# ------------------------------------------------------------------ from results to the table


def table_of(
    results: Sequence[Result],
    *,
    recipes: Sequence[str],
    tasks: Sequence[str],
    equal: Equal = "flops",
    score: Score | None = None,
) -> Table:
    """The numbers of a study. recipes, tasks: those of the report, in its order; the first recipe
    is the one to which others are compared. score: the one that decides; None: the mean rank."""
    trained = [r for r in results if r.entry not in BASELINES]
    budgets = sorted({r.budget for r in trained})
    values = _values(results, tasks, score)
    rows = _rows(values, recipes[0])
    for budget in budgets:
        its = [of for (b, task, _), of in values.items() if b == budget and task in tasks]
        rows += _ranked(its, budget, recipes[0])
    rows.sort(key=lambda row: PLACES.get(row.task, 1))
    costs = defaultdict[tuple[str, float], list[Result]](list)
    for r in (r for r in trained if r.steps):
        costs[r.entry, r.budget].append(r)
    medians = {
        key: {name: median(getattr(r, name) for r in of) for name in COSTS}
        for key, of in costs.items()
    }
    failed = [
        f"{r.entry} at {with_unit(r.budget, equal)}, seed {r.seed}: {task}: {reason}"
        for r in results
        if not r.scores.keys() >= set(tasks)
        for task, reason in r.failed.items()
    ]
    scored = {row.task for row in rows}
    shown = [task for task in tasks if task in scored]
    return Table(list(recipes), budgets, shown, rows, medians, failed, equal, score)


def _values(results: Sequence[Result], tasks: Sequence[str], score: Score | None) -> Values:
    """Of each encoder: its tasks, their mean if it has all, the declared score if it has those of
    it, and, if it was trained, its figures on held-out text."""
    needed = score.tasks if score else []
    untrained = [r for r in results if r.entry == RANDOM and r.scores.keys() >= set(needed)]
    random = {t: fmean(r.median(t) for r in untrained) for t in needed if untrained}
    values = defaultdict[tuple[float, str, str], BySeed](dict)
    for r in results:
        own = {task: r.median(task) for task in tasks if task in r.scores}
        found = {(task, r.scores[task]["metric"]): value for task, value in own.items()}
        if score and random and own.keys() >= set(needed):
            found[DECLARED, "score"] = score.of(own, random)
        if len(own) == len(tasks) > 1:
            found[PLAIN, "mean"] = fmean(own.values())
        if r.entry not in BASELINES:
            figures = {k: float(x) for k, x in r.validation.items() if isinstance(x, int | float)}
            found |= {(HELD_OUT, figure): value for figure, value in figures.items()}
        for (task, metric), value in found.items():
            values[r.budget, task, metric].setdefault(r.entry, {})[r.seed] = value
    return values


def _rows(values: Values, first: str) -> list[Row]:
    """A row for each value. The spread of seeds is that of all recipes with the same budget and
    task, and what is significant on a task is so together with all others (Holm)."""
    rows = list[Row]()
    for (budget, task, metric), by_recipe in values.items():
        seeds = {recipe: list(own.values()) for recipe, own in by_recipe.items()}
        spread = intervals.spreads(seeds)
        for recipe, own in by_recipe.items():
            lead: tuple[Interval | None, float] = None, 1.0
            if recipe != first and first in seeds and task != HELD_OUT:
                lead = intervals.difference(
                    seeds[recipe], seeds[first], spread[recipe], spread[first]
                )
            mean = intervals.mean(seeds[recipe], spread[recipe])
            rows.append(Row(recipe, budget, task, metric, own, mean, *lead))
    together = defaultdict[tuple[str, float, str], dict[str, float]](dict)
    for row in (row for row in rows if row.difference):
        kind = row.task if row.task in MEANS else "tasks"
        together[row.recipe, row.budget, kind][row.task] = row.chance
    certain = {(*key[:2], task) for key, of in together.items() for task in intervals.holm(of)}
    return [replace(r, significant=(r.recipe, r.budget, r.task) in certain) for r in rows]


def _ranked(tasks: Sequence[BySeed], budget: float, first: str) -> Iterator[Row]:
    """Ranks and tasks won of the recipes that have all tasks, over the seeds that every one of them
    has, and that the two have. tasks: recipe -> scores by seed, for each task."""
    names = sorted(set.intersection(*map(set, tasks))) if tasks else []
    # [T] of each recipe and seed that has all tasks.
    scores = {
        name: {seed: [of[name][seed] for of in tasks] for seed in shared(of[name] for of in tasks)}
        for name in names
    }
    ranks = {
        seed: dict(zip(names, mean_ranks([of[seed] for of in scores.values()]), strict=True))
        for seed in (shared(scores.values()) if names else [])
    }
    for name in names:
        against = name != first and first in scores
        if ranks:
            by_seed = {seed: of[name] for seed, of in ranks.items()}
            mean = intervals.mean([*by_seed.values()])
            leads = [of[name] - of[first] for of in ranks.values()] if against else []
            lead = intervals.mean(leads) if leads else None  # those of one seed are paired
            certain = bool(lead and lead.excludes(0))
            yield Row(name, budget, MEAN_RANK, "rank", by_seed, mean, lead, significant=certain)
        seeds = shared([scores[name], scores[first]]) if against else []
        if len(seeds) > 1:  # of one seed it would look like a result
            won = {seed: tasks_won(scores[name][seed], scores[first][seed]) for seed in seeds}
            mean, metric = intervals.mean([*won.values()]), f"of {len(tasks)}"
            certain = mean.excludes(len(tasks) / 2)
            yield Row(name, budget, WON, metric, won, mean, significant=certain)


def shared(by_seed: Iterable[Mapping[int, Any]]) -> list[int]:
    """The seeds that all of them have."""
    return sorted(set.intersection(*map(set, by_seed)))


def _curves(table: Table) -> Iterator[Curve]:
    """The curves of each further recipe against the first one, on each task where both have all
    budgets, at each with a seed in common. Needs two budgets."""
    budgets, (first, *others) = table.budgets, table.recipes
    for recipe, task in product(others if len(budgets) > 1 else (), [DECLARED, *table.tasks]):
        both = [(table.row(recipe, b, task), table.row(first, b, task)) for b in budgets]
        pairs = [(ours, theirs) for ours, theirs in both if ours and theirs]
        seeds = [shared((ours.by_seed, theirs.by_seed)) for ours, theirs in pairs]
        if len(pairs) < len(budgets) or not all(seeds):
            continue
        leads = [
            [ours.by_seed[seed] - theirs.by_seed[seed] for seed in its]
            for (ours, theirs), its in zip(pairs, seeds, strict=True)
        ]
        score = pairs[-1][1].mean.value
        reaches = intervals.reached(budgets, [[*a.by_seed.values()] for a, _ in pairs], score)
        yield Curve(
            recipe,
            task,
            leads=list(map(fmean, leads)),
            seeds=max(map(len, leads)),
            crosses=intervals.crossing(budgets, leads),
            score=score,
            reached=reaches,
            times=budgets[-1] / max(reaches.value, budgets[0]),
        )


# ------------------------------------------------------------------ writing


def in_json(table: Table) -> str:
    """Every number of the report. Infinite bounds are null."""
    found = asdict(table) | {"curves": list(map(asdict, table.curves))}
    found["costs"] = [{"recipe": r, "budget": b} | cost for (r, b), cost in table.costs.items()]
    found["score"] = asdict(table.score) if table.score else MEAN_RANK
    return json_text(found, indent=1) + "\n"


def in_csv(table: Table) -> str:
    """One line for each row of the table."""
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(COLUMNS)
    for row in table.rows:
        names = row.recipe, exactly(row.budget), row.task, row.metric
        lead = astuple(row.difference) if row.difference else ("", "", "")
        written.writerow([*names, len(row.by_seed), *astuple(row.mean), *lead])
    return text.getvalue()


def exactly(budget: float) -> str:
    """A budget such that no other one is written alike: `1e+15`, `1234567`."""
    short = f"{budget:g}"
    return short if float(short) == budget else repr(float(budget)).removesuffix(".0")


def text(table: Table) -> str:
    """The scores as aligned lines for the terminal."""
    parts = []
    for budget, rows in tables(table, marks=False):
        parts += [f"{budget}:", *aligned(rows, names=1), ""]
    return "\n".join([*parts, *sentences(table)]).rstrip()


def markdown(table: Table) -> str:
    """The scores of each budget, what follows from them, and what failed."""
    decides = f"{MEAN_RANK} (1 is the best)"
    if table.score is not None:
        of = (f"{name} ({', '.join(tasks)})" for name, tasks in table.score.families.items())
        decides = f"mean over families of (score - floor) / (ceiling - floor): {'; '.join(of)}"
    lines = [PAGE.format(score=decides, first=inert(table.shown[table.recipes[0]]))]
    for budget, rows in tables(table, marks=True):
        lines += [f"## {budget}", "", markdown_table(rows, names=1), ""]
    cut = [(short, name) for name, short in table.shown.items() if short != name]
    lines += [f"- {inert(short)} stands for {inert(name)}" for short, name in cut]
    lines += [f"- {inert(line)}" for line in sentences(table)]
    return "\n".join([*lines, *_pretraining(table), ""])


def _pretraining(table: Table) -> list[str]:
    """The figures of pre-training at the largest budget, as a table. Those of different objectives
    are not comparable, so none is bold."""
    rows = [["recipe", "figure", "mean", "interval"]]
    for row in table.rows:
        if row.task == HELD_OUT and row.budget == table.budgets[-1] and row.recipe in table.shown:
            m = row.mean
            bounds = f"{m.low:.3f} to {m.high:.3f}" if math.isfinite(m.high - m.low) else "one seed"
            rows.append([table.shown[row.recipe], row.metric, f"{m.value:.3f}", bounds])
    if len(rows) == 1:
        return []
    title = f"## Pre-training, on held-out text: {with_unit(table.budgets[-1], table.equal)}"
    return ["", title, "", markdown_table(rows, names=2)]


def tables(table: Table, *, marks: bool) -> list[tuple[str, list[list[str]]]]:
    """A title and rows, header first: the largest budget first, the baselines last. marks: see
    `Row.shown`."""

    def cells(recipe: str, budget: float, tasks: Sequence[str]) -> list[str]:
        found = (table.row(recipe, budget, task) for task in tasks)
        return [row.shown(marks=marks and bool(budget)) if row else "-" for row in found]

    means = [mean for mean in MEANS if any(row.task == mean for row in table.rows)]
    columns = [*means, *table.tasks]
    head = ["recipe", *means, *(f"{task} ({table.metric(task)})" for task in table.tasks)]
    found = []
    for budget in reversed(table.budgets):
        rows = [
            [short, *cells(name, budget, [*columns, MEAN_RANK, WON]), f"{s / 60:.1f}" if s else "-"]
            for name, short in table.shown.items()
            for s in [table.seconds(name, budget)]
        ]
        title = with_unit(budget, table.equal)
        found.append((title, [[*head, "mean rank", WON, "minutes"], *rows]))
    rows = [[name, *cells(name, 0.0, columns)] for name in BASELINES]
    rows = [row for row in rows if set(row[1:]) - {"-"}]
    return found + ([("Before training", [head, *rows])] if rows else [])


def sentences(table: Table) -> list[str]:
    """What follows from the curves, and what failed."""
    shown, first = table.shown, table.shown[table.recipes[0]]
    found = []
    for c in (c for c in table.curves if c.leads[-1]):  # level is neither ahead nor behind
        state = "ahead of" if c.leads[-1] > 0 else "behind"
        since = c.since(UNITS[table.equal])
        found.append(f"{c.task}: {shown[c.recipe]} is {state} {first} {since}")
    for c in (c for c in table.curves if c.reached.value < math.inf):
        reaches = f"{shown[c.recipe]} reaches the {100 * c.score:.1f} of {first}"
        found.append(f"{c.task}: {reaches} {c.cheaper(table.equal)}")
    found += _in_equal_time(table)
    return [*found, *(f"failed: {line}" for line in table.failed)]


def _in_equal_time(table: Table) -> Iterator[str]:
    """What each recipe and the first one reach in the same minutes, the longest for which both have
    a score, by interpolation between their budgets."""
    task = DECLARED if table.score else PLAIN

    def curve(recipe: str) -> np.ndarray:
        """Logarithms of seconds, rising, and scores."""
        points = [
            (math.log(seconds), row.mean.value)
            for b in table.budgets
            if (row := table.row(recipe, b, task)) and (seconds := table.seconds(recipe, b))
        ]
        return np.array(sorted(points)).reshape(-1, 2).T

    (name, *others), theirs = table.recipes, curve(table.recipes[0])
    for recipe in others:
        pair = curve(recipe), theirs
        if not all(x.size for x in pair):
            continue
        at = min(x[0, -1] for x in pair)
        if at > max(x[0, 0] for x in pair):
            a, b = (100 * np.interp(at, *x) for x in pair)
            who = f"{table.shown[recipe]} has {a:.1f}, {table.shown[name]} {b:.1f}"
            yield f"{task}: in {math.exp(at) / 60:.0f} minutes each {who}"
