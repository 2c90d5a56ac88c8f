"""Readers: files -> examples. GLUE's own TSV layout (no quoting), and one's own CSV, TSV and JSONL files.

Every complaint names the file and the line (counted from 1).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError, nearest
from ..text.whole import json_rows, lines_of, read_text
from .tasks import Example, Kind, Task, TaskData

TEXT_COLUMNS = ("text", "sentence", "sentence1")
PAIR_COLUMNS = ("sentence2",)
LABEL_COLUMNS = ("label",)
OWN_EPOCHS = 3.0
OWN_METRICS: dict[Kind, tuple[str, ...]] = {"classification": ("accuracy", "macro_f1"), "regression": ("spearman", "pearson")}
Row = tuple[int, dict[str, Any]]


def read_glue(task: Task, data_dir: str | Path, *, test: bool = False) -> TaskData:
    """The examples of a GLUE task. Where a file is missing and one called NAME_subset.tsv is there, that is read, and `notes` say so. test: also the
    test sets that are there.

    Raises UserError naming file and line.
    """
    folder = Path(data_dir) / task.folder
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; --data-dir must hold GLUE's folder {task.folder} for task {task.name!r}")
    notes: list[str] = []

    def examples(name: str) -> tuple[Example, ...]:
        path, part = folder / name, folder / name.replace(".tsv", "_subset.tsv")
        if path.exists() or not part.exists():
            return tuple(_glue_examples(path, task))
        found = tuple(_glue_examples(part, task))
        notes.append(f"{part.name} ({len(found):,} examples) stands in for the official {name}")
        return found

    train, validation = examples(task.train), examples(task.validation)
    there = {key: name for key, name in task.also.items() if (folder / name).exists()}
    notes += [f"{name} is not there: {key} is not scored" for key, name in task.also.items() if key not in there]
    also = tuple((key, examples(name)) for key, name in there.items())
    tests = _test_sets(task, folder) if test else ()
    more: dict[str, Any] = {"symmetric": task.symmetric, "also": also, "test": tests, "notes": tuple(notes)}
    return TaskData(task.name, task.kind, task.labels, task.metrics, task.epochs, train, validation, **more)


def _test_sets(task: Task, folder: Path) -> tuple[tuple[str, tuple[Example, ...]], ...]:
    """Test files have a header each, also CoLA's, and no label."""
    text = task.text if isinstance(task.text, str) else "sentence"
    found = []
    for name, file in (task.test or {task.folder: "test.tsv"}).items():
        path = folder / file
        if path.exists():
            rows = list(_tsv_rows(str(path), lines_of(read_text(path))))
            if not rows:
                raise UserError(f"{path}: no examples")
            cells = [_texts(str(path), row, text, None if task.pair is None else str(task.pair)) for row in rows]
            found.append((name, tuple(Example(a, b, 0) for a, b in cells)))
    return tuple(found)


def _glue_examples(path: Path, task: Task) -> list[Example]:
    lines = lines_of(read_text(path))
    columns = (task.text, task.label) if task.pair is None else (task.text, task.pair, task.label)
    if isinstance(task.label, str):
        header, first = lines[0].split("\t") if lines else [], 2
        for column in columns:
            if column not in header:
                raise UserError(f"{path}, line 1: no column {column!r} in the header; found: {', '.join(header) or 'nothing'}")
        place = {column: header.index(str(column)) for column in columns}
        width, lines = len(header), lines[1:]
    else:
        place, first, width = {c: int(c) for c in columns}, 1, 4  # CoLA: source, label, star, sentence
    if not lines:
        raise UserError(f"{path}: no examples")
    classes = {label: i for i, label in enumerate(task.labels)}
    examples = []
    for number, line in enumerate(lines, first):
        cells = line.split("\t")
        if len(cells) != width:
            raise UserError(f"{path}, line {number}: {len(cells)} columns, expected {width}")
        label = _label(cells[place[task.label]], task.kind, classes, f"{path}, line {number}")
        examples.append(Example(cells[place[task.text]], None if task.pair is None else cells[place[task.pair]], label))
    return examples


def _label(value: Any, kind: Kind, classes: dict[str, int], where: str) -> float:
    if kind == "classification":
        key = _class_name(value)
        if key not in classes:
            known = ", ".join(list(classes)[:10]) + (", ..." if len(classes) > 10 else "")
            raise UserError(f"{where}: label {str(value)[:40]!r} is none of the classes {known}")
        return classes[key]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise UserError(f"{where}: label {str(value)[:40]!r} is not a number")
    return number


def _class_name(value: Any) -> str:
    return str(value).strip() if not isinstance(value, bool) else str(value).lower()


