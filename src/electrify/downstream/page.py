"""A report as a page of Markdown, and the files of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..console import inert
from ..files import write
from .known_tasks import AVERAGES, TASKS
from .report import Report


def write_report(report: Report, folder: Path) -> None:
    """Writes report.md, report.csv and report.json."""
    write(folder / "report.md", markdown(report))
    write(folder / "report.csv", report.csv())
    write(folder / "report.json", report.json())


def markdown(report: Report) -> str:
    """The scores, what they took, what was published, notes on the data, and the settings."""
    head, *body = _rows(report.cells())
    rule = "|" + "|".join(["---"] * 3 + ["---:"] * 7) + "|"
    lines = [
        "# Fine-tuning",
        "",
        head,
        rule,
        *body,
        "",
        f"Scores times 100 on the validation examples {_when(report)}; std is that of a sample of",
        "seeds.",
        "",
        *_resources(report),
        *_published(report),
    ]
    notes = report.notes()
    if notes:
        lines += ["", *(f"- {inert(note)}" for note in notes)]
    return "\n".join([*lines, "", _settings(report), ""])


def _when(report: Report) -> str:
    """The evaluation of a run at which they were taken."""
    if "load_best_model_at_end" in report.searched:
        return "at the evaluation that the chosen setting says"
    if report.settings.load_best_model_at_end:
        return "at the evaluation that was best on examples held out of the training set"
    return "after the last update"


def _rows(cells: Iterable[list[str]]) -> list[str]:
    return ["| " + " | ".join(map(inert, row)) + " |" for row in cells]


def _resources(report: Report) -> list[str]:
    """What the runs took; nothing if their records do not say."""
    spent = report.resources()
    if not spent:
        return []
    head, *body = _rows(spent)
    return [
        "## Resources",
        "",
        head,
        "|---|---|---:|---:|---:|---:|---:|",
        *body,
        "",
        "A run's median seconds, and the most memory of a run (of the process, on a CPU).",
        "",
    ]


def _published(report: Report) -> list[str]:
    """The published scores of the tasks, and the averages that the runs give."""
    lines = []
    for task in dict.fromkeys(r.task for r in report.rows):
        published = TASKS[task].published if task in TASKS else {}
        if published:
            lines.append(
                f"Published for {task} ({TASKS[task].metrics[0]}, all training examples, "
                f"official development set): {_by_model(published)}."
            )
    for name, average in AVERAGES.items():
        found = {model: 100 * value for model, value in report.averages(name).items()}
        if found:
            line = (
                f"{name} average (mean of the first metrics' medians, {average.said}): "
                f"{_by_model(found)}."
            )
            if average.published:
                line += f" Published: {_by_model(average.published)}."
            lines += ["", line]
    return lines


def _by_model(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{model} {score:.1f}" for model, score in scores.items())


def _settings(report: Report) -> str:
    said = [f"{k} {v}" for k, v in sorted(report.shared().items()) if v is not None]
    searched = ""
    if report.searched:
        searched = f" Searched, the notes say what was chosen: {', '.join(report.searched)}."
    return f"Settings: {', '.join(said)}.{searched}"
