"""What a model said about every validation example, as a CSV: for a reader, for thresholds, and for
calibration."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from .examples import Example, Partly
from .known_tasks import TASKS
from .tasks import TaskData

MOST_COLUMNS = 100
"""Classes whose probabilities are written."""


def validation_csv(
    task: TaskData,
    examples: Sequence[Example],
    *,
    predicted: Sequence[str],
    probabilities: Sequence[Sequence[float]] = (),
) -> str:
    """A row for each example, in the order of the validation examples: its texts (only if they are
    from your own files), its label, what was predicted, and the probabilities of the first
    MOST_COLUMNS classes. predicted: as in submission files."""
    own = task.name not in TASKS
    pairs = any(one.pair is not None for one in examples)
    head: list[Any] = [
        "row",
        *(["text"] * own),
        *(["pair"] * (own and pairs)),
        "label",
        "prediction",
    ]
    head += [f"probability of {name}" for name in task.labels[:MOST_COLUMNS]]
    rows = [head]
    for number, example in enumerate(examples):
        row: list[Any] = [number]
        if own:
            row += [example.text, *([example.pair] * pairs)]
        row += [_label(task, example), predicted[number]]
        if probabilities:
            row += [f"{p:.9g}" for p in probabilities[number][:MOST_COLUMNS]]
        rows.append(row)
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _label(task: TaskData, example: Example) -> str:
    """As in the user's file; if there are several classes, their names with bars between, unknown
    ones with a question mark."""
    if isinstance(example.label, tuple):
        unknown = example.unknown if isinstance(example, Partly) else ()
        names = [task.labels[k] for k in example.label]
        return "|".join([*names, *(f"?{task.labels[k]}" for k in unknown)])
    if task.kind == "regression":
        return repr(float(example.label))
    return task.labels[int(example.label)]
