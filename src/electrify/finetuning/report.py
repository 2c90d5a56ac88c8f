"""Reports of fine-tuning runs: a row for each task, metric and model, as Markdown and CSV; and as a
plot: a panel for each task, a line for each model, a dot for each seed, a bar at the median."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..exporting.places import FROZEN, RANDOM
from ..files import write
from ..progress import aligned, harmless, inert, say
from .baselines import BASELINE
from .metrics import is_lower_better, rank
from .tasks import AVERAGES, TASKS

COMPARED = (BASELINE, RANDOM)
"""How the names of models begin that others are compared with."""
Record = Mapping[str, Any]
"""A run, as in scores.jsonl."""
PANEL_WIDTH, TITLE_HEIGHT, LINE_HEIGHT = 7.0, 0.9, 0.32
"""Of the plot, in inches."""
SPREAD = ("median", "mean", "std", "best", "worst")


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
    def of(cls, runs: Sequence[Record], metric: str) -> Row:
        values = [float(r["scores"][metric]) for r in runs]
        if not all(map(math.isfinite, values)):
            values = [math.nan] * len(values)  # nan has no order
        std = statistics.stdev(values) if len(values) > 1 and math.isfinite(values[0]) else None
        # A value of its own is both best and worst.
        best, *_, worst = sorted([*values, values[0]], key=partial(rank, metric))
        names = ("task", "model", "train_examples", "validation_examples", "point")
        found: dict[str, Any] = {name: runs[0][name] for name in names} | {"seeds": len(values)}
        found |= {"median": statistics.median(values), "mean": statistics.fmean(values)}
        return cls(metric=metric, std=std, best=best, worst=worst, **found)


@dataclass(frozen=True)
class Report:
    """The results of `electrify finetune`."""

    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    """Every run behind the rows, as in scores.jsonl."""
    settings: dict[str, Any]
    """Those that all runs share."""
    grid: tuple[Row, ...] = ()
    """Of a search: the first metric at every point."""
    saved: tuple[Path, ...] = ()
    """The folders of the models that the runs saved."""

    def averages(self, name: str) -> dict[str, float]:
        """For the models that have every score: the mean over the tasks of a published average
        (`GLUE` or `BabyLM`) of the first metric's median."""
        tasks = {task: TASKS[task].metrics[0] for task in AVERAGES[name].tasks}
        firsts = grouped([row for row in self.rows if tasks.get(row.task) == row.metric], "model")
        return {
            model: statistics.fmean(row.median for row in its)
            for model, its in firsts.items()
            if len(its) == len(tasks)
        }

    def notes(self) -> list[str]:
        """What a reader of the scores must know, each once."""
        points = len({row.point for row in self.grid})
        of = f"is the best of {points} settings on these validation examples"
        chosen = [f"{r.task}: {r.model}: {r.point} {of}" for r in self.rows if r.point]
        said = [f"{r['task']}: {note}" for r in self.records for note in r["notes"]]
        return list(dict.fromkeys(said + chosen))

    def cells(self) -> list[list[str]]:
        """The table as text, header first, scores times 100. One seed has no spread; on one task it
        has a line for each model, the best first."""
        single = all(row.seeds == 1 for row in self.rows)
        if single and len(grouped(self.rows, "task")) == 1:
            return self._by_model()
        shown = {"score": "median"} if single else dict(zip(SPREAD, SPREAD, strict=True))
        rows = [
            [
                *(row.task, row.metric, row.model),
                *(percent(getattr(row, name)) for name in shown.values()),
                *(str(row.seeds), f"{row.train_examples:,}"),
            ]
            for row in self.rows
        ]
        return [["task", "metric", "model", *shown, "seeds", "trained on"], *rows]

    def _by_model(self) -> list[list[str]]:
        models, metrics = (list(grouped(self.rows, name)) for name in ("model", "metric"))
        of = {(row.model, row.metric): row.median for row in self.rows}
        models.sort(key=lambda model: rank(metrics[0], of.get((model, metrics[0]), math.nan)))
        named = [f"{m} (lower is better)" if is_lower_better(m) else m for m in metrics]
        scores = [[percent(of.get((model, m))) for m in metrics] for model in models]
        return [["model", *named], *([m, *row] for m, row in zip(models, scores, strict=True))]

    def table(self) -> str:
        """The table for a terminal or a log, without the notes on tasks, which were printed before
        the first run."""
        of_models = tuple(f"{row.task}: {row.model}: " for row in self.rows)
        notes = [f"note: {n}" for n in self.notes() if n.startswith(of_models)]
        sizes = dict.fromkeys(
            f"task {row.task}: {row.train_examples:,} training and {row.validation_examples:,} "
            "validation examples"
            for row in self.rows
            if not row.model.startswith(COMPARED)
        )
        table = aligned(self.cells(), names=names_of(self.cells()))
        return "\n".join([*table, *sizes, *self._averages(), *self.verdicts(), *notes])

    def verdicts(self) -> Iterator[str]:
        """For each task a sentence on the best model and the best baseline, random weights among
        them, by the median of the first metric; and on a probe that is better."""
        for task, rows in grouped(self.rows, "task").items():
            metric = rows[0].metric
            rows = [row for row in rows if row.metric == metric and math.isfinite(row.median)]
            rows.sort(key=lambda row: rank(metric, row.median))
            own = [row for row in rows if not row.model.startswith((*COMPARED, FROZEN))]
            others = [row for row in rows if row.model.startswith(COMPARED)]
            if own and others:
                gain = 100 * (rank(metric, others[0].median) - rank(metric, own[0].median))
                how = "better" if gain > 0 else "worse"
                by = f"{abs(gain):.1f} points {how} than" if gain else "as good as"
                if gain and metric == "accuracy" and own[0].seeds == 1:  # how little it may be
                    count = own[0].validation_examples
                    by = f"{abs(gain):.1f} points ({abs(gain) * count / 100:.0f} of {count:,} "
                    by += f"examples) {how} than"
                yield (
                    f"{task}: {own[0].model} is {by} the best baseline in {metric}: "
                    f"{percent(own[0].median)}, {others[0].model} {percent(others[0].median)}"
                )
            probes = [row for row in rows if row.model.startswith(FROZEN)]
            if own and probes and rank(metric, probes[0].median) < rank(metric, own[0].median):
                yield (
                    f"{task}: a linear layer on the frozen encoder is better "
                    f"({percent(probes[0].median)}). It is a comparison and not saved. Try other "
                    "--num-train-epochs, a lower --learning-rate or --load-best-model-at-end"
                )

    def write(self, folder: Path) -> None:
        """Writes report.md and report.csv, and of a search search.md."""
        write(folder / "report.md", self.markdown())
        table = io.StringIO()
        names = [f.name for f in dataclasses.fields(Row)]
        csv.writer(table).writerows([names, *(dataclasses.astuple(row) for row in self.rows)])
        write(folder / "report.csv", table.getvalue())
        if self.grid:
            write(folder / "search.md", self._search())

    def markdown(self) -> str:
        """The scores, published scores, notes and settings."""
        best = self.settings.get("load_best_model_at_end")
        when = "of the best evaluation on held-out training examples" if best else "after training"
        said = [f"{name} {value}" for name, value in self.settings.items() if value is not None]
        spread = " std is over seeds." * any(row.seeds > 1 for row in self.rows)
        blocks = [
            "# Fine-tuning",
            markdown_table(self.cells(), names=names_of(self.cells())),
            f"Scores times 100 on the validation examples {when}.{spread}",
            *self._published(),
            *self._averages(),
            "\n".join(f"- {inert(note)}" for note in self.notes()),
            f"Settings: {', '.join(sorted(said))}.",
        ]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def _published(self) -> Iterator[str]:
        for task in grouped(self.rows, "task"):
            if task in TASKS and TASKS[task].published:
                yield (
                    f"Published for {task} ({TASKS[task].metrics[0]}, all training examples, "
                    f"official development set): {by_model(TASKS[task].published)}."
                )

    def _averages(self) -> Iterator[str]:
        for name, average in AVERAGES.items():
            if found := self.averages(name):
                ours = by_model({model: 100 * value for model, value in found.items()})
                theirs = f" Published: {by_model(average.published)}." * bool(average.published)
                what = f"mean of the first metrics' medians, {average.said}"
                yield f"{name} average ({what}): {ours}.{theirs}"

    def _search(self) -> str:
        """The grid, a star at each best."""
        best = {(row.task, row.model, row.point) for row in self.rows}
        cells = [["task", "metric", "model", "settings", "median"]]
        for row in self.grid:
            star = "*" * ((row.task, row.model, row.point) in best)
            cells.append([row.task, row.metric, row.model, row.point, percent(row.median) + star])
        said = "Median over the seeds, times 100, on the validation examples. A star marks the best"
        return f"# Hyperparameter search\n\n{markdown_table(cells, names=4)}\n\n{said}.\n"


