"""The picture of a study: score against cost, a panel for each task, a line for each recipe, its
interval as a band, every seed as a dot. A study with one budget has no lines: each recipe is a row,
its interval a bar."""

from __future__ import annotations

import io
import math
from collections.abc import Container, Sequence
from itertools import groupby
from typing import Any

from ..finetuning.plot import named, our_style
from .options import SCORE
from .ranks import WON, Rank
from .statistics import Interval
from .table import Table
from .untrained import UNTRAINED

# Okabe and Ito's colours, which colour-blind people tell apart; the markers tell them apart, too.
# There is one marker more than there are colours, so that no pair comes back before the 73rd.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vPX*h"
COLUMNS = 3
PANEL = (4.6, 3.6)
"""Inches."""
MOST_TICKS = 6
CLOSE = 0.1
"""The share of an axis that the number at a tick takes."""
ROW = 0.3
"""Inches that a recipe takes where each is a row."""
LABELS = {
    "flops": "FLOPs of pre-training",
    "tokens": "tokens of pre-training",
    "seconds": "seconds of pre-training",
    "epochs": "passes over the corpus",
}


def drawn(table: Table, *, against: str) -> bytes | None:
    """The PNG; None if matplotlib is not installed. The table has at least one point."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    with our_style():
        figure = Figure(layout="constrained")
        if len(table.budgets) == 1:
            _fill_rows(figure, table)
        else:
            _fill(figure, table, against)
        picture = io.BytesIO()
        figure.savefig(picture, dpi=110, format="png")
    return picture.getvalue()


def _fill(figure: Any, table: Table, against: str) -> None:
    """The panels of several budgets."""
    panels = _panels(table)
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    figure.set_size_inches(PANEL[0] * columns, PANEL[1] * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        if panel in table.tasks:
            _task(axis, table, panel, against)
        else:
            _together(axis, table, panel, against)
        # A panel may lack a trained point, and a logarithm of nothing is an error.
        if math.isfinite(axis.xaxis.get_minpos()):
            _scale(axis, table.budgets if against == table.equal else None)
        else:
            axis.set_xticks([])
        axis.set_xlabel(LABELS[against])
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    longest = max(map(len, labels), default=1)
    # A letter takes .09 inches or so, and the line before it half an inch.
    room = int(PANEL[0] * columns / (0.09 * longest + 0.7))
    ncols = max(1, min(4, room, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols)


def _panels(table: Table) -> list[str]:
    """The tasks, and what they say together."""
    return [*table.tasks, SCORE, *([WON] if len(table.recipes) > 1 else [])]


def _scale(axis: Any, budgets: Sequence[float] | None) -> None:
    """A logarithmic axis. budgets: where it has its ticks; otherwise matplotlib chooses them."""
    axis.set_xscale("log")
    if budgets is not None and len(budgets) <= MOST_TICKS:
        axis.set_xticks(budgets, _labels(budgets))
        axis.set_xticks([], minor=True)
    else:
        # matplotlib's own labels of a logarithmic axis are formulas.
        axis.xaxis.set_major_formatter(lambda x, _: _tick(x))
        low, high = axis.get_xlim()
        digits = (2, 5) if high > 5 * low else range(1, 10)
        axis.xaxis.set_minor_formatter(lambda x, _: _minor(x, digits))
    axis.tick_params(axis="x", which="both", labelsize=8)


def _labels(budgets: Sequence[float]) -> list[str]:
    """The budgets at their ticks; no label where it would touch the one before."""
    near = (budgets[-1] / budgets[0]) ** CLOSE
    found, last = [], 0.0
    for budget in budgets:
        fits = budget > last * near
        found.append(_tick(budget) if fits else "")
        last = budget if fits else last
    return found


def _tick(x: float) -> str:
    """A number at an axis: a budget of passes is small, one of FLOPs is not."""
    if 1e-3 <= x < 1e4:
        return f"{x:.6g}"
    digits, power = f"{x:.2e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def _minor(x: float, digits: Container[int]) -> str:
    """The label of a tick between powers of ten, which may be none."""
    digit = x / 10 ** math.floor(math.log10(x)) if x > 0 else 0
    return _tick(x) if round(digit) in digits else ""


def _cost(table: Table, recipe: str, budget: float, against: str) -> float:
    """Where a point lies; not a number where the machine did not measure it."""
    if against == table.equal:
        return budget
    return table.costs.get((recipe, budget), {}).get(against) or math.nan


def _task(axis: Any, table: Table, task: str, against: str) -> None:
    """One task: means, bands and dots, and the untrained encoders as lines across."""
    metric = next(p.metric for p in table.points if p.task == task)
    for k, recipe in enumerate(table.recipes):
        points = [p for b in table.budgets if (p := table.point(recipe, b, task)) is not None]
        x = [_cost(table, recipe, p.budget, against) for p in points]
        look = _look(k)
        axis.plot(x, [100 * p.mean.value for p in points], label=named(table.shown[recipe]), **look)
        _band(axis, x, [p.mean for p in points], look["color"], scale=100)
        for at, p in zip(x, points, strict=True):
            values = [100 * v for v in p.by_seed.values()]
            _seeds(axis, at, values, look["color"])
    _untrained(axis.axhline, table, task)
    axis.set_title(named(f"{task} ({metric})"))


def _look(k: int) -> dict[str, str]:
    """How the line of the recipe at place `k` looks, the same in all panels."""
    return {
        "color": COLORS[k % len(COLORS)],
        "marker": MARKERS[k % len(MARKERS)],
        "linestyle": "-" if k < len(COLORS) else "--",
    }


def _seeds(axis: Any, at: float, values: list[float], color: str) -> None:
    """The seeds as dots above one cost."""
    axis.plot([at] * len(values), values, ".", color=color, markersize=3, alpha=0.6)


def _band(
    axis: Any, x: list[float], means: list[Interval], color: str, *, scale: float = 1
) -> None:
    """Intervals as a band between those neighbours that have one (a single seed has none)."""
    known = [math.isfinite(m.low) for m in means]
    low, high = (
        [scale * getattr(m, end) if has else math.nan for m, has in zip(means, known, strict=True)]
        for end in ("low", "high")
    )
    axis.fill_between(x, low, high, where=known, color=color, alpha=0.15, linewidth=0)


def _together(axis: Any, table: Table, panel: str, against: str) -> None:
    """What all tasks say together: SCORE or WON, the best at the top."""
    for k, recipe in enumerate(table.recipes):
        look = _look(k)
        for stretch in _stretches(table) if panel == SCORE else [table.budgets]:
            ranks = {b: table.ranks[b].get(recipe) for b in stretch}
            found = {b: _of(rank, panel) for b, rank in ranks.items() if rank is not None}
            there = [b for b in found if found[b][0] is not None]
            means = [m for b in there if (m := found[b][0]) is not None]
            x = [_cost(table, recipe, b, against) for b in there]
            axis.plot(x, [m.value for m in means], **look)
            _band(axis, x, means, look["color"])
            for at, budget in zip(x, there, strict=True):
                _seeds(axis, at, list(found[budget][1].values()), look["color"])
    _frame(axis, table, panel, axis.axhline)
    if panel == SCORE:
        axis.invert_yaxis()


def _stretches(table: Table) -> list[list[float]]:
    """The budgets in parts where the same recipes are ranked: a mean rank among four says nothing
    beside one among two, so no line goes from the one to the other."""
    found = groupby(table.budgets, key=lambda b: frozenset(table.ranks[b]))
    return [list(budgets) for _, budgets in found]


def _of(rank: Rank, panel: str) -> tuple[Interval | None, dict[int, float]]:
    """What a panel shows of a recipe, and for each seed."""
    return (rank.mean, rank.by_seed) if panel == SCORE else (rank.won, rank.won_by_seed)


def _frame(axis: Any, table: Table, panel: str, line: Any) -> None:
    """The title, and a line where a recipe wins as many tasks as the first one."""
    if panel == SCORE:
        axis.set_title(f"{SCORE}, 1 the best")
        return
    tasks = max((r.tasks for of in table.ranks.values() for r in of.values()), default=0)
    line(tasks / 2, color="gray", linestyle="--", linewidth=1)
    axis.set_title(named(f"{WON} against {table.shown[table.recipes[0]]}, of {tasks}"))


def _fill_rows(figure: Any, table: Table) -> None:
    """The panels of a single budget."""
    (budget,) = table.budgets
    panels = _panels(table)
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = 1.0 + ROW * len(table.recipes)
    figure.set_size_inches(PANEL[0] * columns, height * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        _bars(axis, table, budget, panel)
        if panel in table.tasks:
            metric = next(p.metric for p in table.points if p.task == panel)
            axis.set_title(named(f"{panel} ({metric})"))
            _untrained(axis.axvline, table, panel)
        else:
            _frame(axis, table, panel, axis.axvline)
            if panel == SCORE:
                axis.invert_xaxis()
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    first = axes[0, 0]
    first.set_yticks(range(len(table.recipes)), [named(table.shown[r]) for r in table.recipes])
    first.set_ylim(len(table.recipes) - 0.5, -0.5)
    handles, labels = first.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    what = LABELS[table.equal]
    title = f"{budget:.3g} {what}: means, 95 % intervals, and every seed"
    figure.suptitle(title.replace("e+", "e"))


def _bars(axis: Any, table: Table, budget: float, panel: str) -> None:
    """A row for each recipe."""
    for k, recipe in enumerate(table.recipes):
        point = table.point(recipe, budget, panel)
        rank = table.ranks[budget].get(recipe)
        if point is not None:
            _bar(axis, k, point.mean, scale=100)
            _dots(axis, k, [100 * v for v in point.by_seed.values()])
        elif panel not in table.tasks and rank is not None:
            mean, by_seed = _of(rank, panel)
            if mean is not None:
                _bar(axis, k, mean)
                _dots(axis, k, list(by_seed.values()))


def _bar(axis: Any, row: int, mean: Interval, *, scale: float = 1) -> None:
    """A mean with its interval, if it has one."""
    look = _look(row)
    if math.isfinite(mean.low):
        ends = [scale * mean.low, scale * mean.high]
        axis.plot(ends, [row, row], "-", color=look["color"], linewidth=3, alpha=0.4)
    axis.plot([scale * mean.value], [row], **look)


def _dots(axis: Any, row: int, values: list[float]) -> None:
    """The seeds, a little below the mean, which would hide them."""
    color = _look(row)["color"]
    axis.plot(values, [row + 0.25] * len(values), ".", color=color, markersize=3)


def _untrained(line: Any, table: Table, task: str) -> None:
    """The untrained encoders as lines across."""
    for name, style in zip(UNTRAINED, (":", "-."), strict=True):
        point = table.point(name, 0.0, task)
        if point is not None:
            line(100 * point.mean.value, color="gray", linestyle=style, linewidth=1, label=name)
