"""The known tasks: from the files of a folder, or from the Hub -> `TaskData`; and the tasks of a
request to `electrify finetune`.

Nothing heavy is imported, so that a wrong file or column is reported within a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UserError, need
from ..exporting.places import may_be_on_hub
from ..text.tables import Row, hub_rows, number_of, text_columns
from . import read
from .options import FinetuneConfig
from .split import validated
from .tasks import Described, Example, KnownTask, Sentence, TaskData, tasks_named

MALFORMED = 0.01
"""Share of the lines of an official file that may be malformed: QQP's train.tsv has a few among
363,849, which ELECTRA's public code also skips. If there are more, the file is broken, or not the
official one."""
_PARTS = ("_subset", "-subset", "-half")
"""Endings of the names of files that may stand in for the official ones, which a note reports."""


def read_asked(options: FinetuneConfig) -> list[TaskData]:
    """Every task of a request with its examples. Raises UserError naming file and line."""
    if options.task:
        found = tasks_named(options.task)
        return [read_task(row, options.data_dir, test=options.predict_test) for row in found]
    return [read.read_own(options)]


def read_task(row: KnownTask, data_dir: str | None, *, test: bool = False) -> TaskData:
    """The examples of a task. Raises UserError naming file and line.

    Args:
        data_dir: A folder that holds the task's files, or the folder of its group (glue, tagging,
            squad, babylm); or a data set of the Hub or a clone of one. None takes the task's own.
        test: Whether to read GLUE's test sets, too.
    """
    wanted = " or ".join(f"{folder}/{row.train[0]}" for folder in row.folders)
    source = data_dir or row.hub
    if source is None:
        raise UserError(f"--data-dir is missing: the folder that holds {wanted}")
    folder = Path(folder_of(row, source))
    file = _training_file(row, folder)
    if file is not None:
        return _task(row, partial(_in_folder, row, file.parent), test=test)
    is_clone = any(folder.glob("*/*.parquet"))
    on_hub = is_clone or (may_be_on_hub(source) and not folder.exists())
    need(row.hub is not None and on_hub, f"--data-dir {source}: no {wanted} for {row.name} there")
    return _task(*_splits(row, str(folder) if is_clone else source), test=test)


# ------------------------------------------------------------------ files


def folder_of(row: KnownTask, data_dir: str) -> str:
    """`data_dir`, or the folder glue/, tagging/, squad/ or babylm/ in it, if that exists and
    `data_dir` does not hold the task itself. So one folder serves tasks of all kinds."""
    inside = Path(data_dir) / row.group
    return str(inside) if inside.is_dir() and not _training_file(row, Path(data_dir)) else data_dir


def _training_file(row: KnownTask, data_dir: Path) -> Path | None:
    """In a folder of the task in `data_dir`, or in `data_dir`, if that has the name of one."""
    is_own = any(fnmatchcase(data_dir.resolve().name, folder) for folder in row.folders)
    return _file(row, data_dir, row.train, (*row.folders, *["."] * is_own))


def _file(
    row: KnownTask, data_dir: Path, patterns: Sequence[str], folders: Sequence[str] = (".",)
) -> Path | None:
    """The file of the first pattern that has one, official files first."""
    ends = [pattern.rpartition(".") for pattern in patterns]
    stand_ins = [f"{stem}{part}.{ending}" for stem, _, ending in ends for part in _PARTS]
    for pattern in (f"{folder}/{name}" for folder in folders for name in (*patterns, *stand_ins)):
        found = sorted(path for path in data_dir.glob(pattern) if path.is_file())
        if found:
            return found[0]
    return None


Opened = Callable[..., Any]
"""Names or patterns -> the examples of that part, or None if it is not there. The list takes what a
reader must know of it. labelled=False: it has no labels."""


def _in_folder(
    row: KnownTask, folder: Path, names: Sequence[str], notes: list[str], *, labelled: bool = True
) -> Any:
    path, odd = _file(row, folder, names), list[str]()
    if path is None:
        return None
    if row.kind == "tagging":
        examples: Any = read.read_sentences(str(path))
        if row.languages:
            examples = without_language(examples)
    else:
        # GLUE's test sets have a header, even CoLA's, and a prediction for each line.
        how: Any = {"header": row.columns or True, "odd": odd} if labelled else {}
        examples = _examples(row, read.question_rows(str(path), **how), labelled)
    if path.stem.endswith(_PARTS):
        count = f"{len(examples):,} {'questions' if row.kind == 'answering' else 'examples'}"
        notes.append(f"{path.name} ({count}) stands in for the official {names[0]}")
    if odd:
        count = len(examples) + len(odd) + (not row.columns)
        few = len(odd) <= MALFORMED * count and not odd[-1].startswith(f"line {count}:")
        fact = f"{path}, {odd[0]} ({len(odd):,} of {count:,} lines are malformed); the file is"
        need(few, f"{fact} cut or not the official one: download it again")
        notes.append(f"{path.name}: {len(odd):,} malformed lines left out ({odd[0]})")
    return examples


def without_language(sentences: tuple[Sentence, ...]) -> tuple[Sentence, ...]:
    """In WikiANN's own files, every word begins with its language, as in en:Sioux."""
    starts = {word[: word.find(":") + 1] for one in sentences for word in one.words}
    begin = len(starts.pop()) if len(starts) == 1 else 0
    return tuple(Sentence(tuple(word[begin:] for word in s.words), s.tags) for s in sentences)


