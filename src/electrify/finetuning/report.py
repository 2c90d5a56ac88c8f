"""Reports of fine-tuning runs: a row for each task, metric and model, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..console import inert, uncalculated
from ..files import json_text, write
from ..progress import aligned
from .metrics import better, is_lower_better
from .tasks import AVERAGES, TASKS


@dataclass(frozen=True)
class Row:
    """A metric of a model on a task over its seeds. Scores are fractions; std is the sample
    standard deviation, None for one seed. point: the settings that a search chose."""

    task: str
    metric: str
    model: str
    median: float
    mean: float
    std: float | None
    best: float
    worst: float
    seeds: int
    train_examples: int
    validation_examples: int
    point: str = ""


@dataclass(frozen=True)
class Report:
    """The results of `electrify finetune`."""

    rows: tuple[Row, ...]
    records: tuple[dict[str, Any], ...]
    """Every run behind the rows, as in scores.jsonl."""
    settings: dict[str, Any]
    """Those that all runs share."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names of models in the records -> in the rows."""
    grid: tuple[Row, ...] = ()
    """Of a search: the first metric at every point."""

    def shown(self, label: str) -> str:
        """The name of a record's model in the rows."""
        return self.names.get(label, label)

    def median(self, *, task: str, model: str, metric: str | None = None) -> float:
        """The median of one row, by default of the task's first metric. Raises KeyError."""
        for row in self.rows:
            if (row.task, row.model) == (task, model) and metric in (None, row.metric):
                return row.median
        raise KeyError((task, model, metric))

    def averages(self, name: str) -> dict[str, float]:
        """For the models that have every score: the mean over the tasks of a published average
        (`GLUE` or `BabyLM`) of the first metric's median."""
        found = {}
        for model in dict.fromkeys(row.model for row in self.rows):
            medians = {
                row.task: row.median
                for row in self.rows
                if row.model == model
                and row.task in TASKS
                and row.metric == TASKS[row.task].metrics[0]
            }
            if medians.keys() >= set(AVERAGES[name].tasks):
                found[model] = statistics.fmean(medians[task] for task in AVERAGES[name].tasks)
        return found

    def notes(self) -> list[str]:
        """What a reader of the scores must know, each once."""
        chosen = [
            f"{row.task}: {row.model}: {row.point} is the best of {len(self._points())} settings "
            "on these validation examples"
            for row in self.rows
            if row.point
        ]
        said = [f"{r['task']}: {note}" for r in self.records for note in r["notes"]]
        return list(dict.fromkeys(said + chosen))

    def _points(self) -> list[str]:
        return list(dict.fromkeys(row.point for row in self.grid))

    def cells(self) -> list[list[str]]:
        """The table as text, header first, scores times 100."""
        head = ["task", "metric", "model", "median", "mean", "std", "best", "worst", "seeds"]
        rows = [
            [
                *(row.task, row.metric, row.model),
                *map(percent, (row.median, row.mean, row.std, row.best, row.worst)),
                *(str(row.seeds), f"{row.train_examples:,}"),
            ]
            for row in self.rows
        ]
        return [[*head, "trained on"], *rows]

    def table(self) -> str:
        """The table for a terminal or a log."""
        averages = [
            f"{name} average of {model}: {100 * value:.1f}"
            for name in AVERAGES
            for model, value in self.averages(name).items()
        ]
        notes = [note if note.startswith("warning: ") else f"note: {note}" for note in self.notes()]
        return "\n".join([*aligned(self.cells(), names=3), *averages, *notes])

    def write(self, folder: Path) -> None:
        """Writes report.md, report.csv and report.json, and of a search search.md."""
        write(folder / "report.md", self.markdown())
        write(folder / "report.csv", self._csv())
        found = {"rows": list(map(dataclasses.asdict, self.rows)), "runs": self.records}
        found["settings"] = self.settings  # type: ignore[assignment]
        write(folder / "report.json", json_text(found, indent=1) + "\n")
        if self.grid:
            write(folder / "search.md", self._search())

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(f.name for f in dataclasses.fields(Row))
        for row in self.rows:
            cells = dataclasses.astuple(row)
            writer.writerow(uncalculated(c) if isinstance(c, str) else c for c in cells)
        return text.getvalue()

    def markdown(self) -> str:
        """The scores, resources, published scores, notes and settings."""
        best = self.settings.get("load_best_model_at_end")
        when = "of the best evaluation on held-out training examples" if best else "after training"
        said = [f"{name} {value}" for name, value in self.settings.items() if value is not None]
        lines = [
            "# Fine-tuning",
            "",
            *_markdown_table(self.cells(), names=3),
            "",
            f"Scores times 100 on the validation examples {when}. std is over seeds.",
            "",
            *self._resources(),
            *self._published(),
            *(f"- {inert(note)}" for note in self.notes()),
            "",
            f"Settings: {', '.join(sorted(said))}.",
            "",
        ]
        return "\n".join(lines)

    def _resources(self) -> list[str]:
        """A table of parameters, of updates, epochs and seconds of a run (medians), and of the most
        memory of any run (on a CPU that of the process)."""
        cells = [["task", "model", "parameters", "updates", "epochs", "seconds", "peak memory"]]
        for task, model in dict.fromkeys((r["task"], r["model"]) for r in self.records):
            runs = [r for r in self.records if (r["task"], r["model"]) == (task, model)]
            if not runs[0]["parameters"]:  # a baseline
                continue
            epochs = statistics.median(r["curve"][-1]["epoch"] for r in runs)
            cells.append(
                [
                    task,
                    self.shown(model),
                    f"{runs[0]['parameters'] / 1e6:.1f} M",
                    f"{statistics.median(r['updates'] for r in runs):,g}",
                    f"{epochs:.3g}",
                    f"{statistics.median(r['seconds'] for r in runs):.1f}",
                    f"{max(r['peak_memory_bytes'] for r in runs) / 2**20:,.0f} MiB",
                ]
            )
        if len(cells) == 1:
            return []
        return ["## Resources", "", *_markdown_table(cells, names=2), ""]

    def _published(self) -> list[str]:
        lines = []
        for task in dict.fromkeys(row.task for row in self.rows):
            if task in TASKS and TASKS[task].published:
                lines.append(
                    f"Published for {task} ({TASKS[task].metrics[0]}, all training examples, "
                    f"official development set): {_by_model(TASKS[task].published)}."
                )
        for name, average in AVERAGES.items():
            found = {model: 100 * value for model, value in self.averages(name).items()}
            if found:
                line = f"{name} average (mean of the first metrics' medians, {average.said}): "
                line += f"{_by_model(found)}."
                if average.published:
                    line += f" Published: {_by_model(average.published)}."
                lines.append(line)
        return [text for line in lines for text in (line, "")]

    def _search(self) -> str:
        """The grid: a row for each task and model, a column for each point, a star at the best."""
        points = self._points()
        cells = [["task", "metric", "model", *points]]
        for first in (row for row in self.rows if row.point):
            its = [r for r in self.grid if (r.task, r.model) == (first.task, first.model)]
            if first.metric == its[0].metric:
                shown = [percent(r.median) + "*" * (r.point == first.point) for r in its]
                cells.append([first.task, first.metric, first.model, *shown])
        text = (
            "Median over the seeds, times 100, on the validation examples. A star marks the best."
        )
        table = _markdown_table(cells, names=3)
        return "\n".join(["# Hyperparameter search", "", *table, "", text, ""])


