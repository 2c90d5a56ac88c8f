"""The plot of a study: a panel for each task, for their means and for tasks won. Several budgets:
score against cost, a line for each recipe, its interval as a band, every seed as a dot. A single
budget: a line of the panel for each recipe, its interval a bar."""

from __future__ import annotations

import math
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
LABELS: dict[str, str] = {name: f"{unit} of pre-training" for name, unit in UNITS.items()}
LABELS["seconds"] = "seconds of pre-training"


def drawn(table: Table, *, against: str) -> bytes | None:
    """The PNG; None if matplotlib is not installed. against: the cost on the horizontal axis of
    several budgets."""
    return picture(lambda figure: fill(figure, table, against))


def fill(figure: Any, table: Table, against: str) -> None:
    """Draws all panels, the title and the legend."""
    single, shown = len(table.budgets) == 1, list(map(named, table.shown.values()))
    extra = [task for task in (*MEANS, WON) if any(row.task == task for row in table.rows)]
    panels = [*table.tasks, *extra]
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = 1.0 + RECIPE * len(shown) if single else PANEL[1]
    figure.set_size_inches(PANEL[0] * columns, height * lines + 0.6)
    axes = list(figure.subplots(lines, columns, squeeze=False, sharey=single).flat)
    for axis, panel in zip(axes, panels, strict=False):
        axis.grid(alpha=0.3)
        if single:
            _draw_bars(axis, table, panel)
        else:
            _draw_lines(axis, table, panel, against)
        _mark(axis, table, panel, axis.axvline if single else axis.axhline)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    if single:
        axes[0].set_yticks(range(len(shown)), shown)
        axes[0].set_ylim(len(shown) - 0.5, -0.5)
        budget = f"{table.budgets[0]:.3g} {LABELS[table.equal]}".replace("e+", "e")
        figure.suptitle(f"{budget}: means, 95 % intervals, and every seed")
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _mark(axis: Any, table: Table, panel: str, line: Any) -> None:
    """The title, and lines at the scores of the baselines and at half of the tasks."""
    if panel == WON:
        tasks, first = len(table.tasks), table.shown[table.recipes[0]]
        line(tasks / 2, color="gray", linestyle="--", linewidth=1)
        axis.set_title(named(f"{WON} against {first}, of {tasks}"))
        return
    axis.set_title(named(panel if panel in MEANS else f"{panel} ({table.metric(panel)})"))
    for name, style in zip(BASELINES, (":", "-.", (0, (5, 5))), strict=True):
        if row := table.row(name, 0.0, panel):
            line(100 * row.mean.value, color="gray", linestyle=style, linewidth=1, label=name)


def _curve(table: Table, k: int, panel: str) -> tuple[list[Row], np.ndarray, np.ndarray]:
    """Of recipe `k` by budget: its rows, and [3, B] means and ends of the intervals (not a number
    for a single seed), and [2, N] row and score of every seed."""
    recipe, scale = table.recipes[k], 1 if panel == WON else 100
    rows = [row for b in table.budgets if (row := table.row(recipe, b, panel)) is not None]
    ends = [(row.mean.value, row.mean.low, row.mean.high) for row in rows]
    ends_3B = scale * np.array(ends).reshape(-1, 3).T
    ends_3B[~np.isfinite(ends_3B)] = math.nan
    seeds = [(b, scale * x) for b, row in enumerate(rows) for x in row.by_seed.values()]
    return rows, ends_3B, np.array(seeds).reshape(-1, 2).T


def _draw_bars(axis: Any, table: Table, panel: str) -> None:
    """A line of the panel for each recipe, the seeds a little below."""
    for k in range(len(table.recipes)):
        _, (mean, low, high), (_, seeds) = _curve(table, k, panel)
        color = COLORS[k % len(COLORS)]
        axis.plot([low, high], [[k] * len(low)] * 2, "-", color=color, linewidth=3, alpha=0.4)
        axis.plot(mean, [k] * len(mean), color=color, marker=MARKERS[k % len(MARKERS)])
        axis.plot(seeds, [k + 0.25] * len(seeds), ".", color=color, ms=3)


def _draw_lines(axis: Any, table: Table, panel: str, against: str) -> None:
    """A line over the cost for each recipe."""

    def cost(recipe: str, budget: float) -> float:
        known = budget if against == table.equal else table.cost(recipe, budget, against)
        return known or math.nan

    for k, name in enumerate(map(named, table.shown.values())):
        rows, (mean, low, high), (at, seeds) = _curve(table, k, panel)
        costs = [cost(row.recipe, row.budget) for row in rows]
        color = COLORS[k % len(COLORS)]
        axis.plot(costs, mean, label=name, color=color, marker=MARKERS[k % len(MARKERS)])
        known = np.isfinite(low)  # a band between those neighbours that have one
        axis.fill_between(costs, low, high, where=known, color=color, alpha=0.15, lw=0)
        axis.plot([costs[int(b)] for b in at], seeds, ".", color=color, ms=3, alpha=0.6)
    axis.set_xlabel(LABELS[against])
    if math.isfinite(axis.xaxis.get_minpos()):  # something is drawn
        ticks = [x for b in table.budgets if math.isfinite(x := cost(table.recipes[0], b))]
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{x:.4g}".replace("e+", "e") for x in ticks])
        axis.set_xticks([], minor=True)
