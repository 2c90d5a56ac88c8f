"""The plot of a study: a panel for each task, for their means and for tasks won. Of several budgets
score against budget, a line for each recipe; of a single one a place for each recipe. A bar is the
interval, and every seed a dot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..finetuning.report import named, picture
from .budgets import BASELINES
from .options import UNITS, with_unit
from .report import MEANS, WON, Table

# Okabe and Ito's colours, which colour-blind people tell apart; the markers tell them apart, too.
# There is one marker more than there are colours, so that no pair comes back before the 73rd.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vPX*<"
COLUMNS = 3
PANEL = (4.6, 3.6)
"""Inches."""


def drawn(table: Table) -> bytes | None:
    """The PNG; None if matplotlib is not installed."""
    return picture(lambda figure: fill(figure, table))


def fill(figure: Any, table: Table) -> None:
    """Draws all panels and the legend."""
    extra = [task for task in (*MEANS, WON) if any(row.task == task for row in table.rows)]
    panels = [*table.tasks, *extra]
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure.set_size_inches(PANEL[0] * columns, PANEL[1] * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    for axis, panel in zip(axes, panels, strict=False):
        axis.grid(alpha=0.3)
        _draw(axis, table, panel)
        _mark(axis, table, panel)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def _draw(axis: Any, table: Table, panel: str) -> None:
    """A line, or a place, for each recipe."""
    single, scale = len(table.budgets) == 1, 1 if panel == WON else 100
    for k, (recipe, name) in enumerate(table.shown.items()):
        style = {"color": COLORS[k % len(COLORS)], "marker": MARKERS[k % len(MARKERS)]}
        rows = [row for budget in table.budgets if (row := table.row(recipe, budget, panel))]
        at = [float(k) if single else row.budget for row in rows]
        points = [(row.mean.value, row.mean.low, row.mean.high) for row in rows]
        mean, low, high = scale * np.array(points).reshape(-1, 3).T
        low, high = (np.where(np.isfinite(end), end, mean) for end in (low, high))
        axis.errorbar(at, mean, (mean - low, high - mean), label=named(name), capsize=3, **style)
        for x, row in zip(at, rows, strict=True):
            seeds = [scale * score for score in row.by_seed.values()]
            axis.plot([x] * len(seeds), seeds, ".", color=style["color"], ms=3, alpha=0.6)
    if single:
        axis.set_xticks([])
        axis.set_xlim(-0.5, len(table.shown) - 0.5)  # the same places in every panel
        budget = with_unit(table.budgets[0], table.equal).replace("e+", "e")
        axis.set_xlabel(f"{budget} of pre-training")
    else:
        axis.set_xscale("log")
        axis.set_xticks(table.budgets, [f"{x:.4g}".replace("e+", "e") for x in table.budgets])
        axis.set_xticks([], minor=True)
        axis.set_xlabel(f"{UNITS[table.equal]} of pre-training")


def _mark(axis: Any, table: Table, panel: str) -> None:
    """The title, and lines at the scores of the baselines and at half of the tasks."""
    if panel == WON:
        tasks, first = len(table.tasks), table.shown[table.recipes[0]]
        axis.axhline(tasks / 2, color="gray", linestyle="--", linewidth=1)
        axis.set_title(named(f"{WON} against {first}, of {tasks}"))
        return
    axis.set_title(named(panel if panel in MEANS else f"{panel} ({table.metric(panel)})"))
    for name, style in zip(BASELINES, (":", "-.", (0, (5, 5))), strict=True):
        if row := table.row(name, 0.0, panel):
            mean = 100 * row.mean.value
            axis.axhline(mean, color="gray", linestyle=style, linewidth=1, label=name)
