"""Reports: the records of fine-tuning runs -> one row per (task, metric, model), as Markdown, CSV
and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..console import uncalculated
from ..export.places import RANDOM
from ..files import json_text
from ..progress import aligned
from .known_tasks import AVERAGES, TASKS
from .metrics import is_lower_better
from .options import FinetuneSettings


@dataclass(frozen=True)
class Row:
    """A metric of a model on a task over its seeds. Scores are fractions; std is the sample
    standard deviation, None for one seed."""

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


@dataclass(frozen=True)
class Report:
    """The results of `electrify finetune`: the rows, the record of every run behind them, and the
    settings that all runs share."""

    rows: tuple[Row, ...]
    records: tuple[dict[str, Any], ...]
    settings: FinetuneSettings
    names: Mapping[str, str] = field(default_factory=dict)
    """The names of models in the records -> their names in the rows."""
    searched: tuple[str, ...] = ()
    """Settings that a search varied, so that not all runs share them: notes say which was
    chosen."""

    def shared(self) -> dict[str, Any]:
        """The settings of all runs, with what the protocol fills in."""
        left_out = ("device", *self.searched)
        filled = dataclasses.asdict(self.settings.filled())
        return {name: value for name, value in filled.items() if name not in left_out}

    def shown(self, label: str) -> str:
        """The name of a record's model in the rows."""
        return self.names.get(label, label)

    def median(self, *, task: str, model: str, metric: str | None = None) -> float:
        """The median of one row (the task's first metric where none is named). Raises KeyError if
        there is none."""
        for row in self.rows:
            if (row.task, row.model) == (task, model) and metric in (None, row.metric):
                return row.median
        raise KeyError((task, model, metric))

    def averages(self, name: str) -> dict[str, float]:
        """The averages of the models that have every score: the median of the first metric, as a
        mean over the tasks of a published average, `GLUE` or `BabyLM`."""
        found = {}
        for model in dict.fromkeys(r.model for r in self.rows):
            medians = {
                r.task: r.median
                for r in self.rows
                if r.model == model and r.task in TASKS and r.metric == TASKS[r.task].metrics[0]
            }
            if medians.keys() >= set(AVERAGES[name].tasks):
                found[model] = statistics.fmean(medians[task] for task in AVERAGES[name].tasks)
        return found

    def notes(self) -> list[str]:
        """Notes on the data that a reader of the scores must know, each once."""
        return list(
            dict.fromkeys(
                f"{r['task']}: {note}" for r in self.records for note in r.get("notes", ())
            )
        )

    def cells(self) -> list[list[str]]:
        """The table as text, header first, scores times 100."""
        head = [
            "task",
            "metric",
            "model",
            "median",
            "mean",
            "std",
            "best",
            "worst",
            "seeds",
            "trained on",
        ]
        return [head] + [
            [
                r.task,
                r.metric,
                r.model,
                *(percent(x) for x in (r.median, r.mean, r.std, r.best, r.worst)),
                str(r.seeds),
                str(r.train_examples),
            ]
            for r in self.rows
        ]

    def resources(self) -> list[list[str]]:
        """The resources that each model took on each task, header first: parameters, the updates
        of a run and how often they showed its examples (medians), the median of the seconds per
        run, and the most memory of any run."""
        cells = [["task", "model", "parameters", "updates", "epochs", "seconds", "peak memory"]]
        for task, model in dict.fromkeys((r["task"], r["model"]) for r in self.records):
            runs = [
                r
                for r in self.records
                if (r["task"], r["model"]) == (task, model) and r.get("parameters")
            ]
            if runs:  # records of earlier versions do not have it
                seconds = statistics.median(r["seconds"] for r in runs)
                memory = max(r["peak_memory_bytes"] for r in runs)
                cells.append(
                    [
                        task,
                        self.shown(model),
                        f"{runs[0]['parameters'] / 1e6:.1f} M",
                        f"{statistics.median(r.get('updates', 0) for r in runs):,g}",
                        f"{statistics.median(_epochs(r) for r in runs):.3g}",
                        f"{seconds:.1f}",
                        f"{memory / 2**20:,.0f} MiB",
                    ]
                )
        return cells if len(cells) > 1 else []

    def table(self) -> str:
        """The table for a terminal or a log: aligned columns."""
        averages = [
            f"{name} average of {model}: {100 * value:.1f}"
            for name in AVERAGES
            for model, value in self.averages(name).items()
        ]
        return "\n".join(
            [
                *aligned(self.cells(), names=3),
                *averages,
                *(f"note: {note}" for note in self.notes()),
            ]
        )

    def csv(self) -> str:
        names = [f.name for f in dataclasses.fields(Row)]
        values = ([getattr(row, name) for name in names] for row in self.rows)
        safe = ([uncalculated(v) if isinstance(v, str) else v for v in row] for row in values)
        text = io.StringIO()
        csv.writer(text).writerows([names, *safe])
        return text.getvalue()

    def json(self) -> str:
        whole = {
            "rows": [dataclasses.asdict(r) for r in self.rows],
            "runs": self.records,
            "settings": self.shared(),
        } | ({"searched": list(self.searched)} if self.searched else {})
        return json_text(whole, indent=1) + "\n"


def _epochs(record: dict[str, Any]) -> float:
    """How often a run showed its examples; 0 where its record has no curve."""
    curve = record.get("curve") or [{}]
    return float(curve[-1].get("epoch", 0.0))


def percent(x: float | None) -> str:
    """A share as text, times 100."""
    return "-" if x is None else f"{100 * x:.1f}"


def report_of(
    records: Iterable[dict[str, Any]],
    metrics: dict[str, tuple[str, ...]],
    *,
    settings: FinetuneSettings,
    shown: dict[str, str],
) -> Report:
    """The rows of the runs. metrics: names by task, in order. shown: model in the records -> the
    user's name for it."""
    records = tuple(records)
    rows = []
    for task, names in metrics.items():
        for metric in names:
            for model in dict.fromkeys(r["model"] for r in records):
                runs = [r for r in records if (r["model"], r["task"]) == (model, task)]
                if runs:
                    rows.append(_row(runs, task=task, metric=metric, model=_display(model, shown)))
    return Report(
        tuple(rows), records, settings, {r["model"]: _display(r["model"], shown) for r in records}
    )


def _display(label: str, shown: dict[str, str]) -> str:
    name = shown.get(label, label)
    # Files hold relative paths only.
    return label if os.path.isabs(name.removeprefix(RANDOM)) else name


def _row(runs: list[dict[str, Any]], *, task: str, metric: str, model: str) -> Row:
    values = [float(r["scores"][metric]) for r in runs]
    if not all(map(math.isfinite, values)):
        values = [math.nan] * len(values)  # nan has no order
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    best, worst = max(values), min(values)
    if is_lower_better(metric):
        best, worst = worst, best
    counts = runs[0]["train_examples"], runs[0]["validation_examples"]
    return Row(
        task,
        metric,
        model,
        statistics.median(values),
        statistics.fmean(values),
        std,
        best,
        worst,
        len(values),
        *counts,
    )
