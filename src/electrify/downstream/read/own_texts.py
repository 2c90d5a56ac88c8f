"""The user's own texts with labels: the columns and the kind of label are detected if they are not
given."""

from __future__ import annotations

import json
import re
from typing import Any

from ...errors import UserError, nearest
from ..examples import Example
from ..tasks import Kind, TaskData
from .overlap import shared_examples
from .tables import Row, class_name, label_of, must_be_classes, number_of, rows, texts_of

# The names that are looked for, in this order.
TEXT_COLUMNS = ("text", "sentence", "sentence1", "content", "document", "sequence", "seq", "smiles")
TEXT_COLUMNS += ("code", "review", "utterance", "tweet", "body")
PAIR_COLUMNS = ("sentence2",)
LABEL_COLUMNS = ("label", "labels", "category", "class", "target", "intent", "sentiment")
SHOWN = 30
"""Characters of an example value in a message."""
OWN_EPOCHS = 3.0
OWN_METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "multilabel": ("micro_f1", "macro_f1", "accuracy"),
    "regression": ("spearman", "pearson"),
}
# What is sorted as a number, and what can be the number of a column.
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")


def texts_task(
    files: tuple[str, str],
    name: str,
    text_column: str | None,
    pair_column: str | None,
    label_column: str | None,
    wanted: str,
) -> TaskData:
    """A task of texts, or pairs of them, with labels. wanted: the kind of label, or auto."""
    train_file = files[0]
    pair, parts = _parts(files, text_column, pair_column, label_column, wanted)
    values = [value for _, _, value, _ in parts[0]]
    kind = _checked_kind(values, wanted, train_file)
    names = _several(label_column) or _class_names(values, kind)
    must_be_classes(train_file, len(names), "--label-column")
    classes = {name: i for i, name in enumerate(names)}
    train, validation = (
        tuple(Example(a, b, _label(v, kind, classes, where)) for a, b, v, where in part)
        for part in parts
    )
    shared = shared_examples(
        *([(one.text, one.pair) for one in part] for part in (train, validation))
    )
    return TaskData(
        name,
        kind,
        tuple(names),
        OWN_METRICS[kind],
        OWN_EPOCHS,
        train,
        validation,
        symmetric=pair is not None,
        notes=shared,
    )


Cells = tuple[str, str | None, Any, str]
"""Text, second text, label as written, and where the row stands."""


def _parts(
    files: tuple[str, str],
    text_column: str | None,
    pair_column: str | None,
    label_column: str | None,
    wanted: str,
) -> tuple[str | None, list[list[Cells]]]:
    """The column of the second text, and the rows of each file."""
    found = [(path, list(rows(path))) for path in files]
    for path, part in found:
        if not part:
            raise UserError(f"{path}: no examples")
    first = [cells for _, cells in found[0][1][:2]]
    header = list(first[0])
    text = column_named(files[0], first, text_column, TEXT_COLUMNS, "--text-column")
    pair = pair_column or next((c for c in PAIR_COLUMNS if c in header and c != text), None)
    labels = _several(label_column) or [
        column_named(files[0], first, label_column, LABEL_COLUMNS, "--label-column")
    ]
    _must_differ(files[0], text, pair, labels)
    if len(labels) > 1:
        parts = [
            [_marked_cells(path, row, text, pair, labels) for row in part] for path, part in found
        ]
    else:
        empty = wanted == "multilabel"
        parts = [
            [_cells(path, row, text, pair, labels[0], empty=empty) for row in part]
            for path, part in found
        ]
    for path, part in zip(files, parts, strict=True):
        if not any(a.strip() or (b or "").strip() for a, b, _, _ in part):
            columns = ", ".join(repr(c) for c in (text, pair) if c is not None)
            raise UserError(f"{path}: every text ({columns}) is empty; is another column meant?")
    return pair, parts


def _must_differ(path: str, text: str, pair: str | None, labels: list[str]) -> None:
    """Raises UserError for a column that is to be two things."""
    uses = [("--text-column", text), ("--pair-column", pair)]
    uses += [("--label-column", label) for label in labels]
    held: dict[str, str] = {}
    for flag, column in uses:
        if column is None:
            continue
        other = held.setdefault(column, flag)
        if other != flag:
            raise UserError(
                f"{path}: {other} and {flag} are both {column!r}; each needs a column of its own"
            )
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UserError(f"--label-column names {twice!r} twice")


