"""Reports of fine-tuning runs: a row for each task, metric and model, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..console import inert, uncalculated
from ..exporting.places import INITIAL, RANDOM
from ..files import json_text, write
from ..progress import aligned
from .baselines import BASELINE
from .metrics import better, is_lower_better
from .tasks import AVERAGES, TASKS

COMPARED = (BASELINE, RANDOM, INITIAL)
"""How the names of models begin that others are compared with."""
Record = Mapping[str, Any]
"""A run, as in scores.jsonl."""


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

    @classmethod
    def of(cls, runs: Sequence[Record], metric: str, model: str) -> Row:
        values = [float(r["scores"][metric]) for r in runs]
        finite = all(map(math.isfinite, values))
        if not finite:
            values = [math.nan] * len(values)  # nan has no order
        std = None
        if len(values) > 1:
            std = statistics.stdev(values) if finite else math.nan
        ends = sorted(values, reverse=not is_lower_better(metric))
        return cls(
            runs[0]["task"],
            metric,
            model,
            median=statistics.median(values),
            mean=statistics.fmean(values),
            std=std,
            best=ends[0],
            worst=ends[-1],
            seeds=len(values),
            train_examples=runs[0]["train_examples"],
            validation_examples=runs[0]["validation_examples"],
            point=runs[0]["point"],
        )


@dataclass(frozen=True)
class Report:
    """The results of `electrify finetune`."""

    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    """Every run behind the rows, as in scores.jsonl, but under the names of the rows."""
    settings: dict[str, Any]
    """Those that all runs share."""
    grid: tuple[Row, ...] = ()
    """Of a search: the first metric at every point."""

    def median(self, *, task: str, model: str, metric: str | None = None) -> float:
        """The median of one row, by default of the task's first metric. Raises KeyError."""
        for row in self.rows:
            if (row.task, row.model) == (task, model) and metric in (None, row.metric):
                return row.median
        raise KeyError((task, model, metric))

    def averages(self, name: str) -> dict[str, float]:
        """For the models that have every score: the mean over the tasks of a published average
        (`GLUE` or `BabyLM`) of the first metric's median."""
        tasks = {task: TASKS[task].metrics[0] for task in AVERAGES[name].tasks}
        medians: dict[str, list[float]] = {}
        for row in self.rows:
            if tasks.get(row.task) == row.metric:
                medians.setdefault(row.model, []).append(row.median)
        its = {model: found for model, found in medians.items() if len(found) == len(tasks)}
        return {model: statistics.fmean(found) for model, found in its.items()}

    def notes(self) -> list[str]:
        """What a reader of the scores must know, each once."""
        points = len({row.point for row in self.grid})
        chosen = [
            f"{row.task}: {row.model}: {row.point} is the best of {points} settings on these "
            "validation examples"
            for row in self.rows
            if row.point
        ]
        said = [f"{r['task']}: {note}" for r in self.records for note in r["notes"]]
        return list(dict.fromkeys(said + chosen))

    def cells(self) -> list[list[str]]:
        """The table as text, header first, scores times 100. One seed has no spread."""
        if all(row.seeds == 1 for row in self.rows):
            rows = [[r.task, r.metric, r.model, percent(r.median)] for r in self.rows]
            return [["task", "metric", "model", "score"], *rows]
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
        notes = [*self.verdicts()]
        notes += [
            note if note.startswith("warning: ") else f"note: {note}" for note in self.notes()
        ]
        return "\n".join([*aligned(self.cells(), names=3), *averages, *notes])

    def verdicts(self) -> Iterable[str]:
        """For each task a sentence on the best model and the best baseline, random weights among
        them, by the median of the first metric."""
        for task in dict.fromkeys(row.task for row in self.rows):
            rows = [row for row in self.rows if row.task == task]
            metric = rows[0].metric
            rows = [row for row in rows if row.metric == metric and math.isfinite(row.median)]
            sign = -1 if is_lower_better(metric) else 1
            ranked = sorted(rows, key=lambda row: -sign * row.median)
            own = [row for row in ranked if not row.model.startswith(COMPARED)]
            others = [row for row in ranked if row.model.startswith(COMPARED)]
            if own and others:
                gain = 100 * sign * (own[0].median - others[0].median)
                how = "better" if gain > 0 else "worse" if gain < 0 else "as good"
                by = f"{abs(gain):.1f} points {how} than" if gain else f"{how} as"
                yield (
                    f"{task}: {own[0].model} is {by} the best baseline in {metric}: "
                    f"{percent(own[0].median)}, {others[0].model} {percent(others[0].median)}"
                )

    def write(self, folder: Path) -> None:
        """Writes report.md, report.csv and report.json, and of a search search.md."""
        write(folder / "report.md", self.markdown())
        table = io.StringIO()
        rows = map(dataclasses.astuple, self.rows)
        cells = ([uncalculated(c) if isinstance(c, str) else c for c in row] for row in rows)
        csv.writer(table).writerows([[f.name for f in dataclasses.fields(Row)], *cells])
        write(folder / "report.csv", table.getvalue())
        found = {"rows": list(map(dataclasses.asdict, self.rows)), "runs": self.records}
        write(
            folder / "report.json", json_text(found | {"settings": self.settings}, indent=1) + "\n"
        )
        if self.grid:
            write(folder / "search.md", self._search())

    def markdown(self) -> str:
        """The scores, resources, published scores, notes and settings."""
        best = self.settings.get("load_best_model_at_end")
        when = "of the best evaluation on held-out training examples" if best else "after training"
        said = [f"{name} {value}" for name, value in self.settings.items() if value is not None]
        resources = self._resources()
        blocks = ["# Fine-tuning", markdown_table(self.cells(), names=3)]
        spread = " std is over seeds." * any(row.seeds > 1 for row in self.rows)
        blocks.append(f"Scores times 100 on the validation examples {when}.{spread}")
        if len(resources) > 1:
            blocks += ["## Resources", markdown_table(resources, names=2)]
        blocks += self._published()
        blocks.append("\n".join(f"- {inert(note)}" for note in self.notes()))
        blocks.append(f"Settings: {', '.join(sorted(said))}.")
        return "\n\n".join(filter(None, blocks)) + "\n"

    def _resources(self) -> list[list[str]]:
        """A table of parameters, of updates, epochs and seconds of a run (medians), and of the most
        memory of any run (on a CPU that of the process)."""
        cells = [["task", "model", "parameters", "updates", "epochs", "seconds", "peak memory"]]
        by_model: dict[tuple[str, str], list[Record]] = {}
        for r in self.records:
            if r["parameters"]:  # not a baseline
                by_model.setdefault((r["task"], r["model"]), []).append(r)
        for (task, model), runs in by_model.items():
            epochs = statistics.median(r["curve"][-1]["epoch"] for r in runs)
            updates, seconds = (
                statistics.median(r[name] for r in runs) for name in ("updates", "seconds")
            )
            memory = max(r["peak_memory_bytes"] for r in runs)
            size = f"{runs[0]['parameters'] / 1e6:.1f} M"
            cells.append([task, model, size, f"{updates:,g}", f"{epochs:.3g}"])
            cells[-1] += [f"{seconds:.1f}", f"{memory / 2**20:,.0f} MiB"]
        return cells

    def _published(self) -> Iterable[str]:
        for task in dict.fromkeys(row.task for row in self.rows):
            if task in TASKS and TASKS[task].published:
                yield (
                    f"Published for {task} ({TASKS[task].metrics[0]}, all training examples, "
                    f"official development set): {by_model(TASKS[task].published)}."
                )
        for name, average in AVERAGES.items():
            found = {model: 100 * value for model, value in self.averages(name).items()}
            if found:
                line = f"{name} average (mean of the first metrics' medians, {average.said}): "
                line += f"{by_model(found)}."
                if average.published:
                    line += f" Published: {by_model(average.published)}."
                yield line

    def _search(self) -> str:
        """The grid: a row for each task and model, a column for each point, a star at the best."""
        points = list(dict.fromkeys(row.point for row in self.grid))
        cells = [["task", "metric", "model", *points]]
        chosen = {(row.task, row.model, row.point) for row in self.rows}
        lines: dict[tuple[str, str, str], list[str]] = {}
        for row in self.grid:
            star = "*" * ((row.task, row.model, row.point) in chosen)
            line = lines.setdefault((row.task, row.metric, row.model), [])
            line.append(percent(row.median) + star)
        cells += [[*names, *found] for names, found in lines.items()]
        text = (
            "Median over the seeds, times 100, on the validation examples. A star marks the best."
        )
        table = markdown_table(cells, names=3)
        return "\n\n".join(["# Hyperparameter search", table, text]) + "\n"


