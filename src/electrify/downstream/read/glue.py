"""GLUE's own TSV layout: a folder for each task, no quoting."""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from ...text.small_files import lines_of
from ..examples import Example
from ..tasks import TaskData, TextTask
from .files import whole
from .tables import label_of, texts_of, tsv_rows

MALFORMED = 0.01
"""Share of the lines of an official file that may be malformed: QQP's train.tsv has a handful among
363,849, which ELECTRA's public code also skips. If there are more, the file is broken, or not the
official one."""


def read_glue(task: TextTask, data_dir: str | Path, *, test: bool = False) -> TaskData:
    """The examples of a GLUE task. If a file is missing but one called NAME_subset.tsv exists, that
    is read, and `notes` say so. test: whether to read the existing test sets, too. Lines with
    another number of columns than the file's are left out, and `notes` say how many: official files
    have such lines.

    Raises UserError naming file and line; also if more than `MALFORMED` of the lines are malformed,
    or the last one is.
    """
    folder = Path(data_dir) / task.folder
    _must_be_there(folder, task)
    notes: list[str] = []
    train = _part(task, folder, task.train, notes)
    validation = _part(task, folder, task.validation, notes)
    there = {key: name for key, name in task.also.items() if (folder / name).exists()}
    notes += [
        f"{name} is not there: {key} is not scored"
        for key, name in task.also.items()
        if key not in there
    ]
    also = tuple((key, _part(task, folder, name, notes)) for key, name in there.items())
    tests = _test_sets(task, folder) if test else ()
    return TaskData(
        task.name,
        task.kind,
        task.labels,
        task.metrics,
        task.epochs,
        train,
        validation,
        symmetric=task.symmetric,
        value_range=task.value_range,
        also=also,
        test=tests,
        notes=tuple(notes),
    )


def _must_be_there(folder: Path, task: TextTask) -> None:
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; --data-dir must hold GLUE's folder {task.folder} for task "
            f"{task.name!r}"
        )


def _part(task: TextTask, folder: Path, name: str, notes: list[str]) -> tuple[Example, ...]:
    """The examples of one file, or of its subset; `notes` gets what is unusual about it."""
    path = folder / name
    part = folder / name.replace(".tsv", "_subset.tsv")
    path = path if path.exists() or not part.exists() else part
    found, malformed = _glue_examples(path, task)
    if path == part:
        notes.append(f"{part.name} ({len(found):,} examples) stands in for the official {name}")
    if malformed:
        notes.append(f"{path.name}: {malformed}")
    return tuple(found)


def _test_sets(task: TextTask, folder: Path) -> tuple[tuple[str, tuple[Example, ...]], ...]:
    """Each test file has a header, even CoLA's, and no label."""
    text = task.text if isinstance(task.text, str) else "sentence"
    found = []
    for name, file in task.test_files.items():
        path = folder / file
        if path.exists():
            rows = list(tsv_rows(str(path), lines_of(whole(path, official=True))))
            if not rows:
                raise UserError(f"{path}: no examples")
            cells = [
                texts_of(str(path), row, text, None if task.pair is None else str(task.pair))
                for row in rows
            ]
            found.append((name, tuple(Example(a, b, 0) for a, b in cells)))
    return tuple(found)


def _glue_examples(path: Path, task: TextTask) -> tuple[list[Example], str]:
    """The examples, and what to say about malformed lines."""
    lines = lines_of(whole(path, official=True))
    named = isinstance(task.label, str)  # otherwise the file has no header
    place, width = _layout(path, task, lines[0] if lines else "") if named else _cola(task)
    first = 2 if named else 1
    lines = lines[1:] if named else lines
    if not lines:
        raise UserError(f"{path}: no examples")
    classes = {label: i for i, label in enumerate(task.labels)}
    examples = []
    odd = list[tuple[int, int]]()
    for number, line in enumerate(lines, first):
        cells = line.split("\t")
        if len(cells) != width:
            odd.append((number, len(cells)))
            continue
        label = label_of(cells[place[task.label]], task.kind, classes, f"{path}, line {number}")
        examples.append(
            Example(
                cells[place[task.text]],
                None if task.pair is None else cells[place[task.pair]],
                label,
            )
        )
    return examples, _malformed(
        path, odd, lines=len(lines), last=first + len(lines) - 1, width=width
    )


def _columns(task: TextTask) -> list[str | int]:
    return [c for c in (task.text, task.pair, task.label) if c is not None]


def _layout(path: Path, task: TextTask, header: str) -> tuple[dict[str | int, int], int]:
    """Where the columns of the task are in a file with a header, and how many there are."""
    names = header.split("\t") if header else []
    for column in _columns(task):
        if column not in names:
            raise UserError(
                f"{path}, line 1: no column {column!r} in the header; found: "
                f"{', '.join(names) or 'nothing'}"
            )
        if names.count(str(column)) > 1:
            raise UserError(f"{path}, line 1: the column {column!r} occurs twice in the header")
    return {column: names.index(str(column)) for column in _columns(task)}, len(names)


def _cola(task: TextTask) -> tuple[dict[str | int, int], int]:
    """The same for CoLA, which has no header: source, label, star, sentence."""
    return {column: int(column) for column in _columns(task)}, 4


def _malformed(path: Path, odd: list[tuple[int, int]], *, lines: int, last: int, width: int) -> str:
    """What to say about lines with another number of columns: (number, columns) each. Raises
    UserError if the file is broken."""
    if not odd:
        return ""
    number, columns = odd[0]
    if len(odd) > MALFORMED * lines:
        more = f", as {len(odd):,} of {lines:,} lines have not" if len(odd) > 1 else ""
        raise UserError(
            f"{path}, line {number}: {columns} columns, expected {width}{more}; is this the "
            "official file?"
        )
    if odd[-1][0] == last:
        raise UserError(
            f"{path}, line {last}: {odd[-1][1]} columns, expected {width}; the last line is cut "
            "off: download the file again"
        )
    several = "s" if len(odd) > 1 else ""
    return (
        f"{len(odd):,} malformed line{several} left out (line {number:,} has {columns} of {width} "
        "columns)"
    )
