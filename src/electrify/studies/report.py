"""The report of a study: report.md, report.csv, report.json and report.png."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from pathlib import Path
from typing import Any

from ..console import inert, uncalculated
from ..files import json_text, write
from ..progress import aligned, say
from .options import SCORE, with_unit
from .plot import drawn
from .ranks import WON, Rank
from .statistics import Interval
from .table import Crossing, Table
from .untrained import UNTRAINED

COLUMNS = (
    *("recipe", "budget", "task", "metric", "seeds", "mean", "low", "high"),
    *("difference", "difference_low", "difference_high"),
)
HELD_OUT = "held-out text"


def write_report(table: Table, folder: Path, *, against: str) -> None:
    """Writes the report. against: the cost on the horizontal axis of the picture. Needs the
    folder's lock."""
    write(folder / "report.md", markdown(table))
    write(folder / "report.csv", as_csv(table))
    write(folder / "report.json", as_json(table))
    picture = drawn(table, against=against) if table.points else None
    if picture is None and table.points:
        say("report.png is not drawn: pip install 'electrify[plot]'")
    elif picture is not None:
        write(folder / "report.png", picture)


def as_json(table: Table) -> str:
    """Every number of the report."""
    plain = dataclasses.asdict(table)
    plain["costs"] = [
        {"recipe": recipe, "budget": budget} | cost
        for (recipe, budget), cost in table.costs.items()
    ]
    plain["score"] = SCORE
    # Infinite bounds are null.
    return json_text(plain, indent=1) + "\n"


def as_csv(table: Table) -> str:
    """One line for each recipe, budget and task, for each rank over the tasks, and for each figure
    on held-out text."""
    rows: list[list[Any]] = [list(COLUMNS)]
    for p in table.points:
        what = [p.recipe, exactly(p.budget), p.task, p.metric, len(p.by_seed)]
        rows.append([*what, *_bounds(p.mean), *_bounds(p.difference)])
    for budget, ranks in table.ranks.items():
        for recipe, r in ranks.items():
            what = [recipe, exactly(budget), SCORE, "rank", len(r.by_seed)]
            rows.append([*what, *_bounds(r.mean), *_bounds(r.difference)])
            if r.won is not None:
                what = [recipe, exactly(budget), WON, f"of {r.tasks}", len(r.won_by_seed)]
                rows.append([*what, *_bounds(r.won), *_bounds(None)])
    for h in table.held_out:
        what = [h.recipe, exactly(h.budget), HELD_OUT, h.figure, h.seeds]
        rows.append([*what, *_bounds(h.mean), *_bounds(None)])
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerows([uncalculated(v) if isinstance(v, str) else v for v in row] for row in rows)
    return text.getvalue()


def exactly(budget: float) -> str:
    """A budget such that no other one is written alike: `1e+15`, `1234567`."""
    short = f"{budget:g}"
    return short if float(short) == budget else repr(float(budget)).removesuffix(".0")


def _bounds(interval: Interval | None) -> list[Any]:
    """Three cells."""
    return [interval.value, interval.low, interval.high] if interval else ["", "", ""]


def text(table: Table) -> str:
    """The scores as aligned lines for the terminal."""
    parts = []
    for budget, rows in tables(table):
        parts += [f"{budget}:", *aligned(rows, names=1), ""]
    return "\n".join([*parts, *sentences(table)]).rstrip()


def markdown(table: Table) -> str:
    """The scores of each budget, what follows from them, and what failed."""
    first = inert(table.shown[table.recipes[0]])
    lines = [
        "# Comparison",
        "",
        (
            f"The score that was named before the first run: {SCORE} (1 is the best). Scores times "
            "100, means over the seeds of pre-training with their 95 % intervals, each the median "
            f"over the seeds of the task. Bold: ahead of {first}, the interval of the difference "
            f"excludes 0; italic: behind it. {WON.capitalize()}: on how many a recipe is ahead of "
            f"{first} with the same seed, a tie one half (bold or italic: half of the tasks lies "
            "outside the interval); unlike the mean rank, that does not depend on the other "
            "recipes."
        ),
        "",
    ]
    for budget, (head, *rows) in tables(table, marks=True):
        lines += [f"## {budget}", ""]
        lines += ["| " + " | ".join(map(inert, head)) + " |"]
        lines += ["|---|" + "---:|" * (len(head) - 1)]
        lines += ["| " + " | ".join([inert(row[0]), *row[1:]]) + " |" for row in rows] + [""]
    cut = [(short, name) for name, short in table.shown.items() if short != name]
    lines += [f"- {inert(short)} stands for {inert(name)}" for short, name in cut]
    lines += [f"- {inert(line)}" for line in sentences(table)]
    return "\n".join([*lines, *pretraining(table), ""])