def report_of(
    records: Sequence[Record],
    metrics: Mapping[str, tuple[str, ...]],
    *,
    settings: dict[str, Any],
    names: Mapping[str, str],
) -> Report:
    """The rows of the runs; where they have several points, those of each model's best on each
    task. metrics: names by task, in order. names: model in the records -> the user's name for
    it."""
    # Files hold relative paths only.
    shown = {label: label if is_absolute(name) else name for label, name in names.items()}
    records = [{**r, "model": shown.get(r["model"], r["model"])} for r in records]
    rows, grid, kept = list[Row](), list[Row](), list[Record]()
    for task, its in metrics.items():
        by_model: dict[str, dict[str, list[Record]]] = {}
        for r in records:
            if r["task"] == task:
                by_model.setdefault(r["model"], {}).setdefault(r["point"], []).append(r)
        best = {}
        for model, by_point in by_model.items():
            firsts = [Row.of(runs, its[0], model) for runs in by_point.values()]
            top = firsts[0]
            for row in firsts[1:]:
                top = row if better(its[0], row.median, top.median) else top
            grid += firsts if top.point else []
            best[model] = by_point[top.point]
            kept += best[model]
        rows += [Row.of(runs, metric, model) for metric in its for model, runs in best.items()]
    return Report(tuple(rows), tuple(kept), settings, tuple(grid))


def is_absolute(name: str) -> bool:
    return os.path.isabs(name) or os.path.isabs(name.partition(":")[2])  # random:/data/model


def percent(x: float | None) -> str:
    """A fraction as text, times 100."""
    return "-" if x is None else f"{100 * x:.1f}"


def by_model(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {score:.1f}" for model, score in scores.items())


def markdown_table(cells: list[list[str]], *, names: int) -> str:
    head, *body = ["| " + " | ".join(map(inert, row)) + " |" for row in cells]
    rule = "|" + "|".join(["---"] * names + ["---:"] * (len(cells[0]) - names)) + "|"
    return "\n".join([head, rule, *body])
