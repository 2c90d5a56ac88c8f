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

from ..errors import UserError, failing_as, must_have, need
from ..exporting.places import may_be_on_hub
from ..hub import must_be_reachable
from ..text.columns import number_of, text_columns
from ..text.tables import Row, lines
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
    is_there = folder.is_dir()
    on_hub = any(folder.glob("*/*.parquet")) if is_there else may_be_on_hub(source)
    what = f"no {wanted} for {row.name} there" if is_there else "no such folder"
    need(row.hub is not None and on_hub, f"--data-dir {source}: {what}")
    return _task(*_splits(row, str(folder) if is_there else source), test=test)


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


Patterns = Sequence[str]
Found = tuple[str, tuple[Any, ...], list[str]]
"""The place of a part, its examples, and the places of malformed lines."""
Opened = Callable[[Patterns, bool], Found | None]
"""Reads the part with one of these names or patterns, if it is there. The second argument: whether
it has labels."""


def _in_folder(row: KnownTask, folder: Path, patterns: Patterns, labelled: bool) -> Found | None:
    path, odd = _file(row, folder, patterns), list[str]()
    if path is None:
        return None
    if row.kind == "tagging":
        return str(path), _sentences(row, path), odd
    # GLUE's test sets have a header, even CoLA's, and a prediction for each line.
    how: Any = {"header": row.columns or True, "odd": odd} if labelled else {}
    return str(path), _examples(row, read.question_rows(str(path), **how), labelled), odd


def _task(row: KnownTask, opened: Opened, *, test: bool) -> TaskData:
    notes: list[str] = []

    def part(patterns: Patterns, *, labelled: bool = True) -> Any:
        found = opened(patterns, labelled)
        if found is None:
            return None
        place, examples, odd = found
        name = Path(place).name
        if not any(fnmatchcase(name, Path(pattern).name) for pattern in patterns):
            count = f"{len(examples):,} {'questions' if row.kind == 'answering' else 'examples'}"
            notes.append(f"{name} ({count}) stands in for the official {patterns[0]}")
        if odd:
            count = len(examples) + len(odd) + (not row.columns)
            few = len(odd) <= MALFORMED * count and not odd[-1].startswith(f"line {count}:")
            fact = f"{place}, {odd[0]} ({len(odd):,} of {count:,} lines are malformed); the file is"
            need(few, f"{fact} cut or not the official one: download it again")
            left_out = f"{len(odd):,} malformed line{'s' * (len(odd) > 1)} left out"
            notes.append(f"{name}: {left_out} ({odd[0]})")
        return examples

    def further(names: dict[str, list[str]], loss: str, **how: Any) -> Iterator[tuple[str, Any]]:
        for key, patterns in names.items():
            examples = part(patterns, **how)
            if examples is None:
                notes.append(f"{Path(patterns[0]).name} is missing: {key} {loss}")
            else:
                yield key, examples

    train, others = part(row.train), dict(row.also)
    validation: Any = part(row.validation)
    if not validation and "test" in others:  # small treebanks
        validation = part(tests := others.pop("test"))
        notes.append(f"no development set: scored on {Path(tests[0]).name}")
    need(validation is not None, f"task {row.name!r}: no {' or '.join(row.validation)} there")
    also = tuple(further(others, "is not scored"))
    tests = further(row.submission, "has no predictions", labelled=False) if test else ()
    parts: dict[str, Any] = {"train": train, "validation": validation, "test": tuple(tests)}
    more: dict[str, Any] = {"also": also, "epochs": row.epochs, "notes": tuple(notes)}
    if row.kind in ("tagging", "answering"):
        make = read.tagging_of if row.kind == "tagging" else read.answering_of
        made = make(row.name, train, validation, **more)
        return validated(made) if row.kind == "answering" else made
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


def _sentences(row: KnownTask, path: Path) -> tuple[Sentence, ...]:
    """In WikiANN's own files, each word begins with its language, as in en:Sioux."""
    word = next((line for line in lines(path) if line.strip()), "") if row.languages else ""
    language = re.match("[a-z-]+:", word)
    return read.read_sentences(str(path), prefix=language[0] if language else "")


# ------------------------------------------------------------------ the Hub


def _splits(row: KnownTask, source: str) -> tuple[KnownTask, Opened]:
    """GLUE and SQuAD in the layout of nyu-mll/glue and rajpurkar/squad, by `datasets`: the task
    with the names of their columns, and its parts."""
    must_have(f"{source}: a data set of the Hub", "data", "datasets")
    import datasets

    config = row.name if row.group == "glue" else None
    fact = f"data set {source} {config or ''} cannot be loaded; --data-dir takes a folder, too"
    with failing_as(fact):
        if not Path(source).is_dir():
            must_be_reachable(source, "data set")
        sets: Any = datasets.load_dataset(source, config)
    if row.group == "glue":
        first = Row(source, 1, next(iter(sets.values()))[0])
        text, pair = (f"{{{name}}}" for name in text_columns(source, [first], None, None))
        row = replace(row, text=text, pair=row.pair and pair, label="label")

    def opened(patterns: Patterns, labelled: bool) -> Found | None:
        split = re.split(r"-v|\.", Path(patterns[0]).name)[0].replace("dev", "validation")
        if split not in sets:
            return None
        where = f"data set {source}, {row.name} {split}, row"
        found = enumerate(sets[split], 1)
        split_rows = (Row(f"{where} {number}", number, cells) for number, cells in found)
        return patterns[0], _examples(row, split_rows, labelled), []

    return row, opened
