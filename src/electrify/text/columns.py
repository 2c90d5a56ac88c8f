"""Which columns of a table hold texts and labels: those that are named, or those that are found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import UserError, need
from ..names import nearest
from .tables import Row

# Known names, in the order in which they are looked for. Capital letters do not matter.
TEXT_COLUMNS = (
    *("text", "sentence", "sentence1", "content", "document", "sequence", "seq", "smiles"),
    *("code", "review", "utterance", "tweet", "body"),
)
PAIRS = (
    *(("text", "text_pair"), ("text", "sentence2"), ("sentence1", "sentence2")),
    *(("sentence", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("question", "passage"), ("query", "document")),
    *(("query", "passage"), ("title", "body"), ("text_a", "text_b"), ("text1", "text2")),
)
"""Columns of a text and a second one, in the order in which they are looked for."""
LABEL_COLUMNS = (
    *("label", "labels", "category", "class", "target", "intent", "sentiment"),
    *("gold_label", "label_text"),
)
SCORES = ("score", "similarity", "rating")
"""Columns of values, which are labels where no column has one of the names above."""
SHOWN = 30
"""Characters of an example value in a message."""
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?inf(inity)?", re.I)


def number_of(value: Any) -> float | None:
    """The value as a number; None if it is not written as one. (Python also reads 1_1, as 11.)"""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    is_written = isinstance(value, str) and _NUMBER.fullmatch(value.strip())
    return float(value) if is_written else None


def labelled_columns(
    path: str, rows: Sequence[Row], *, text: str | None, pair: str | None, label: str | None
) -> tuple[str, str | None, list[str]]:
    """The names of the columns of the text, of the second text, and of the labels: those given, by
    name or number (labels perhaps several, with commas between), or those that are found. Raises
    UserError."""
    need(bool(rows), f"{path}: no examples")
    by_word = text is None and {"sentence_id", "words"} <= set(rows[0].cells)
    advice = "write sentences with tags as .conll (a word and its tag on a line) or .jsonl (lists)"
    need(not by_word, f"{path}: a word in each row", advice)
    text, pair = text_columns(path, rows, text, pair)
    if label is None:
        labels = [_label_column(path, rows, (text, pair))]
    else:
        labels = [column_named(path, rows, each) for each in label.split(",")]
    each = [text, *labels, *([] if pair is None else [pair])]
    twice = next((repr(name) for name in each if each.count(name) > 1), "")
    need(not twice, f"{path}: text, pair and label need a column each, and {twice} is two")
    return text, pair, labels


def text_columns(
    path: str, rows: Sequence[Row], text: str | None, pair: str | None, *, pairs: bool = True
) -> tuple[str, str | None]:
    """The columns of the text and of a second one. rows: the first of the file, or all. pairs:
    whether a second text is looked for. Raises UserError."""
    known = _lower(rows)
    couples = [(known[a], known[b]) for a, b in PAIRS * pairs if {a, b} <= {*known}]
    if text is not None:
        text = column_named(path, rows, text)
    elif couples and "text" not in known:
        text = couples[0][0]
    elif len(known) == 1:
        (text,) = known.values()
    else:
        text = _among(path, rows, TEXT_COLUMNS, "--text-column")[0]
    if pair is not None:
        return text, column_named(path, rows, pair)
    return text, next((b for a, b in couples if a == text), None)


def column_named(path: str, rows: Sequence[Row], given: str) -> str:
    """The column of this name or number, counted from 0. Raises UserError."""
    header = list(rows[0].cells)
    if given in header:
        return given
    if given.isdecimal() and int(given) < len(header):
        return header[int(given)]
    raise UserError(f"{path}: no column {given!r}{nearest(given, header)}")


def _lower(rows: Sequence[Row]) -> dict[str, str]:
    """The names of the columns, by themselves in lower-case letters."""
    return {name.lower(): name for name in reversed(rows[0].cells)}


def _label_column(path: str, rows: Sequence[Row], texts: tuple[str | None, ...]) -> str:
    flag = "--label-column (several labels, each in a column of 0 and 1, as --label-column a,b,c)"
    plain = LABEL_COLUMNS if {*LABEL_COLUMNS} & {*_lower(rows)} - {*texts} else SCORES
    found = _among(path, rows, plain, flag, but=texts)
    if [name.lower() for name in found] == ["label", "label_text"]:
        return found[1]  # the names of the classes whose numbers are in the other column
    both = " and ".join(map(repr, found))
    need(len(found) == 1, f"{path}: {both} may both hold labels. Name one with --label-column")
    return found[0]


def _among(
    path: str, rows: Sequence[Row], names: Sequence[str], flag: str, *, but: Sequence[Any] = ()
) -> list[str]:
    """The columns with one of these names, in their order. Raises UserError if there is none."""
    known = _lower(rows)
    found = [known[name] for name in names if name in known and known[name] not in but]
    values = "; ".join(
        f"{name}: " + ", ".join(repr(str(row.cells.get(name, ""))[:SHOWN]) for row in rows[:2])
        for name in rows[0].cells
    )
    fact = f"{path}: none of its columns ({values}) is called {', '.join(names)}"
    advice = f"name it with {flag}, and with --no-header if the first line is an example"
    need(bool(found), fact, advice)
    return found