def report_of(
    records: Sequence[dict[str, Any]],
    metrics: Mapping[str, tuple[str, ...]],
    *,
    settings: dict[str, Any],
    names: Mapping[str, str],
) -> Report:
    """The rows of the runs; where they have several points, those of each model's best on each
    task. metrics: names by task, in order. names: model in the records -> the user's name for
    it."""
    # Files hold relative paths only.
    shown = {label: label if _is_absolute(name) else name for label, name in names.items()}
    rows, grid, kept = [], [], []
    for task, its in metrics.items():
        by_model: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for r in records:
            if r["task"] == task:
                by_model.setdefault(r["model"], {}).setdefault(r["point"], []).append(r)
        best = {}
        for model, by_point in by_model.items():
            name = shown.get(model, model)
            firsts = [_row(runs, its[0], name) for runs in by_point.values()]
            top = firsts[0]
            for row in firsts[1:]:
                top = row if better(its[0], row.median, top.median) else top
            grid += firsts if len(firsts) > 1 or top.point else []
            best[name] = by_point[top.point]
            kept += best[name]
        rows += [_row(runs, metric, name) for metric in its for name, runs in best.items()]
    return Report(tuple(rows), tuple(kept), settings, shown, tuple(grid))


def _is_absolute(name: str) -> bool:
    return os.path.isabs(name) or os.path.isabs(name.partition(":")[2])  # random:/data/model


def _row(runs: list[dict[str, Any]], metric: str, model: str) -> Row:
    values = [float(r["scores"][metric]) for r in runs]
    finite = all(map(math.isfinite, values))
    if not finite:
        values = [math.nan] * len(values)  # nan has no order
    best, worst = max(values), min(values)
    if is_lower_better(metric):
        best, worst = worst, best
    std = None
    if len(values) > 1:
        std = statistics.stdev(values) if finite else math.nan
    return Row(
        runs[0]["task"],
        metric,
        model,
        statistics.median(values),
        statistics.fmean(values),
        std,
        best,
        worst,
        len(values),
        runs[0]["train_examples"],
        runs[0]["validation_examples"],
        runs[0]["point"],
    )


def percent(x: float | None) -> str:
    """A fraction as text, times 100."""
    return "-" if x is None else f"{100 * x:.1f}"


def _by_model(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {score:.1f}" for model, score in scores.items())


def _markdown_table(cells: list[list[str]], *, names: int) -> list[str]:
    head, *body = ["| " + " | ".join(map(inert, row)) + " |" for row in cells]
    rule = "|" + "|".join(["---"] * names + ["---:"] * (len(cells[0]) - names)) + "|"
    return [head, rule, *body]