def pretraining(table: Table) -> list[str]:
    """What pre-training itself achieved at the largest budget, as a table. The figures of different
    objectives are not comparable, so none is bold."""
    rows = [
        f"| {inert(table.shown[h.recipe])} | {inert(h.figure)} | {h.mean.value:.3f} "
        f"| {between(h.mean)} |"
        for h in table.held_out
        if h.budget == table.budgets[-1] and h.recipe in table.shown
    ]
    if not rows:
        return []
    title = f"## Pre-training, on held-out text: {with_unit(table.budgets[-1], table.equal)}"
    return ["", title, "", "| recipe | figure | mean | interval |", "|---|---|---:|---:|", *rows]


def between(interval: Interval) -> str:
    """The bounds of an interval."""
    if not math.isfinite(interval.high - interval.low):
        return "one seed"
    return f"{interval.low:.3f} to {interval.high:.3f}"


def tables(table: Table, *, marks: bool = False) -> list[tuple[str, list[list[str]]]]:
    """A title and rows, header first: the largest budget first, the untrained encoders last. marks:
    show what is ahead of the first recipe, or behind it, outside the interval."""
    metric = {p.task: p.metric for p in table.points}
    head = ["recipe", *(f"{task} ({metric[task]})" for task in table.tasks)]
    found = []
    for budget in reversed(table.budgets):
        rows = [[*head, "mean rank", WON]]
        for recipe in table.recipes:
            row = [table.shown[recipe]]
            for task in table.tasks:
                p = table.point(recipe, budget, task)
                shown = spread(p.mean) if p else "-"
                row.append(_marked(shown, p.difference, better=1) if p and marks else shown)
            rank = table.ranks[budget].get(recipe)
            shown = rank_shown(rank) if rank else "-"
            row.append(_marked(shown, rank.difference, better=-1) if rank and marks else shown)
            row.append(won_shown(rank, marks=marks) if rank else "-")
            rows.append(row)
        found.append((with_unit(budget, table.equal), rows))
    untrained = [
        [name, *(spread(p.mean) if p else "-" for p in points)]
        for name in UNTRAINED
        if any(points := [table.point(name, 0.0, task) for task in table.tasks])
    ]
    return found + ([("Before training", [head, *untrained])] if untrained else [])


def _marked(shown: str, difference: Interval | None, *, better: int) -> str:
    """Bold where the difference is on the better side of 0 outside its interval, italic where it is
    on the other."""
    if difference is None or not difference.excludes_zero:
        return shown
    return f"**{shown}**" if better * difference.value > 0 else f"*{shown}*"


def spread(interval: Interval) -> str:
    """`67.1 ± 1.2`, of a fraction."""
    return _with_half(interval, scale=100, digits=1)


def rank_shown(rank: Rank) -> str:
    """`1.67 ± .72`."""
    return _with_half(rank.mean, scale=1, digits=2)


def won_shown(rank: Rank, *, marks: bool) -> str:
    """`5.8 ± 1.2 of 9`; where half of the tasks lies outside the interval, it is marked."""
    if rank.won is None:
        return "-"
    shown = f"{_with_half(rank.won, scale=1, digits=1)} of {rank.tasks}"
    return _marked(shown, rank.lead, better=1) if marks else shown


def _with_half(interval: Interval, *, scale: float, digits: int) -> str:
    """A value and half its interval; with one seed, the value alone."""
    half = scale * (interval.high - interval.low) / 2
    value = f"{scale * interval.value:.{digits}f}"
    return f"{value} ± {half:.{digits}f}" if math.isfinite(half) else value


def sentences(table: Table) -> list[str]:
    """What follows from the curves, and what failed."""
    shown = table.shown
    first = shown[table.recipes[0]]
    found = []
    for c in table.crossings:
        state = "ahead of" if c.ahead else "behind"
        found.append(f"{c.task}: {shown[c.recipe]} is {state} {first} {since(c, table.unit)}")
    for c in table.cheaper:
        if c.at.value < math.inf:
            least = "at least " * (c.at.value == -math.inf)
            less = f"{least}{c.times:.1f} times"
            found.append(
                f"{c.task}: {shown[c.recipe]} reaches the {100 * c.score:.1f} of {first} "
                + (f"{less} cheaper" if table.equal == "flops" else f"with {less} less text")
            )
    return [*found, *(f"failed: {line}" for line in table.failed)]


def since(crossing: Crossing, unit: str) -> str:
    """Where a crossing lies. unit: of the budgets."""
    at = crossing.at
    if not crossing.always and not math.isfinite(at.value):
        return "at the largest budget, and it was otherwise in between"
    if not math.isfinite(at.value):
        how = ", by as much at the largest as at the smallest"
        if crossing.grows:
            more = "more" if crossing.grows > 0 else "less"
            how = f", by {more} at the largest than at the smallest"
        return f"at every budget{how}: where they cross is not within the range"
    if crossing.seeds < 2:
        return f"from {at.value:.3g} {unit} on (one seed)"
    return f"from {at.value:.3g} {unit} on ({bound(at.low)} to {bound(at.high)})"


def bound(x: float) -> Any:
    """A bound of an interval of budgets."""
    if math.isfinite(x):
        return f"{x:.3g}"
    return "below the range" if x < 0 else "beyond it"