def _several(label_column: str | None) -> list[str]:
    """The columns of a label each, where several are named."""
    return (label_column or "").split(",") if "," in (label_column or "") else []


def _checked_kind(values: list[Any], wanted: str, train_file: str) -> Kind:
    """The kind of label. Raises UserError where the labels are not of the kind that is wanted."""
    kind = _kind_of_labels(values) if wanted == "auto" else wanted
    assert kind in OWN_METRICS
    if kind != "multilabel" and any(isinstance(v, list) for v in values):
        raise UserError(
            f"{train_file}: an example may have several labels there, so its problem type is "
            f"multilabel, not {kind}"
        )
    if kind == "multilabel" and not any(_list(v) for v in values):
        raise UserError(f"{train_file}: no example has a label, so there is nothing to learn")
    return kind


def _class_names(values: list[Any], kind: Kind) -> list[str]:
    if kind == "regression":
        return []
    flat = values if kind != "multilabel" else [one for value in values for one in _list(value)]
    return sorted({class_name(v) for v in flat}, key=_class_order)


def _kind_of_labels(values: list[Any]) -> Kind:
    if any(isinstance(v, list) for v in values):
        return "multilabel"
    return "regression" if _are_decimals(values) else "classification"


def _list(value: Any) -> list[Any]:
    """The labels of one example; text holds them between bars."""
    if isinstance(value, list):
        return value
    return (
        [part.strip() for part in value.split("|") if part.strip()]
        if isinstance(value, str)
        else [value]
    )


def _holding(path: str, row: Row, columns: list[str]) -> list[str]:
    """The names of the columns that contain a 1."""
    number, cells = row
    held = []
    for column in columns:
        if column not in cells:
            raise UserError(
                f"{path}, line {number}: no column {column!r}{nearest(column, list(cells))}"
            )
        value = str(cells[column]).strip().lower()
        if value not in ("0", "1", "true", "false"):
            raise UserError(
                f"{path}, line {number}: {column!r} must be 0 or 1, not {str(cells[column])[:40]!r}"
            )
        held += [column] if value in ("1", "true") else []
    return held


def _label(value: Any, kind: Kind, classes: dict[str, int], where: str) -> float | tuple[int, ...]:
    if kind != "multilabel":
        return label_of(value, kind, classes, where)
    return tuple(
        sorted({int(label_of(one, "classification", classes, where)) for one in _list(value)})
    )


def _are_decimals(values: list[Any]) -> bool:
    """Whether all labels are numbers and not all of them integers. The spelling counts: 3.0 is a
    decimal number and 3 is not."""
    return all(number_of(v) is not None for v in values) and not all(
        str(v).strip().lstrip("+-").isdecimal() for v in values
    )


def _class_order(name: str) -> tuple[int, float, str]:
    return (0, int(name), name) if WHOLE_NUMBER.fullmatch(name) else (1, 0, name)


def column_named(
    path: str,
    first: list[dict[str, Any]],
    given: str | None,
    known: tuple[str, ...],
    flag: str,
) -> str:
    """The column that was named, or the first with a known name. first: the first rows."""
    header = list(first[0])
    if given is not None:
        if given not in header:
            raise UserError(f"{path}: no column {given!r}{nearest(given, header)}")
        return given
    found = next((c for c in known if c in header), None)
    if found is None:
        raise UserError(
            f"{path}: none of its columns ({_with_values(first)}) is called {', '.join(known)}; "
            f"name it with {flag}"
        )
    return found


def _with_values(first: list[dict[str, Any]]) -> str:
    """The columns, each with its values in the first rows."""
    return "; ".join(
        f"{name}: " + ", ".join(repr(str(row.get(name, ""))[:SHOWN]) for row in first)
        for name in first[0]
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
    """The cells of a row with a column of 0 or 1 for each label."""
    held = _holding(path, row, several)
    return (*texts_of(path, row, text, pair), held, f"{path}, line {row[0]}")