def report_of(
    records: Sequence[Record], metrics: Mapping[str, tuple[str, ...]], *, settings: dict[str, Any]
) -> Report:
    """The rows of the runs; where they have several points, those of each model's best on each
    task. metrics: names by task, in order."""
    rows, grid, kept = list[Row](), list[Row](), list[Record]()
    by_task = grouped(records, "task")
    for task, its in metrics.items():
        best = []
        for of_model in grouped(by_task.get(task, ()), "model").values():
            points = grouped(of_model, "point")
            firsts = [Row.of(runs, its[0]) for runs in points.values()]
            top = min(firsts, key=lambda row: rank(its[0], row.median))
            grid += firsts if top.point else []
            best.append(points[top.point])
            kept += best[-1]
        rows += [Row.of(runs, metric) for metric in its for runs in best]
    return Report(tuple(rows), tuple(kept), settings, tuple(grid))


def grouped(rows: Iterable[Any], name: str) -> dict[str, list[Any]]:
    """Rows or records by a field of theirs, in order."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        value = getattr(row, name) if isinstance(row, Row) else row[name]
        found.setdefault(value, []).append(row)
    return found


def names_of(cells: Sequence[Sequence[str]]) -> int:
    """The columns of the table that are no numbers."""
    return cells[0].index("model") + 1


def percent(x: float | None) -> str:
    """A fraction as text, times 100."""
    return "-" if x is None else f"{100 * x:.1f}"


def by_model(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {score:.1f}" for model, score in scores.items())


def markdown_table(cells: Sequence[Sequence[str]], *, names: int) -> str:
    """A table of Markdown, header first: texts in the first `names` columns, then numbers."""
    head, *body = ["| " + " | ".join(map(inert, row)) + " |" for row in cells]
    rule = "|" + "|".join(["---"] * names + ["---:"] * (len(cells[0]) - names)) + "|"
    return "\n".join([head, rule, *body])


# ------------------------------------------------------------------ plots


def draw_scores(figure: Any, report: Report) -> None:
    """A panel for each task."""
    panels, models = grouped(report.rows, "task"), list(grouped(report.rows, "model"))
    height = TITLE_HEIGHT + LINE_HEIGHT * len(models)
    figure.set_size_inches(PANEL_WIDTH, height * len(panels))
    axes = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axis, (task, rows) in zip(axes, panels.items(), strict=True):
        metric = rows[0].metric
        for k, model in enumerate(models):
            runs = [r for r in report.records if (r["task"], r["model"]) == (task, model)]
            scores = [100 * float(r["scores"][metric]) for r in runs]
            middle, color = statistics.median(scores or [math.nan]), f"C{k % 10}"
            axis.plot(scores, [k] * len(scores), "o", color=color, alpha=0.5, clip_on=False)
            axis.plot([middle] * 2, [k - 0.3, k + 0.3], color=color, linewidth=3)
        axis.set_title(named(f"{task}: {metric.replace('_', ' ')}"), fontsize=10)
        axis.set_yticks(range(len(models)), map(named, models), fontsize=8)
        axis.set_ylim(len(models) - 0.4, -0.6)
        axis.grid(axis="x", alpha=0.3)


def picture(draw: Callable[[Any], None]) -> bytes | None:
    """The PNG of what `draw` draws on a figure. If matplotlib is not installed, it says so and
    returns None.

    pyplot and its backend are the user's and are not touched.
    """
    if find_spec("matplotlib") is None:
        say("no plot is drawn: pip install 'electrify[plot]'")
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # A $ in a name is a $.
    with rc_context({"text.parse_math": False, "text.usetex": False}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about characters that its font lacks
        figure, png = Figure(layout="constrained"), io.BytesIO()
        draw(figure)
        figure.savefig(png, dpi=110, format="png")
    return png.getvalue()


def named(text: str) -> str:
    """A name in a picture: without characters that cannot be drawn, and with a blank before a
    leading underscore, because matplotlib hides names that begin with one."""
    shown = harmless(text)
    return f" {shown}" if shown.startswith("_") else shown
