"""The plot of a study: a panel for each task, for their means and for tasks won. Several budgets:
score against cost, a line for each recipe, its interval as a band, every seed as a dot. A single
budget: a line of the panel for each recipe, its interval a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..finetuning.report import named, picture
from .budgets import BASELINES
from .options import UNITS
from .report import MEANS, WON, Row, Table

# Okabe and Ito's colours, which colour-blind people tell apart; the markers tell them apart, too.
# There is one marker more than there are colours, so that no pair comes back before the 73rd.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vPX*h"
COLUMNS = 3
PANEL = (4.6, 3.6)
"""Inches."""
RECIPE = 0.3
"""Inches that a recipe takes where each is a line of the panel."""
LETTER = 0.09
"""Inches that a letter of the legend takes."""
MOST_TICKS = 6
LABELS: dict[str, str] = {name: f"{unit} of pre-training" for name, unit in UNITS.items()}
LABELS["seconds"] = "seconds of pre-training"


def drawn(table: Table, *, against: str) -> bytes | None:
    """The PNG; None if matplotlib is not installed. against: the cost on the horizontal axis of
    several budgets."""
    return picture(lambda figure: fill(figure, table, against))


def fill(figure: Any, table: Table, against: str) -> None:
    """Draws all panels, the title and the legend."""
    single = len(table.budgets) == 1
    extra = [*MEANS, WON]
    panels = [*table.tasks, *(t for t in extra if any(row.task == t for row in table.rows))]
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = 1.0 + RECIPE * len(table.recipes) if single else PANEL[1]
    figure.set_size_inches(PANEL[0] * columns, height * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False, sharey=single)
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw(axis, table, panel, against)
        _frame(axis, table, panel, axis.axvline if single else axis.axhline)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    first = axes[0, 0]
    if single:
        first.set_yticks(range(len(table.recipes)), list(map(named, table.shown.values())))
        first.set_ylim(len(table.recipes) - 0.5, -0.5)
        budget = f"{table.budgets[0]:.3g} {LABELS[table.equal]}".replace("e+", "e")
        figure.suptitle(f"{budget}: means, 95 % intervals, and every seed")
    handles, labels = first.get_legend_handles_labels()
    if handles:
        room = int(PANEL[0] * columns / (LETTER * max(map(len, labels)) + 0.7))
        ncols = max(1, min(4, room, len(labels)))
        figure.legend(handles, labels, loc="outside lower center", ncols=ncols)


def _frame(axis: Any, table: Table, panel: str, line: Any) -> None:
    """The title, and lines at the scores of the baselines and at half of the tasks."""
    axis.grid(alpha=0.3)
    if panel == WON:
        tasks = len(table.tasks)
        line(tasks / 2, color="gray", linestyle="--", linewidth=1)
        first = table.shown[table.recipes[0]]
        axis.set_title(named(f"{WON} against {first}, of {tasks}"))
    else:
        axis.set_title(named(panel if panel in MEANS else f"{panel} ({table.metric(panel)})"))
        for name, style in zip(BASELINES, (":", "-.", (0, (5, 5))), strict=True):
            if row := table.row(name, 0.0, panel):
                at = 100 * row.mean.value
                line(at, color="gray", linestyle=style, linewidth=1, label=name)


def _look(k: int) -> dict[str, str]:
    """How the recipe at place `k` looks, the same in all panels."""
    return {
        "color": COLORS[k % len(COLORS)],
        "marker": MARKERS[k % len(MARKERS)],
        "linestyle": "-" if k < len(COLORS) else "--",
    }


def _draw(axis: Any, table: Table, panel: str, against: str) -> None:
    """Of each recipe the means, their intervals and every seed: over the cost, or, of a single
    budget, on a line of its own with the seeds a little below."""
    single, scale = len(table.budgets) == 1, 1 if panel == WON else 100
    for k, recipe in enumerate(table.recipes):
        look, name = _look(k), named(table.shown[recipe])
        rows = [row for b in table.budgets if (row := table.row(recipe, b, panel)) is not None]
        at = [k if single else _cost(table, row, against) for row in rows]
        means = [scale * row.mean.value for row in rows]
        # A single seed has no interval.
        ends = np.array([(row.mean.low, row.mean.high) for row in rows]).reshape(-1, 2).T
        low, high = scale * np.where(np.isfinite(ends), ends, math.nan)
        if single:
            axis.plot([low, high], [at, at], "-", color=look["color"], linewidth=3, alpha=0.4)
            axis.plot(means, at, **look)
        else:
            axis.plot(at, means, label=name, **look)
            known = np.isfinite(low)  # a band between those neighbours that have one
            axis.fill_between(at, low, high, where=known, color=look["color"], alpha=0.15, lw=0)
        for x, row in zip(at, rows, strict=True):
            seeds = [scale * value for value in row.by_seed.values()]
            dots = (seeds, [x + 0.25] * len(seeds)) if single else ([x] * len(seeds), seeds)
            axis.plot(*dots, ".", color=look["color"], ms=3, alpha=None if single else 0.6)
    if not single:
        axis.set_xlabel(LABELS[against])
        _scale(axis, table.budgets if against == table.equal else ())


def _cost(table: Table, row: Row, against: str) -> float:
    """Where a row lies; not a number where no encoder's cost is known."""
    if against == table.equal:
        return row.budget
    return table.cost(row.recipe, row.budget, against) or math.nan


def _scale(axis: Any, budgets: Sequence[float]) -> None:
    """A logarithmic axis with ticks at the budgets, if these are few."""
    if not math.isfinite(axis.xaxis.get_minpos()):  # nothing is drawn
        axis.set_xticks([])
        return
    from matplotlib.ticker import LogFormatter

    axis.set_xscale("log")
    if 0 < len(budgets) <= MOST_TICKS:
        axis.set_xticks(budgets, [f"{b:.4g}".replace("e+", "e") for b in budgets])
        axis.set_xticks([], minor=True)
    else:  # its own labels are formulas
        axis.xaxis.set_major_formatter(LogFormatter())
        axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axis.tick_params(axis="x", which="both", labelsize=8)