def read_own(
    train_file: str, validation_file: str, *, text_column: str | None, pair_column: str | None, label_column: str | None, problem_type: str
) -> TaskData:
    """A task of one's own files; the columns and the kind of label are detected where they are not given. Raises UserError naming file and line."""
    files = [(path, list(_rows(path))) for path in (train_file, validation_file)]
    for path, found in files:
        if not found:
            raise UserError(f"{path}: no examples")
    header = list(files[0][1][0][1])
    text = _column(train_file, header, text_column, TEXT_COLUMNS, "--text-column")
    pair = pair_column or (next((c for c in PAIR_COLUMNS if c in header), None) if text != "text" else None)
    label = _column(train_file, header, label_column, LABEL_COLUMNS, "--label-column")
    cells = [[_cells(path, row, text, pair, label) for row in found] for path, found in files]
    values = [value for _, _, value, _ in cells[0]]
    kind: Kind = "regression" if problem_type == "regression" or (problem_type == "auto" and _are_decimals(values)) else "classification"
    names = sorted({_class_name(v) for v in values}, key=_class_order) if kind == "classification" else []
    classes = {name: i for i, name in enumerate(names)}
    train, validation = (tuple(Example(a, b, _label(v, kind, classes, where)) for a, b, v, where in part) for part in cells)
    return TaskData(Path(train_file).stem, kind, tuple(names), OWN_METRICS[kind], OWN_EPOCHS, train, validation)


def _are_decimals(values: list[Any]) -> bool:
    """Numbers all, and not whole ones all: as written, so that 3.0 is a decimal number and 3 is not."""
    try:
        numbers = [float(v) for v in values if not isinstance(v, bool)]
    except (TypeError, ValueError):
        return False
    return len(numbers) == len(values) and not all(str(v).strip().lstrip("+-").isdecimal() for v in values)


def _class_order(name: str) -> tuple[int, float, str]:
    return (0, int(name), name) if name.lstrip("-").isdecimal() else (1, 0, name)


def _column(path: str, header: list[str], given: str | None, known: tuple[str, ...], flag: str) -> str:
    if given is not None:
        if given not in header:
            raise UserError(f"{path}: no column {given!r}{nearest(given, header)}")
        return given
    found = next((c for c in known if c in header), None)
    if found is None:
        raise UserError(f"{path}: none of its columns ({', '.join(header)}) is called {' or '.join(known)}; name it with {flag}")
    return found


def _cells(path: str, row: Row, text: str, pair: str | None, label: str) -> tuple[str, str | None, Any, str]:
    a, b = _texts(path, row, text, pair)
    number, cells = row
    where = f"{path}, line {number}"
    if label not in cells:
        raise UserError(f"{where}: no column {label!r}; found: {', '.join(cells) or 'nothing'}")
    value = cells[label]
    if not isinstance(value, str | int | float) or (isinstance(value, str) and not value.strip()):
        raise UserError(f"{where}: {label!r} must be a text or a number, not {json.dumps(value)[:40]}")
    return a, b, value, where


def _texts(path: str, row: Row, text: str, pair: str | None) -> tuple[str, str | None]:
    number, cells = row
    where = f"{path}, line {number}"
    for column in (text, pair):
        if column is not None and column not in cells:
            raise UserError(f"{where}: no column {column!r}; found: {', '.join(cells) or 'nothing'}")
        if column is not None and not isinstance(cells[column], str):
            raise UserError(f"{where}: {column!r} must be a text, not {json.dumps(cells[column])[:40]}")
    return cells[text], None if pair is None else cells[pair]


def _rows(path: str) -> Iterator[Row]:
    """(line number, column -> value) of each row of a file, by its ending."""
    match Path(path).suffix.lower():
        case ".csv":
            return _csv_rows(path, csv.reader(io.StringIO(read_text(path), newline=""), strict=True))
        case ".tsv":
            return _tsv_rows(path, lines_of(read_text(path)))
        case ".jsonl" | ".ndjson":
            return json_rows(path, read_text(path))
        case ending:
            raise UserError(f"{path}: ending {ending!r} is not known; examples are read from .csv, .tsv, .jsonl")


def _csv_rows(path: str, reader: Any) -> Iterator[Row]:
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = _header(path, cells)
            elif cells:  # an empty line is no row in CSV
                yield _row(path, reader.line_num, header, cells)
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: broken CSV ({e})") from None


def _tsv_rows(path: str, lines: list[str]) -> Iterator[Row]:
    header = _header(path, lines[0].split("\t") if lines else [])
    for number, line in enumerate(lines[1:], 2):
        yield _row(path, number, header, line.split("\t"))


def _header(path: str, cells: list[str]) -> list[str]:
    if len(set(cells)) != len(cells):
        raise UserError(f"{path}, line 1: a column name occurs twice: {', '.join(cells)}")
    return cells


def _row(path: str, number: int, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        raise UserError(f"{path}, line {number}: {len(cells)} columns, expected {len(header)}")
    return number, dict(zip(header, cells, strict=True))
