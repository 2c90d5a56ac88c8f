"""The user's own texts with labels: the columns and the kind of label are detected if they are not
given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...errors import UserError, nearest
from ..examples import Example, Partly
from ..metrics import chosen
from ..tasks import MIN_UPDATES, Kind, TaskData
from .columns import Columns
from .overlap import shared_examples
from .own_labels import (
    OWN_METRICS,
    Cells,
    Marked,
    about_labels,
    checked_kind,
    class_names,
    held_in,
    must_be_learnable,
    must_be_legible,
)
from .tables import Row, label_of, must_be_classes, number_of, rows, texts_of

OWN_EPOCHS = 3.0
MOST_AREAS = 100
"""Up to this many classes, areas under curves are computed without a request."""
# What a cell may say if each class has a column of its own.
_ONE = ("1", "1.0", "true")
_ZERO = ("0", "0.0", "false")
_UNKNOWN = ("", "nan")


def texts_task(
    files: Sequence[str], name: str, columns: Columns, wanted: str, metrics: Sequence[str] = ()
) -> TaskData:
    """A task of texts, or pairs of them, with labels. files: for training and, unless that is to
    be split, for validation. wanted: the kind of label, or auto. metrics: None takes those of the
    kind."""
    train_file = files[0]
    (text, pair, labels), parts = _parts(files, columns, wanted)
    values = [value for _, _, value, _ in parts[0]]
    kind = checked_kind(parts[0], wanted, train_file)
    names = labels if len(labels) > 1 else class_names(values, kind)
    must_be_legible(names, kind, train_file)
    if kind == "regression":
        must_be_learnable([float(number_of(v) or 0.0) for v in values], train_file)
    must_be_classes(train_file, len(names), "--label-column")
    if "f1" in metrics and kind == "classification" and len(names) > 2:
        raise UserError(
            f"--metrics f1 is for two classes, and {train_file} has {len(names):,}; take macro_f1 "
            "or micro_f1"
        )
    classes = {name: i for i, name in enumerate(names)}
    examples = [[_example(cells, kind, classes) for cells in part] for part in parts]
    known, notes = _known(examples, classes=len(names))
    shared = shared_examples([[(one.text, one.pair) for one in part] for part in known])
    if wanted == "auto" and len(labels) == 1:
        notes += (about_labels(kind, classes=len(names)),)
    if columns.unnamed:
        notes += (f"column {text} is read as the text, and column {labels[0]} as the label",)
    return TaskData(
        name,
        kind,
        tuple(names),
        chosen(metrics, kind) or _usual(kind, classes=len(names)),
        OWN_EPOCHS,
        known[0],
        known[-1],
        symmetric=False if pair is None else None,
        notes=(*shared, *notes),
        min_updates=MIN_UPDATES,
    )


def _usual(kind: Kind, *, classes: int) -> tuple[str, ...]:
    """The metrics of a kind. An area takes a pass over the examples for each class, so many classes
    have it only on request."""
    many = classes > MOST_AREAS
    return tuple(m for m in OWN_METRICS[kind] if not (many and m in ("roc_auc", "pr_auc")))


def _known(
    parts: list[list[Example]], *, classes: int
) -> tuple[list[tuple[Example, ...]], tuple[str, ...]]:
    """The examples about which anything is known, and a note on the others."""
    found = [
        tuple(one for one in part if not isinstance(one, Partly) or len(one.unknown) < classes)
        for part in parts
    ]
    out = sum(map(len, parts)) - sum(map(len, found))
    return found, (f"{out:,} examples have no label at all and are left out",) * bool(out)


def _parts(
    files: Sequence[str], columns: Columns, wanted: str
) -> tuple[tuple[str, str | None, list[str]], list[list[Cells]]]:
    """The columns of the text, of the second text and of the labels, and the rows of each file."""
    tables = [(path, list(rows(path, header=columns.header))) for path in files]
    for path, part in tables:
        if not part:
            raise UserError(f"{path}: no examples")
    found = columns.found(files[0], [cells for _, cells in tables[0][1]])
    text, pair, labels = found
    if len(labels) > 1:
        parts = [
            [_marked_cells(path, row, text, pair, labels) for row in part] for path, part in tables
        ]
    else:
        empty = wanted == "multilabel"
        parts = [
            [_cells(path, row, text, pair, labels[0], empty=empty) for row in part]
            for path, part in tables
        ]
    for path, part in zip(files, parts, strict=True):
        if not any(a.strip() or (b or "").strip() for a, b, _, _ in part):
            named = ", ".join(repr(c) for c in (text, pair) if c is not None)
            raise UserError(f"{path}: every text ({named}) is empty; is another column meant?")
    return found, parts


def _marked(path: str, row: Row, columns: list[str]) -> Marked:
    number, cells = row
    found = Marked()
    for column in columns:
        if column not in cells:
            raise UserError(
                f"{path}, line {number}: no column {column!r}{nearest(column, list(cells))}"
            )
        value = "" if cells[column] is None else str(cells[column]).strip().lower()
        if value not in (*_ONE, *_ZERO, *_UNKNOWN):
            raise UserError(
                f"{path}, line {number}: {column!r} must be 0, 1 or empty (not known), not "
                f"{str(cells[column])[:40]!r}"
            )
        found.held.extend([column] * (value in _ONE))
        found.unknown.extend([column] * (value in _UNKNOWN))
    return found


def _example(cells: Cells, kind: Kind, classes: dict[str, int]) -> Example:
    text, pair, value, where = cells
    if not isinstance(value, Marked):
        return Example(text, pair, _label(value, kind, classes, where))
    held, unknown = (tuple(sorted(classes[one] for one in x)) for x in (value.held, value.unknown))
    return Partly(text, pair, held, unknown) if unknown else Example(text, pair, held)


def _label(value: Any, kind: Kind, classes: dict[str, int], where: str) -> float | tuple[int, ...]:
    if kind != "multilabel":
        return label_of(value, kind, classes, where)
    return tuple(
        sorted({int(label_of(one, "classification", classes, where)) for one in held_in(value)})
    )


def _cells(path: str, row: Row, text: str, pair: str | None, label: str, *, empty: bool) -> Cells:
    """empty: whether an example may have no label."""
    a, b = texts_of(path, row, text, pair)
    number, cells = row
    where = f"{path}, line {number}"
    if label not in cells:
        raise UserError(f"{where}: no column {label!r}; found: {', '.join(cells) or 'nothing'}")
    value = cells[label]
    given = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) and (empty or str(one).strip()) for one in given):
        raise UserError(
            f"{where}: {label!r} must be a text or a number, or a list of them, not "
            f"{json.dumps(value)[:40]}"
        )
    return a, b, value, where


def _marked_cells(path: str, row: Row, text: str, pair: str | None, several: list[str]) -> Cells:
    """The cells of a row with a column for each label."""
    marked = _marked(path, row, several)
    return (*texts_of(path, row, text, pair), marked, f"{path}, line {row[0]}")
