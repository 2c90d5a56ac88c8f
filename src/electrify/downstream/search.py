"""`--hyperparameter-search`: a grid of settings, each with every seed, and each model's best on
each task by the median of the first metric.

The best of many results, chosen on the examples on which it is reported, is too optimistic. So the
whole grid is written beside it, and models should be compared over the same grid. Further labelled
sets (a test set, MNLI mismatched) do not take part in the choice.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..console import inert
from ..export.places import RANDOM
from ..files import claim, json_text, must_be_ours, write
from ..progress import aligned, say
from . import loop
from .epochs import must_divide
from .fitting import require_use
from .metrics import better
from .names import LONGEST, relative, short
from .options import FinetuneConfig, FinetuneSettings, search_grid
from .page import write_report
from .plan import models_of
from .plot import write_plot
from .report import Report, Row, percent
from .tasks import TaskData
from .trial import width_of

GRID = "grid"
SEARCH = "search.json"
"""The rows of every point; empty at first, for it marks the folder as one of a search."""


def search(
    options: FinetuneConfig,
    tasks: list[TaskData],
    run: Callable[[FinetuneConfig, list[TaskData]], Report],
) -> Report:
    """Fine-tune at every point of the grid into OUT/grid/POINT and report the best. Writes
    search.{md,json} and the report's files; an interrupted search continues. Raises UserError as
    `run` does, and if `output_dir` holds something else."""
    out = Path(options.output_dir)
    points = search_grid(options.hyperparameter_search or "", options.settings)
    must_be_ours(out, SEARCH)
    _must_fit(options, tasks, [settings for _, settings in points])
    with claim(out, SEARCH):
        if not (out / SEARCH).exists():
            write(out / SEARCH, "{}\n")
        return _searched(options, lambda one: run(one, tasks), out, points)


def _must_fit(
    options: FinetuneConfig, tasks: list[TaskData], points: list[FinetuneSettings]
) -> None:
    """Raises UserError if a point of the grid would be refused when its turn comes: the results of
    those before it would have no report."""
    for settings in points:
        require_use(
            dataclasses.replace(options, hyperparameter_search=None, settings=settings), tasks
        )
    divided = {
        (s.load_best_model_at_end, s.selection_fraction, s.max_train_samples): s for s in points
    }
    for settings, task in itertools.product(divided.values(), tasks):
        must_divide(task, range(options.seed, options.seed + options.seeds), settings)
    # The trial of every model, before the first update of a point, shows the rest; but a model may
    # refuse the length of one point and not that of another.
    lengths = {settings.max_seq_length or 0: settings for settings in points}
    if len(lengths) > 1:
        longest = lengths[max(lengths)]
        for model in models_of(options):
            width_of(model, tasks, longest, loop.device_named(longest.device))


def _folder(out: Path, name: str) -> Path:
    """The folder of a point of the grid; a dozen settings would make its name too long."""
    return out / GRID / short(name, longest=LONGEST)


def _searched(
    options: FinetuneConfig,
    run: Callable[[FinetuneConfig], Report],
    out: Path,
    points: list[tuple[str, FinetuneSettings]],
) -> Report:
    """Every point of the grid, and the best of them."""
    found: dict[str, Report] = {}
    for k, (name, settings) in enumerate(points, 1):
        say(f"setting {k} of {len(points)}: {name}")
        point = _folder(out, name)
        report = run(
            dataclasses.replace(
                options, hyperparameter_search=None, output_dir=str(point), settings=settings
            )
        )
        found[name] = _seen_from(out, report, point)
    report = _best(found, [settings for _, settings in points])
    write_report(report, out)
    write_plot(report, out / "report.png")
    cells = _cells(found, report)
    content = {name: [dataclasses.asdict(row) for row in one.rows] for name, one in found.items()}
    write(out / "search.md", _markdown(cells))
    write(out / SEARCH, json_text(content, indent=1) + "\n")
    for line in aligned(cells, names=3):
        say(line)
    return report


def _seen_from(out: Path, report: Report, point: Path) -> Report:
    """The report of a point, with its models' paths, which are relative to the point's own folder,
    made relative to `out`."""

    def called(label: str) -> str:
        prefix, way = (
            (RANDOM, label.removeprefix(RANDOM)) if label.startswith(RANDOM) else ("", label)
        )
        return prefix + relative(str(point / way), out) if (point / way).is_dir() else label

    names = {old: called(old) if new == old else new for old, new in report.names.items()}
    rows = tuple(
        dataclasses.replace(row, model=names.get(row.model, row.model)) for row in report.rows
    )
    return dataclasses.replace(report, names=names, rows=rows)


def _first_rows(report: Report) -> dict[tuple[str, str], Row]:
    """The row of the first metric, for each task and model."""
    found: dict[tuple[str, str], Row] = {}
    for row in report.rows:
        found.setdefault((row.task, row.model), row)
    return found


def _best(found: dict[str, Report], settings: Sequence[FinetuneSettings]) -> Report:
    """The rows of the best point (the first of equal ones) for each task and model, and its runs
    with a note of what was chosen."""
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    firsts = {name: _first_rows(report) for name, report in found.items()}
    for task, model in next(iter(firsts.values())):
        scores = {name: first[task, model] for name, first in firsts.items()}
        best = _best_of(scores)
        rows += [row for row in found[best].rows if (row.task, row.model) == (task, model)]
        note = f"{model}: {best} is the best of {len(found)} settings on these validation examples"
        chosen = [
            r
            for r in found[best].records
            if r["task"] == task and found[best].shown(r["model"]) == model
        ]
        records += [r | {"notes": [*r.get("notes", ()), note]} for r in chosen]
    names = {label: name for report in found.values() for label, name in report.names.items()}
    filled = [dataclasses.asdict(one.filled()) for one in settings]
    varied = tuple(k for k, v in filled[0].items() if any(one[k] != v for one in filled))
    return Report(tuple(rows), tuple(records), settings[0], names, varied)


def _best_of(rows: dict[str, Row]) -> str:
    """The first of the points with the best median."""
    best, *others = rows
    for name in others:
        if better(rows[name].metric, rows[name].median, rows[best].median):
            best = name
    return best


def _cells(found: dict[str, Report], report: Report) -> list[list[str]]:
    """One row for each task, model and point; a star marks the best one."""
    best = _first_rows(report)
    cells = [["task", "metric", "model", *found]]
    for (task, model), chosen in best.items():
        rows = {name: _first_rows(one)[task, model] for name, one in found.items()}
        top = _best_of(rows)
        cells.append(
            [
                task,
                chosen.metric,
                model,
                *(percent(row.median) + "*" * (name == top) for name, row in rows.items()),
            ]
        )
    return cells


def _markdown(cells: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(map(inert, row)) + " |" for row in cells]
    rule = "|" + "|".join(["---"] * 3 + ["---:"] * (len(cells[0]) - 3)) + "|"
    told = (
        "Median over the seeds, times 100, on the validation examples, for every setting of the "
        "grid; a star marks the best of a row."
    )
    return "\n".join(["# Hyper-parameter search", "", head, rule, *body, "", told, ""])
