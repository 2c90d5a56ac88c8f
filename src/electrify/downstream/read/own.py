"""One's own files: the columns and the kind of label are detected where they are not given."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...errors import UserError, nearest
from ...text.whole import json_rows
from ..examples import Example, Question, Sentence
from ..tasks import TASKS, Kind, TaskData
from .conll import read_sentence_rows, read_sentences
from .files import ending_of, whole
from .squad import read_question_rows, read_questions
from .tables import Row, class_name, label_of, must_be_classes, rows, texts_of
from .task import answering_of, tagging_of

TEXT_COLUMNS = ("text", "sentence", "sentence1")
PAIR_COLUMNS = ("sentence2",)
LABEL_COLUMNS = ("label",)
OWN_EPOCHS = 3.0
OWN_METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"), "multilabel": ("micro_f1", "macro_f1", "accuracy"), "regression": ("spearman", "pearson"),
}  # fmt: skip

_WHOLE = re.compile(
    r"-?[0-9]{1,18}"
)  # what is sorted as a number, and what can be the number of a column


def read_own(
    train_file: str,
    validation_file: str,
    *,
    text_column: str | None,
    pair_column: str | None,
    label_column: str | None,
    problem_type: str,
) -> TaskData:
    """A task of one's own files; the columns and the kind of label are detected where they are not
    given. Raises UserError naming file and line."""
    files = (train_file, validation_file)
    kind = _kind_of_files(train_file) if problem_type == "auto" else problem_type
    name = Path(train_file).name.split(".")[0]
    name = (
        f"own-{name}" if name.lower() in TASKS else name
    )  # or the report would compare it with published scores
    flags = {
        "--text-column": text_column,
        "--pair-column": pair_column,
        "--label-column": label_column,
    }
    if kind == "tagging" and ending_of(train_file) not in (".jsonl", ".ndjson"):
        flags = {"--pair-column": pair_column}
    useless = [
        flag
        for flag, given in flags.items()
        if given is not None and kind in ("tagging", "answering")
    ]
    if useless:
        raise UserError(
            f"{train_file}: {useless[0]} is not for this kind of file: its names are fixed"
        )
    match kind:
        case "answering":
            train, validation = (_questions(path) for path in files)
            return answering_of(name, train, validation, epochs=2)
        case "tagging":
            found = [_sentences(path, text_column, label_column) for path in files]
            must_be_classes(
                train_file,
                len({tag for sentence in found[0] for tag in sentence.tags}),
                "the column of tags",
            )
            shared = shared_examples(*([sentence.words for sentence in part] for part in found))
            return tagging_of(
                name, found[0], found[1], metrics=None, epochs=OWN_EPOCHS, notes=shared
            )
        case _:
            return _texts(files, name, text_column, pair_column, label_column, kind)


def _kind_of_files(path: str) -> str:
    """What the ending says, and in JSON lines the keys; else auto."""
    match ending_of(path):
        case ".json":
            return "answering"
        case ".conll" | ".conllu" | ".iob" | ".iob2" | ".bio" | ".txt":
            return "tagging"
        case ".jsonl" | ".ndjson":
            keys = set(next((row for _, row in json_rows(path, whole(path))), {}))
            if {"context", "question"} <= keys:
                return "answering"
            return (
                "tagging"
                if keys & {"tokens", "words"} and keys & {"tags", "ner_tags", "labels"}
                else "auto"
            )
    return "auto"


def _questions(path: str) -> tuple[Question, ...]:
    return read_questions(path) if ending_of(path) == ".json" else read_question_rows(path)


def _sentences(path: str, word: str | None, tag: str | None) -> tuple[Sentence, ...]:
    if ending_of(path) in (".jsonl", ".ndjson"):
        return read_sentence_rows(path)
    numbers = [
        None if given is None else int(given) if _WHOLE.fullmatch(given) else given
        for given in (word, tag)
    ]
    if isinstance(numbers[0], str):
        raise UserError(
            f"{path}: --text-column of a file of columns is a number from 0, not {numbers[0]!r}"
        )
    return read_sentences(path, word=numbers[0], tag=numbers[1])


def _texts(
    files: tuple[str, str],
    name: str,
    text_column: str | None,
    pair_column: str | None,
    label_column: str | None,
    wanted: str,
) -> TaskData:
    found = [(path, list(rows(path))) for path in files]
    for path, part in found:
        if not part:
            raise UserError(f"{path}: no examples")
    train_file = files[0]
    header = list(found[0][1][0][1])
    text = _column(train_file, header, text_column, TEXT_COLUMNS, "--text-column")
    pair = pair_column or (
        next((c for c in PAIR_COLUMNS if c in header), None) if text != "text" else None
    )
    several = (label_column or "").split(",") if "," in (label_column or "") else []
    if several:
        parts = [
            [
                (
                    *texts_of(path, row, text, pair),
                    _holding(path, row, several),
                    f"{path}, line {row[0]}",
                )
                for row in part
            ]
            for path, part in found
        ]
    else:
        label = _column(train_file, header, label_column, LABEL_COLUMNS, "--label-column")
        parts = [
            [_cells(path, row, text, pair, label, empty=wanted == "multilabel") for row in part]
            for path, part in found
        ]
    values = [value for _, _, value, _ in parts[0]]
    kind = _kind_of_labels(values) if wanted == "auto" else wanted
    assert kind in OWN_METRICS
    if kind != "multilabel" and any(isinstance(v, list) for v in values):
        raise UserError(
            f"{train_file}: an example may have several labels there, so its problem type is "
            f"multilabel, not {kind}"
        )
    if kind == "multilabel" and not any(_list(v) for v in values):
        raise UserError(f"{train_file}: no example has a label, so there is nothing to learn")
    flat = values if kind != "multilabel" else [one for value in values for one in _list(value)]
    names = several or (
        sorted({class_name(v) for v in flat}, key=_class_order) if kind != "regression" else []
    )
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


def shared_examples(train: Iterable[Hashable], validation: Sequence[Hashable]) -> tuple[str, ...]:
    """A note where texts of the validation are among those of the training: their scores say
    nothing about new text."""
    known = set(train)
    n = sum(text in known for text in validation)
    return (
        (
            (
                f"{n:,} of {len(validation):,} validation examples are among the training "
                "examples: the scores flatter"
            ),
        )
        if n
        else ()
    )


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
    """The names of the columns that hold a 1."""
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
    """Numbers all, and not whole ones all: as written, so that 3.0 is a decimal number and 3 is
    not."""
    try:
        numbers = [float(v) for v in values if not isinstance(v, bool)]
    except (TypeError, ValueError, OverflowError):
        return False
    return len(numbers) == len(values) and not all(
        str(v).strip().lstrip("+-").isdecimal() for v in values
    )


def _class_order(name: str) -> tuple[int, float, str]:
    return (0, int(name), name) if _WHOLE.fullmatch(name) else (1, 0, name)


def _column(
    path: str, header: list[str], given: str | None, known: tuple[str, ...], flag: str
) -> str:
    if given is not None:
        if given not in header:
            raise UserError(f"{path}: no column {given!r}{nearest(given, header)}")
        return given
    found = next((c for c in known if c in header), None)
    if found is None:
        raise UserError(
            f"{path}: none of its columns ({', '.join(header)}) is called {' or '.join(known)}; "
            f"name it with {flag}"
        )
    return found


def _cells(
    path: str, row: Row, text: str, pair: str | None, label: str, *, empty: bool
) -> tuple[str, str | None, Any, str]:
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
