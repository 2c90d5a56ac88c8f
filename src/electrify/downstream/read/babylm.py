"""The fine-tuning data of the BabyLM challenge: JSON lines, NAME.train.jsonl and NAME.valid.jsonl,
with the columns of the Hub's data sets."""

from __future__ import annotations

from pathlib import Path
from string import Formatter

from ...errors import UserError
from ..examples import Example
from ..tasks import LinesTask, TaskData
from .tables import Row, label_of, rows, texts_of

PLACES = ("", "glue_filtered", "full_eval/glue_filtered")
"""Where the files lie in a folder: the challenge's evaluation data has them in the last one."""


def read_babylm(task: LinesTask, data_dir: str | Path) -> TaskData:
    """The examples of a task. Raises UserError naming file and line."""
    folder = folder_with(task, Path(data_dir))
    if folder is None:
        raise UserError(
            f"{data_dir}: no {task.train} there or in glue_filtered/; --data-dir must hold the "
            f"BabyLM challenge's evaluation data for task {task.name!r}"
        )
    train, validation = (
        tuple(_example(str(path), row, task) for row in rows(str(path)))
        for path in (folder / task.train, folder / task.validation)
    )
    return TaskData(
        task.name,
        task.kind,
        task.labels,
        task.metrics,
        task.epochs,
        train,
        validation,
        max_seq_length=task.max_seq_length,
    )


def folder_with(task: LinesTask, folder: Path) -> Path | None:
    """The folder of a task's files, if `folder` has one."""
    there = (folder / place for place in PLACES)
    return next((place for place in there if (place / task.train).is_file()), None)


def _example(path: str, row: Row, task: LinesTask) -> Example:
    number, cells = row
    where = f"{path}, line {number}"
    if "label" not in cells:
        raise UserError(f"{where}: no column 'label'; found: {', '.join(cells) or 'nothing'}")
    classes = {str(k): k for k in range(len(task.labels))}
    label = label_of(cells["label"], task.kind, classes, where)
    return Example(_text(path, row, task.text), _text(path, row, task.pair), label)


def _text(path: str, row: Row, template: str) -> str:
    """A template with its columns filled in."""
    columns = [name for _, name, _, _ in Formatter().parse(template) if name]
    return template.format(**{name: texts_of(path, row, name, None)[0] for name in columns})
