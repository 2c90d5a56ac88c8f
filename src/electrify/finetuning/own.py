"""The user's own labelled files -> `TaskData`. What is not given is detected: the columns, and
whether labels are classes, several classes, or numbers. Notes report what was detected."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ..errors import need
from ..text.streams import ending_of
from ..text.tables import (
    COLUMN_FILES,
    WITH_LISTS,
    Row,
    holds_words,
    labelled_columns,
    number_of,
    rows,
)
from .metrics import chosen
from .sentences import TAGS, TOKENS, read_sentences, tagging_of
from .split import first, split, validated
from .squad import answering_of, read_questions
from .tasks import MIN_UPDATES, TASKS, Example, Kind, TaskData

if TYPE_CHECKING:
    from .options import FinetuneConfig

OWN_EPOCHS = 3.0
AREAS = ("roc_auc", "pr_auc")
OWN_METRICS: dict[str, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "balanced_accuracy", *AREAS, "ece"),
    "multilabel": ("micro_f1", "macro_f1", "accuracy", *AREAS),
    "regression": ("spearman", "pearson"),
}
MOST_AREAS = 100
"""Up to this many classes, areas under curves are computed without a request: each class takes a
pass over the examples."""
MOST, SOME = 0.8, 0.1
"""From these shares of numbers, and of decimal ones, labels are not taken for names of classes."""
# What a label may be if each class has a column, or a place in a list, of its own.
_MARKS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_UNKNOWN = ("", "nan")
_WHOLE = re.compile(r"[-+]?[0-9]+")


class Label(NamedTuple):
    """The label of a row as written: one, or all that apply (listed). unknown: the classes of which
    nobody knows."""

    held: list[str]
    listed: bool = False
    unknown: Sequence[str] = ()


Part = list[tuple[Row, Label]]


def read_own(options: FinetuneConfig) -> TaskData:
    """A task of the user's own files. Without a validation file, the validation examples are split
    off, or with no share given, they are the training examples. Raises UserError naming file and
    line."""
    path, fraction = options.train_file or "", options.validation_fraction
    files = [path]
    if options.validation_file is not None and fraction is None:
        files.append(options.validation_file)
    kind = options.problem_type
    kind = _kind_of_file(path) if kind == "auto" else kind
    name = _name_of(Path(path))
    if kind in ("tagging", "answering"):
        _check_options(path, kind, options)
    if kind == "answering":
        train, *validation = map(read_questions, files)
        task = answering_of(name, train, *validation, epochs=2, min_updates=MIN_UPDATES)
    elif kind == "tagging":
        word, tag = options.text_column, options.label_column
        parts = [read_sentences(path, word=word, tag=tag) for path in files]
        shared = _shared(*([sentence.words for sentence in part] for part in parts))
        task = tagging_of(name, parts[0], parts[-1], epochs=OWN_EPOCHS, notes=shared)
    else:
        task = _texts(files, name, kind, options)
    return validated(task if fraction is None else split(task, fraction, seed=options.seed))


def _check_options(path: str, kind: Kind, options: FinetuneConfig) -> None:
    """Raises UserError for an option that has no meaning for sentences or questions."""
    chosen(options.metrics, kind)
    useless = ["pair_column"]
    if kind == "answering" or ending_of(path) in WITH_LISTS:
        useless += ["text_column", "label_column"]
    given = [name for name in useless if getattr(options, name) is not None]
    given += ["header"] * (not options.header)
    need(not given, f"{path}: {', '.join(given)} is not for this kind of file")


def _kind_of_file(path: str) -> Kind | Literal["auto"]:
    """What the ending, or the names of the columns, show; otherwise auto."""
    ending = ending_of(path)
    if ending == ".json":
        return "answering"
    if ending in (*COLUMN_FILES, ".txt") or (ending == ".tsv" and holds_words(path)):
        return "tagging"
    keys = set(next((row.cells for row in rows(path)), ())) if ending in WITH_LISTS else set()
    if {"context", "question"} <= keys:
        return "answering"
    return "tagging" if keys & set(TOKENS) and keys & set(TAGS) else "auto"


def _name_of(train_file: Path) -> str:
    """The name of the task: that of the file, or of its folder if the file's name tells nothing.
    Under a known name, the report would compare it with published scores."""
    name = train_file.name.split(".")[0]
    if name.lower() in ("train", "training", "train_data", "data"):
        name = train_file.resolve().parent.name or name
    return f"own-{name}" if name.lower() in TASKS else name


def _shared(train: Iterable[Hashable], validation: Sequence[Hashable] = ()) -> tuple[str, ...]:
    """A note on validation texts that training has, too. validation: none if it is to be split
    off."""
    known = set(train)
    shared = sum(text in known for text in validation)
    note = f"{shared:,} of {len(validation):,} validation examples also occur in the training set"
    return (f"{note}. Scores are optimistic.",) if shared else ()


# ------------------------------------------------------------------ texts


def _texts(files: Sequence[str], name: str, wanted: str, options: FinetuneConfig) -> TaskData:
    """A task of texts, or pairs of them. wanted: the kind of label, or auto."""
    tables = [list(rows(path, header=options.header)) for path in files]
    text, pair, labels = labelled_columns(
        files[0],
        tables[0],
        text=options.text_column,
        pair=options.pair_column,
        label=options.label_column,
        header=options.header,
    )
    notes = [_about_columns(tables[0][0], text, pair, labels)]
    read = [[(row, _label_of(row, labels, wanted)) for row in table] for table in tables]
    parts = [[(row, label) for row, label in part if label is not None] for part in read]
    if out := sum(map(len, read)) - sum(map(len, parts)):
        notes.append(f"{out:,} examples without a label are left out")
    for path, part in zip(files, parts, strict=True):
        need(bool(part), f"{path}: no example has a label, so there is nothing to learn")
    kind = _kind_of(parts[0]) if wanted == "auto" else cast(Kind, wanted)
    names, spelt = _classes(parts[0], labels)
    names = [] if kind == "regression" else names
    numbers = {each: number for number, each in enumerate(names)}

    def number(row: Row, value: str) -> Any:
        found = number_of(value) if kind == "regression" else numbers.get(value)
        what = f"none of the classes {first(names)}" if names else "not a number"
        known = found is not None and math.isfinite(found)
        need(known, f"{row.where}: label {value[:40]!r} is {what}")
        return found

    def example(row: Row, label: Label) -> Example:
        fact = f"{row.where}: several labels. Give --problem-type multilabel"
        need(kind == "multilabel" or not label.listed, fact)
        both = row.text(text), None if pair is None else row.text(pair)
        held = sorted({number(row, value) for value in spelt(label.held)})
        if kind != "multilabel":
            return Example(*both, held[0])
        return Example(*both, tuple(held), tuple(sorted(numbers[name] for name in label.unknown)))

    examples = [tuple(example(*each) for each in part) for part in parts]
    for path, part in zip(files, examples, strict=True):
        blank = sum(not (e.text.strip() or (e.pair or "").strip()) for e in part)
        need(blank < len(part), f"{path}: every text ({text!r}) is empty; is another column meant?")
        if blank:
            notes.append(f"{path}: {blank:,} of {len(part):,} texts are empty")
    values: list[Any] = [example.label for example in examples[0]]
    about = f"{len(names):,} classes ({first(names)})"
    if kind == "regression":
        about = f"labels from {min(values):g} to {max(values):g}"
    usual = [m for m in OWN_METRICS[kind] if m not in AREAS or len(names) <= MOST_AREAS]
    fact = f"--metrics f1 is for two classes, and {files[0]} has {len(names):,}. Take macro_f1"
    need("f1" not in options.metrics or kind != "classification" or len(names) == 2, fact)
    return TaskData(
        name=name,
        kind=kind,
        labels=tuple(names),
        metrics=chosen(options.metrics, kind) or tuple(usual),
        epochs=OWN_EPOCHS,
        train=examples[0],
        validation=examples[-1],
        min_updates=MIN_UPDATES,
        notes=(
            *_shared(*([(e.text, e.pair) for e in part] for part in examples)),
            *notes,
            f"task: {kind}, {about}",
        ),
    )


def _about_columns(row: Row, text: str, pair: str | None, labels: list[str]) -> str:
    unread = [repr(name) for name in row.cells if name not in (text, pair, *labels)]
    second = "" if pair is None else f", second text {pair!r}"
    what = "label" if len(labels) == 1 else "one class each"
    ignored = f"; not read: {first(unread)}" if unread else ""
    return f"columns: text {text!r}{second}, {what} {first(list(map(repr, labels)))}{ignored}"


def _label_of(row: Row, columns: list[str], wanted: str) -> Label | None:
    """The label of a row, or None if it has none. Lists may be written as JSON or Python writes
    them; for `multilabel`, also with bars. Raises UserError."""
    if len(columns) > 1:
        marks = {column: _written(row.value(column)).lower() for column in columns}
        odd = [column for column in columns if marks[column] not in (*_MARKS, *_UNKNOWN)]
        need(not odd, f"{row.where}: {', '.join(map(repr, odd))} must be 0, 1 or empty (not known)")
        held = [column for column in columns if _MARKS.get(marks[column])]
        unknown = [column for column in columns if marks[column] in _UNKNOWN]
        return Label(held, listed=True, unknown=unknown) if len(unknown) < len(columns) else None
    value = row.value(columns[0])
    written = _written(value)
    if written.startswith("[") and wanted in ("auto", "multilabel"):
        with suppress(ValueError, SyntaxError):  # otherwise it is a name
            value = ast.literal_eval(written)
    elif wanted == "multilabel" and isinstance(value, str) and written.lower() != "nan":
        value = [part for part in value.split("|") if part.strip()]
    listed = isinstance(value, list)
    given = value if listed else [value]
    known = value is None or all(isinstance(each, str | int | float) for each in given)
    fact = f"{row.where}: {columns[0]!r} must be a text, a number, or a list of them"
    need(known, f"{fact}, not {written[:40]}")
    if not listed and written.lower() in _UNKNOWN:
        return None
    return Label(list(map(_written, given)), listed)


def _written(value: Any) -> str:
    if value is None:
        return "nan"
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _kind_of(part: Part) -> Kind:
    """Decimal numbers are values, but two whole ones (0.0 and 1.0) are classes. Raises UserError
    where most labels are decimal numbers and some are not: one such cell would make a class of each
    number."""
    if any(label.listed for _, label in part):
        return "multilabel"
    values = [label.held[0] for _, label in part]
    numbers = [number_of(value) for value in values]
    if None not in numbers:
        two = len(set(numbers)) == 2 and all(cast(float, n).is_integer() for n in numbers)
        are_classes = two or all(map(_WHOLE.fullmatch, values))
        return "classification" if are_classes else "regression"
    # As written for people: 0,5 and 10.5 %.
    bare = [value.replace(",", ".").rstrip(" %") for value in values]
    alike = [value for value in bare if number_of(value) is not None]
    decimal = [value for value in alike if not _WHOLE.fullmatch(value)]
    (where, *_), odd = part[numbers.index(None)][0], values[numbers.index(None)]
    need(
        len(alike) < MOST * len(part) or len(decimal) < SOME * len(part),
        f"{where}: label {odd[:40]!r} is not a number, and most others are. Write numbers as 0.5, "
        "or give --problem-type classification if each label is the name of a class",
    )
    return "classification"


def _classes(
    part: Part, columns: list[str]
) -> tuple[list[str], Callable[[list[str]], Sequence[str]]]:
    """The names of all classes, and the function from what is written to names.

    Lists that hold only 0 and 1 and have one length are vectors with a place for each class
    (multi-hot). Where all names are whole numbers, 1.0 is 1: pandas writes so where other cells are
    empty.
    """
    if len(columns) > 1:
        return columns, list
    size = len(part[0][1].held)
    alike = all(label.listed and len(label.held) == size > 1 for _, label in part)
    values = {value for _, label in part for value in label.held}
    if alike and all(value.lower() in _MARKS for value in values):
        names = [f"label_{k}" for k in range(size)]

        def applying(marks: list[str]) -> Sequence[str]:
            if len(marks) != size or not all(mark.lower() in _MARKS for mark in marks):
                return marks  # which are no names
            return [name for name, mark in zip(names, marks, strict=True) if _MARKS[mark.lower()]]

        return names, applying
    numbers = [number_of(value) for value in values]
    whole = all(number is not None and number.is_integer() for number in numbers)

    def named(held: Iterable[str]) -> Sequence[str]:
        return [value.removesuffix(".0") if whole else value for value in held]

    return sorted(set(named(values)), key=_order), named


def _order(name: str) -> tuple[float, str]:
    return (int(name), name) if _WHOLE.fullmatch(name) else (math.inf, name)
