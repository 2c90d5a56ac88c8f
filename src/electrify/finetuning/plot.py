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
    first = {row.task: row.metric for row in reversed(report.rows)}
    tasks = list(dict.fromkeys(row.task for row in report.rows))
    models = list(dict.fromkeys(row.model for row in report.rows))
    columns = min(COLUMNS, len(tasks))
    lines = -(-len(tasks) // columns)
    size = PANEL_WIDTH * columns + 1.5, lines * (1.1 + LINE_HEIGHT * len(models))
    with our_style():
        figure = Figure(figsize=size, constrained_layout=True)
        axes = list(figure.subplots(lines, columns, squeeze=False, sharey=True).flat)
        for axis, task in zip(axes, tasks, strict=False):
            _panel(axis, report, task, first[task], models)
        for axis in axes[len(tasks) :]:
            axis.set_visible(False)
        figure.suptitle("Fine-tuning: every seed, and the median", fontsize=11)
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


def _panel(axis: Any, report: Report, task: str, metric: str, models: list[str]) -> None:
    """The scores of a task, a line for each model."""
    for k, model in enumerate(models):
        scores = [
            100 * float(r["scores"][metric])
            for r in report.records
            if r["task"] == task and r["model"] == model
        ]
        if scores:
            median = 100 * report.median(task=task, model=model, metric=metric)
            color = f"C{k % 10}"
            how = {"color": color, "alpha": 0.5, "markersize": 5, "clip_on": False}
            axis.plot(scores, [k] * len(scores), "o", **how)
            axis.plot([median] * 2, [k - 0.3, k + 0.3], color=color, linewidth=3)
    axis.set_title(named(f"{task}: {metric.replace('_', ' ')}"), fontsize=10)
    short = [m if len(m) <= LONGEST else f"...{m[3 - LONGEST :]}" for m in models]
    axis.set_yticks(range(len(models)), map(named, short), fontsize=8)
    axis.set_ylim(len(models) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)


def named(text: str) -> str:
    """A name in a picture: without characters that cannot be drawn, and with a blank before a
    leading underscore, because matplotlib hides names that begin with one."""
    shown = harmless(text)
    return f" {shown}" if shown.startswith("_") else shown
