"""The request to `electrify finetune` -> the examples of its tasks. It imports nothing heavy, so a
wrong file or column is reported within a second."""

from __future__ import annotations

from dataclasses import replace

from ..known_tasks import tasks_named
from ..options import FinetuneConfig
from ..tasks import TaskData
from .columns import Columns
from .own import read_own, untrained
from .split import split
from .task import read_task


def read_asked(options: FinetuneConfig) -> list[TaskData]:
    """Every task with its examples. Raises UserError naming file and line."""
    if options.task:
        return [
            read_task(row, options.data_dir, test=options.predict_test)
            for row in tasks_named(options.task)
        ]
    columns = Columns(
        text=options.text_column,
        pair=options.pair_column,
        label=options.label_column,
        header=options.header,
    )
    train = options.train_file or ""
    fraction = options.validation_fraction
    task = read_own(
        train,
        options.validation_file if fraction is None else None,
        columns=columns,
        problem_type=options.problem_type,
        metrics=options.metrics,
    )
    if fraction is None:
        return [task]
    task = split(task, fraction, seed=options.seed)
    return [replace(task, notes=(*task.notes, *untrained(task)))]
