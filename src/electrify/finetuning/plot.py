"""A report as a plot: a panel for each task, a line for each model, a dot for each seed, a bar at
the median."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..console import harmless
from ..files import write
from ..progress import say
from .report import Report

COLUMNS = 3
LONGEST = 34
"""Characters of a model's name."""
PANEL_WIDTH = 4.6
"""Inches."""
LINE_HEIGHT = 0.32
"""Inches."""


def write_plot(report: Report, path: Path) -> None:
    """Writes a PNG. If matplotlib is not installed, it says so and writes nothing."""
    picture = drawn(report)
    if picture is None:
        say(f"{path.name} is not drawn: pip install 'electrify[plot]'")
    else:
        write(path, picture)


def drawn(report: Report) -> bytes | None:
    """The PNG; None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    with our_style():
        figure = Figure(constrained_layout=True)
        _fill(figure, report)
        picture = io.BytesIO()
        figure.savefig(picture, dpi=110, format="png")
    return picture.getvalue()


@contextmanager
def our_style() -> Iterator[None]:
    """A context in which matplotlib has its own defaults, whatever the user has set (LaTeX for
    texts, for example); pyplot and its backend are the user's and are not touched."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about characters that its font lacks
        mpl.rcdefaults()
        mpl.rcParams["text.parse_math"] = False  # a $ in a name is a $
        yield


def _fill(figure: Any, report: Report) -> None:
    """The panels of all tasks."""
    tasks = list(dict.fromkeys(row.task for row in report.rows))
    models = list(dict.fromkeys(row.model for row in report.rows))
    columns = min(COLUMNS, len(tasks))
    lines = -(-len(tasks) // columns)
    figure.set_size_inches(PANEL_WIDTH * columns + 1.5, lines * (1.1 + LINE_HEIGHT * len(models)))
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axis, task in zip(axes.flat, tasks, strict=False):
        _panel(axis, report, task, models)
    for axis in list(axes.flat)[len(tasks) :]:
        axis.set_visible(False)
    figure.suptitle("Fine-tuning: every seed, and the median", fontsize=11)


def _panel(axis: Any, report: Report, task: str, models: list[str]) -> None:
    """One task: the scores of its first metric, a line for each model."""
    metric = next(row.metric for row in report.rows if row.task == task)
    medians = {
        row.model: row.median for row in report.rows if (row.task, row.metric) == (task, metric)
    }
    for k, model in enumerate(models):
        if model not in medians:
            continue
        scores = [
            100 * float(r["scores"][metric])
            for r in report.records
            if r["task"] == task and report.shown(r["model"]) == model
        ]
        color = f"C{k % 10}"
        heights = [k] * len(scores)
        axis.plot(scores, heights, "o", color=color, alpha=0.5, markersize=5, clip_on=False)
        median = 100 * medians[model]
        axis.plot([median] * 2, [k - 0.3, k + 0.3], color=color, linewidth=3)
    axis.set_title(named(f"{task}: {metric.replace('_', ' ')}"), fontsize=10)
    axis.set_yticks(range(len(models)), _short_names(models), fontsize=8)
    axis.set_ylim(len(models) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)


def _short_names(models: list[str]) -> list[str]:
    """A name of at most LONGEST characters for each model; those that would be alike get numbers
    behind it."""
    found: list[str] = []
    for model in models:
        cut = short = named(model if len(model) <= LONGEST else f"...{model[3 - LONGEST :]}")
        number = 1
        while short in found:
            number += 1
            short = f"{cut} #{number}"
        found.append(short)
    return found


def named(text: str) -> str:
    """A name in a picture: without characters that cannot be drawn, and with a blank before a
    leading underscore, because matplotlib hides names that begin with one."""
    shown = harmless(text)
    return f" {shown}" if shown.startswith("_") else shown