def _task(row: KnownTask, opened: Opened, *, test: bool) -> TaskData:
    notes: list[str] = []

    def further(sets: dict[str, list[str]], loss: str, **how: Any) -> Iterator[tuple[str, Any]]:
        for key, names in sets.items():
            examples = opened(names, notes, **how)
            if examples is None:
                notes.append(f"{Path(names[0]).name} is missing: {key} {loss}")
            else:
                yield key, examples

    train, others = opened(row.train, notes), dict(row.also)
    validation = opened(row.validation, notes)
    if not validation and "test" in others:  # small treebanks
        validation = opened(names := others.pop("test"), notes)
        notes.append(f"no development set: scored on {names[0]}")
    need(validation is not None, f"task {row.name!r}: no {' or '.join(row.validation)} there")
    also = tuple(further(others, "is not scored"))
    tests = further(row.submission, "has no predictions", labelled=False) if test else ()
    parts: dict[str, Any] = {"train": train, "validation": validation, "test": tuple(tests)}
    more: dict[str, Any] = {"also": also, "epochs": row.epochs, "notes": tuple(notes)}
    if row.kind == "tagging":
        return read.tagging_of(row.name, train, validation, **more)
    if row.kind == "answering":
        return validated(read.answering_of(row.name, train, validation, **more))
    described = {each.name: getattr(row, each.name) for each in fields(Described)}
    return TaskData(**described | parts | more)


def _examples(row: KnownTask, found: Iterator[Row], labelled: bool) -> tuple[Any, ...]:
    make = read.question_of if row.kind == "answering" else partial(_example, row, labelled)
    return tuple(map(make, found))


def _example(row: KnownTask, labelled: bool, one: Row) -> Example:
    pair = None if row.pair is None else _filled(row.pair, one)
    return Example(_filled(row.text, one), pair, _label(row, one) if labelled else 0.0)


def _filled(template: str, row: Row) -> str:
    return re.sub("{(.*?)}", lambda name: row.text(name[1]), template)


def _label(row: KnownTask, one: Row) -> float:
    """The value of a regression, or the number of a class, which is written by name or number."""
    value = one.value(row.label)
    if row.kind == "regression" and (number := number_of(value)) is not None:
        return number
    if isinstance(value, str) and value.strip() in row.labels:
        return row.labels.index(value.strip())
    known = f"one of {', '.join(row.labels)}" if row.labels else "a number"
    is_number = isinstance(value, int) and 0 <= value < len(row.labels)
    need(is_number, f"{one.where}: label {str(value)[:40]!r} is not {known}")
    return int(value)


# ------------------------------------------------------------------ the Hub


def _splits(row: KnownTask, source: str) -> tuple[KnownTask, Opened]:
    """GLUE and SQuAD in the layout of nyu-mll/glue and rajpurkar/squad, by `datasets`: the task
    with the names of their columns, and its parts."""
    if row.group == "glue":
        source = f"{source}:{row.name}"
        first = next(hub_rows(source, "train", streaming=False))
        text, pair = (f"{{{name}}}" for name in text_columns(source, [first], None, None))
        row = replace(row, text=text, pair=row.pair and pair, label="label")

    def opened(names: Sequence[str], notes: list[str], *, labelled: bool = True) -> Any:
        split = re.split(r"-v|\.", Path(names[0]).name)[0].replace("dev", "validation")
        if any(name.startswith("..") for name in names):  # the diagnostic set is no split
            return None
        return _examples(row, hub_rows(source, split, streaming=False), labelled)

    return row, opened
