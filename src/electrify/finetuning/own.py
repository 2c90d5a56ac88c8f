"""The user's own labelled files -> `TaskData`. What is not given is detected: the columns, and
whether labels are classes, several classes, or numbers. Notes report what was detected."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from ..errors import UserError
from .columns import WHOLE_NUMBER, Columns, number_of
from .metrics import chosen
from .sentences import TAGS, TOKENS, read_sentence_rows, read_sentences, tagging_of
from .split import missing_classes
from .squad import answering_of, read_questions
from .tables import JSON_LINES, TABLES, Row, ending_of, rows, text_of
from .tasks import MIN_UPDATES, TASKS, Example, Kind, Sentence, TaskData

OWN_EPOCHS = 3.0
OWN_METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": (*("accuracy", "macro_f1", "balanced_accuracy", "roc_auc", "pr_auc", "ece"),),
    "multilabel": ("micro_f1", "macro_f1", "accuracy", "roc_auc", "pr_auc"),
    "regression": ("spearman", "pearson"),
}
MOST_AREAS = 100
"""Up to this many classes, areas under curves are computed without a request: each class takes a
pass over the examples."""
MAX_CLASSES = 50_000
"""A head with more classes would be larger than the encoder; the published sets with most labels
have about ten thousand."""
MOST, SOME = 0.8, 0.1
"""From these shares of numbers, and of decimal ones, labels are not taken for names of classes."""
SHOWN = 10
"""Classes or tags that a note names."""
# What a cell may hold if each class has a column of its own.
_CELLS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_UNKNOWN = ("", "nan")
# Decimal numbers that are written for people: a comma, or a sign for percent.
_FOR_PEOPLE = re.compile(r"[-+]?\d+(,\d+|[.,]\d+\s*%)")
_SAYS_NOTHING = ("train", "training", "train_data", "data")


class Several(NamedTuple):
    """The label of an example that may have several classes: those that apply, and those of which
    nobody knows."""

    held: list[Any]
    unknown: list[str]


class Cells(NamedTuple):
    """An example before its label is a number. value: the label as written, or Several."""

    where: str
    text: str
    pair: str | None
    value: Any


def read_own(
    train_file: str,
    validation_file: str | None,
    *,
    columns: Columns,
    problem_type: str = "auto",
    metrics: Sequence[str] = (),
) -> TaskData:
    """A task of the user's own files. validation_file: None if the first file is to be split; its
    examples are then in both parts. Raises UserError naming file and line."""
    files = (train_file,) if validation_file is None else (train_file, validation_file)
    kind = _kind_of_file(train_file) if problem_type == "auto" else problem_type
    name = _name_of(Path(train_file))
    if kind not in ("tagging", "answering"):
        return validated(_texts(files, name, columns, kind, metrics))
    chosen(metrics, cast(Kind, kind))
    fixed = kind == "answering" or ending_of(train_file) in TABLES
    given = {"--pair-column": columns.pair, "--no-header": None if columns.header else "true"}
    if fixed:
        given |= {"--text-column": columns.text, "--label-column": columns.label}
    useless = next((flag for flag, value in given.items() if value is not None), None)
    if useless is not None:
        raise UserError(f"{train_file}: {useless} is not for this kind of file")
    if kind == "tagging":
        return validated(_tagging(files, name, columns))
    found = [read_questions(path) for path in files]
    validation = None if validation_file is None else found[1]
    return answering_of(name, found[0], validation, epochs=2, min_updates=MIN_UPDATES)


def _kind_of_file(path: str) -> str:
    """What the ending, or the names of the columns, show; otherwise auto."""
    ending = ending_of(path)
    if ending == ".json":
        return "answering"
    if ending in (".conll", ".conllu", ".iob", ".iob2", ".bio", ".txt"):
        return "tagging"
    if ending in (*JSON_LINES, ".parquet"):
        first = next(rows(path), None)
        keys = set(first.cells if first else ())
        if {"context", "question"} <= keys:
            return "answering"
        if keys & set(TOKENS) and keys & set(TAGS):
            return "tagging"
    return "auto"


def _name_of(train_file: Path) -> str:
    """The name of the task: that of the file, or of its folder if the file's name says nothing.
    Under a known name, the report would compare it with published scores."""
    name = train_file.name.split(".")[0]
    if name.lower() in _SAYS_NOTHING:
        name = train_file.resolve().parent.name or name
    return f"own-{name}" if name.lower() in TASKS else name


def _shared(parts: Sequence[Sequence[Hashable]]) -> tuple[str, ...]:
    """A note on validation texts that training has, too. parts: the texts of both, or of the one
    part that is still to be split."""
    known = set(parts[0])
    shared = sum(text in known for text in parts[1]) if len(parts) > 1 else 0
    if not shared:
        return ()
    note = f"{shared:,} of {len(parts[1]):,} validation examples also occur in the training set"
    return (f"{note}. Scores are optimistic.",)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


# ------------------------------------------------------------------ tags


def _tagging(files: Sequence[str], name: str, columns: Columns) -> TaskData:
    found = [_sentences(path, columns.text, columns.label) for path in files]
    shared = _shared([[sentence.words for sentence in part] for part in found])
    return tagging_of(name, found[0], found[-1], epochs=OWN_EPOCHS, notes=shared)


def _sentences(path: str, word: str | None, tag: str | None) -> tuple[Sentence, ...]:
    if ending_of(path) in (*JSON_LINES, ".parquet"):
        return read_sentence_rows(path)
    if word is not None and not WHOLE_NUMBER.fullmatch(word):
        raise UserError(
            f"{path}: --text-column of a file of columns is a number from 0, not {word!r}"
        )
    numbered = tag is not None and WHOLE_NUMBER.fullmatch(tag)
    return read_sentences(
        path, word=None if word is None else int(word), tag=int(tag or 0) if numbered else tag
    )


def validated(task: TaskData) -> TaskData:
    """The task with notes on classes and tags that only one of its parts has."""
    return replace(task, notes=(*task.notes, *missing_classes(task), *_untrained_tags(task)))


def _untrained_tags(task: TaskData) -> tuple[str, ...]:
    """A note on the tags that only the validation data have. Raises UserError if it has no other
    ones."""
    if task.kind != "tagging":
        return ()
    scored = [tag for s in cast(tuple[Sentence, ...], task.validation) for tag in s.tags]
    learnt = {tag for s in cast(tuple[Sentence, ...], task.train) for tag in s.tags}
    odd = [tag for tag in scored if tag not in learnt]
    if not odd:
        return ()
    shown = _first(sorted(set(odd)))
    if not (set(scored) - {"O"}) & learnt:
        raise UserError(
            f"task {task.name!r}: none of the validation tags ({shown}) is a training tag "
            f"({_first(sorted(learnt))})"
        )
    note = f"{len(odd):,} validation words have tags that no training word has ({shown})"
    return (f"{note}. They count as wrong.",)


# ------------------------------------------------------------------ texts


def _texts(
    files: Sequence[str], name: str, columns: Columns, wanted: str, metrics: Sequence[str]
) -> TaskData:
    """A task of texts, or pairs of them. wanted: the kind of label, or auto."""
    tables = [list(rows(path, header=columns.header)) for path in files]
    for path, table in zip(files, tables, strict=True):
        if not table:
            raise UserError(f"{path}: no examples")
    text, pair, labels = columns.found(files[0], [row.cells for row in tables[0]])
    parts = [
        [
            Cells(
                row.where,
                text_of(row, text),
                None if pair is None else text_of(row, pair),
                _label_of(row, labels, wanted),
            )
            for row in table
        ]
        for table in tables
    ]
    notes = [_about_columns(list(tables[0][0].cells), text, pair, labels)]
    names = labels if len(labels) > 1 else []
    if not names and wanted in ("auto", "multilabel"):
        parts, names = _as_lists(parts)
    parts, out = _known(parts, classes=len(labels))
    notes += out
    for path, part in zip(files, parts, strict=True):
        blank = sum(not (cells.text.strip() or (cells.pair or "").strip()) for cells in part)
        if not part:
            raise UserError(f"{path}: no example has a label, so there is nothing to learn")
        if blank == len(part):
            named = ", ".join(repr(c) for c in (text, pair) if c is not None)
            raise UserError(f"{path}: every text ({named}) is empty; is another column meant?")
        if blank:
            notes.append(f"{path}: {blank:,} of {len(part):,} texts are empty")
    kind = _checked_kind(parts, wanted, files[0])
    names, example = _numbered(parts[0], kind, names)
    if len(names) > MAX_CLASSES:
        raise UserError(
            f"{files[0]}: {len(names):,} different labels, and at most {MAX_CLASSES:,} are "
            "learnt; is --label-column the one that is meant?"
        )
    if "f1" in metrics and kind == "classification" and len(names) > 2:
        raise UserError(
            f"--metrics f1 is for two classes, and {files[0]} has {len(names):,}; take macro_f1 "
            "or micro_f1"
        )
    examples = [tuple(map(example, part)) for part in parts]
    many = len(names) > MOST_AREAS
    usual = tuple(m for m in OWN_METRICS[kind] if not (many and m in ("roc_auc", "pr_auc")))
    return TaskData(
        name=name,
        kind=kind,
        labels=tuple(names),
        metrics=chosen(metrics, kind) or usual,
        epochs=OWN_EPOCHS,
        train=examples[0],
        validation=examples[-1],
        min_updates=MIN_UPDATES,
        notes=(
            *_shared([[(e.text, e.pair) for e in part] for part in examples]),
            *notes,
            _about_labels(kind, names, examples[0]),
        ),
    )


def _about_columns(header: list[str], text: str, pair: str | None, labels: list[str]) -> str:
    unread = [repr(name) for name in header if name not in (text, pair, *labels)]
    second = "" if pair is None else f", second text {pair!r}"
    what = "label" if len(labels) == 1 else "one class each"
    ignored = f"; not read: {_first(unread)}" if unread else ""
    return f"columns: text {text!r}{second}, {what} {_first(list(map(repr, labels)))}{ignored}"


def _about_labels(kind: Kind, names: Sequence[str], examples: Sequence[Example]) -> str:
    if kind == "regression":
        values = [cast(float, example.label) for example in examples]
        return f"task: regression, labels from {min(values):g} to {max(values):g}"
    return f"task: {kind}, {len(names):,} classes ({_first(names)})"


def _label_of(row: Row, columns: list[str], wanted: str) -> Any:
    """The label of a row as written, or None if it has none. Raises UserError."""
    for column in columns:
        if column not in row.cells:
            raise UserError(f"{row.where}: no column {column!r}; found: {', '.join(row.cells)}")
    if len(columns) > 1:
        marks = {column: _mark(row, column) for column in columns}
        return Several([c for c in columns if marks[c]], [c for c in columns if marks[c] is None])
    (column,) = columns
    value = row.cells[column]
    given = value if isinstance(value, list) else [value]
    if value is not None and not all(isinstance(one, str | int | float) for one in given):
        raise UserError(
            f"{row.where}: {column!r} must be a text or a number, or a list of them, not "
            f"{str(value)[:40]}"
        )
    bare = value.strip().lower() if isinstance(value, str) else value
    if bare == "nan" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and wanted == "multilabel" and not value.startswith("["):
        return [part.strip() for part in value.split("|") if part.strip()]
    return None if bare == "" else value


def _mark(row: Row, column: str) -> bool | None:
    """Whether the class of a column applies; None if nobody knows."""
    value = row.cells[column]
    bare = "" if value is None else str(value).strip().lower()
    if bare not in _CELLS and bare not in _UNKNOWN:
        raise UserError(
            f"{row.where}: {column!r} must be 0, 1 or empty (not known), not {str(value)[:40]!r}"
        )
    return _CELLS.get(bare)


def _as_lists(parts: list[list[Cells]]) -> tuple[list[list[Cells]], list[str]]:
    """Labels that are lists as `Several`, also those written as text, "[1, 0]". Lists of one length
    that hold only 0 and 1 are vectors with a place for each class (multi-hot); the classes are then
    returned, too."""
    read = [[cells._replace(value=_listed(cells.value)) for cells in part] for part in parts]
    if all(isinstance(cells.value, list | type(None)) for cells in read[0]):
        parts = read
    lists = [cells.value for cells in parts[0] if isinstance(cells.value, list)]
    size = len(lists[0]) if lists else 0
    hot = size > 1 and all(len(v) == size and set(map(_bit, v)) <= {0, 1} for v in lists)

    def several(cells: Cells) -> Cells:
        value = cells.value
        if not isinstance(value, list):
            return cells
        if hot:
            if len(value) != size or not set(map(_bit, value)) <= {0, 1}:
                raise UserError(
                    f"{cells.where}: label {str(value)[:40]} must hold {size} numbers 0 or 1, as "
                    "others do"
                )
            value = [f"label_{k}" for k, one in enumerate(value) if _bit(one)]
        return cells._replace(value=Several(value, []))

    parts = [[several(cells) for cells in part] for part in parts]
    return parts, [f"label_{k}" for k in range(size)] if hot else []


def _listed(value: Any) -> Any:
    """The list that is written as a text, as JSON or Python writes it; otherwise the value."""
    if isinstance(value, str) and value.strip().startswith("["):
        with suppress(ValueError, SyntaxError):
            return ast.literal_eval(value.strip())
    return value


def _bit(value: Any) -> float | None:
    return float(value) if isinstance(value, bool | int | float) else None


def _known(parts: list[list[Cells]], *, classes: int) -> tuple[list[list[Cells]], list[str]]:
    """The examples about which anything is known, and a note on the others. classes: the number of
    columns with labels."""

    def known(value: Any) -> bool:
        unknown = len(value.unknown) if isinstance(value, Several) else 0
        return value is not None and unknown < classes

    found = [[cells for cells in part if known(cells.value)] for part in parts]
    out = sum(map(len, parts)) - sum(map(len, found))
    return found, [f"{out:,} examples without a label are left out"] * bool(out)


def _checked_kind(parts: list[list[Cells]], wanted: str, path: str) -> Kind:
    """The kind of label. Raises UserError if the labels are not of the kind that is wanted."""
    values = [one.value for one in parts[0]]
    lists = any(isinstance(one.value, Several | list) for part in parts for one in part)
    kind = wanted
    if wanted == "auto":
        kind = "multilabel" if lists else _kind_of_labels(parts[0])
    if lists and kind != "multilabel":
        raise UserError(
            f"{path}: some examples have several labels; give --problem-type multilabel"
        )
    if kind == "multilabel" and not any(_held(value) for value in values):
        raise UserError(f"{path}: no example has a label, so there is nothing to learn")
    return cast(Kind, kind)


def _kind_of_labels(cells: list[Cells]) -> Kind:
    """Decimal numbers are values, but two whole ones (0.0 and 1.0) are classes. Raises UserError
    where most labels are decimal numbers and some are not: one such cell would make a class of each
    number."""
    numbers = [number_of(one.value) for one in cells]
    whole = sum(_is_whole(one.value) for one in cells)
    if None not in numbers:
        few = len(set(numbers)) == 2 and all(n is not None and n.is_integer() for n in numbers)
        return "classification" if few or whole == len(cells) else "regression"
    others = [one for one, number in zip(cells, numbers, strict=True) if number is None]
    written = sum(bool(_FOR_PEOPLE.fullmatch(str(one.value).strip())) for one in others)
    plain = len(cells) - len(others)
    if plain + written >= MOST * len(cells) and plain + written - whole >= SOME * len(cells):
        raise UserError(
            f"{others[0].where}: label {str(others[0].value)[:40]!r} is not a number, and most "
            "others are; write decimal numbers with a point and without a sign for percent, or "
            "give --problem-type classification if each label is the name of a class"
        )
    return "classification"


def _held(value: Any) -> list[Any]:
    return value.held if isinstance(value, Several) else [value]


def _is_whole(value: Any) -> bool:
    """Whether a number is written as a whole one: 3, not 3.0."""
    return str(value).strip().lstrip("+-").isdecimal()


def _numbered(
    cells: list[Cells], kind: Kind, names: list[str]
) -> tuple[list[str], Callable[[Cells], Example]]:
    """The names of the classes, and the function that makes an example. names: those that are
    known already."""
    if kind == "regression":
        return [], lambda one: Example(one.text, one.pair, _number(one))
    values = [value for one in cells for value in _held(one.value)]
    numbers = [number_of(value) for value in values]
    whole = all(n is not None and n.is_integer() for n in numbers)

    def name(value: Any) -> str:
        number = number_of(value)
        if whole and number is not None and number.is_integer() and "." in str(value):
            return str(int(number))  # 1.0 is 1: pandas writes so where other cells are empty
        return str(value).lower() if isinstance(value, bool) else str(value).strip()

    names = names or sorted({name(v) for v in values}, key=_class_order)
    classes = {name: number for number, name in enumerate(names)}

    def number(value: Any, where: str) -> int:
        if name(value) not in classes:
            raise UserError(
                f"{where}: label {str(value)[:40]!r} is none of the classes {_first(names)}"
            )
        return classes[name(value)]

    def example(one: Cells) -> Example:
        if kind == "classification":
            return Example(one.text, one.pair, number(one.value, one.where))
        held = sorted({number(value, one.where) for value in _held(one.value)})
        unknown = one.value.unknown if isinstance(one.value, Several) else []
        return Example(
            one.text, one.pair, tuple(held), tuple(sorted(map(classes.__getitem__, unknown)))
        )

    return names, example


def _class_order(name: str) -> tuple[int, float, str]:
    return (0, int(name), name) if WHOLE_NUMBER.fullmatch(name) else (1, 0, name)


def _number(one: Cells) -> float:
    number = number_of(one.value)
    if number is None or not math.isfinite(number):
        raise UserError(f"{one.where}: label {str(one.value)[:40]!r} is not a number")
    return number
