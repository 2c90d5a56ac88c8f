"""Which columns of a table hold the text, its pair and the label: named, numbered, or guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError, nearest
from ..text.row import TEXT_COLUMNS, separator_hint
from .tables import ending_of

# Known names, in the order in which they are looked for. Capital letters do not matter.
PAIRS = (
    ("text", "text_pair"),
    ("text", "sentence2"),
    ("sentence1", "sentence2"),
    ("sentence", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "document"),
    ("query", "passage"),
    ("title", "body"),
    ("text_a", "text_b"),
    ("text1", "text2"),
)
LABEL_COLUMNS = (
    *("label", "labels", "category", "class", "target", "intent", "sentiment"),
    *("gold_label", "label_text"),
)
SHOWN = 30
"""Characters of an example value in a message."""
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?inf(inity)?", re.I)
Cells = dict[str, Any]


def number_of(value: Any) -> float | None:
    """The value as a number; None if it is not written as one. (Python also reads 1_1, as 11.)"""
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value.strip())):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that the user gave, by name or number; None looks for one.

    label: one column, or several with commas between them, one for each class. header: whether the
    first line of a table names its columns; otherwise their names are their numbers, from 0.
    """

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    header: bool = True

    def found(self, path: str, rows: Sequence[Cells]) -> tuple[str, str | None, list[str]]:
        """The names of the columns of the text, of the second text, and of the labels. Raises
        UserError."""
        unnamed = not self.header and self.text is self.pair is self.label is None
        if unnamed and len(rows[0]) == 2:
            text, label = _text_and_label(path, rows)
            return text, None, [label]
        first = rows[:2]
        if self.text is None and {"sentence_id", "words"} <= set(first[0]):
            raise UserError(
                f"{path}: a word in each row; write sentences with tags as .conll (a word and its "
                "tag on a line, a blank line after a sentence) or .jsonl (lists tokens and tags)"
            )
        text, pair = text_columns(path, first, self.text, self.pair)
        if self.label is None:
            labels = [_label_column(path, first, (text, pair))]
        else:
            labels = [column_named(path, first, given) for given in self.label.split(",")]
            twice = next((c for c in labels if c in (text, pair) or labels.count(c) > 1), None)
            if twice is not None:
                raise UserError(
                    f"{path}: text, pair and label need a column each, and {twice!r} is two"
                )
        return text, pair, labels


def text_columns(
    path: str, first: Sequence[Cells], text: str | None, pair: str | None, *, pairs: bool = True
) -> tuple[str, str | None]:
    """The columns of the text and of a second one. first: the first rows of the file. pairs:
    whether a second text is looked for. Raises UserError."""
    known = {name.lower(): name for name in reversed(first[0])}
    couples = [(known[a], known[b]) for a, b in PAIRS if a in known and b in known and pairs]
    if text is not None:
        text = column_named(path, first, text)
    elif couples and "text" not in known:
        text = couples[0][0]
    elif len(known) == 1 and not separator_hint(list(first[0]), ending_of(path)):
        (text,) = first[0]
    else:
        text = next((known[name] for name in TEXT_COLUMNS if name in known), None)
        if text is None:
            raise _none_of(path, first, TEXT_COLUMNS, "--text-column")
    if pair is not None:
        pair = column_named(path, first, pair)
    else:
        pair = next((b for a, b in couples if a == text), None)
    if text == pair:
        raise UserError(f"{path}: text and pair need a column each, and {text!r} is both")
    return text, pair


def unread_pair(columns: Iterable[str], text: str) -> str | None:
    """A column that looks like that of a second text beside this one."""
    known = {name.lower(): name for name in columns}
    return next((known[b] for a, b in PAIRS if a == text.lower() and b in known), None)


def _label_column(path: str, first: Sequence[Cells], texts: tuple[str | None, ...]) -> str:
    known = {name.lower(): name for name in reversed(first[0]) if name not in texts}
    found = [known[name] for name in LABEL_COLUMNS if name in known]
    if not found:
        raise _none_of(path, first, LABEL_COLUMNS, "--label-column")
    if [name.lower() for name in found] == ["label", "label_text"]:
        return found[1]  # the names of the classes whose numbers are in the other column
    if len(found) > 1:
        raise UserError(
            f"{path}: the columns {' and '.join(map(repr, found))} may both hold labels; name one "
            "with --label-column"
        )
    return found[0]


def column_named(path: str, first: Sequence[Cells], given: str) -> str:
    """The column of this name or number. Raises UserError."""
    header = list(first[0])
    if given in header:
        return given
    if ending_of(path) in (".csv", ".tsv") and WHOLE_NUMBER.fullmatch(given):
        if not 0 <= int(given) < len(header):
            raise UserError(f"{path}: no column {given}; there are {len(header)}, counted from 0")
        return header[int(given)]
    hint = separator_hint(header, ending_of(path)) or nearest(given, header)
    raise UserError(f"{path}: no column {given!r}{hint}")


def _text_and_label(path: str, rows: Sequence[Cells]) -> tuple[str, str]:
    """The columns of a table that has two, without names: fewer different values, or numbers, are
    labels. Raises UserError where that does not tell."""
    different = [len({row[name] for row in rows}) for name in "01"]
    numbers = [all(number_of(row[name]) is not None for row in rows) for name in "01"]
    fewer = {k for k in (0, 1) if different[k] < different[1 - k]}
    labels = fewer | {k for k in (0, 1) if numbers[k] > numbers[1 - k]}
    if len(labels) != 1:
        raise UserError(
            f"{path}: neither of its columns ({_with_values(rows[:2])}) is clearly that of the "
            "labels; name both with --text-column and --label-column"
        )
    (label,) = labels
    return str(1 - label), str(label)


def _none_of(path: str, first: Sequence[Cells], known: Sequence[str], flag: str) -> UserError:
    header = list(first[0])
    hint = f"; name it with {flag}"
    if ending_of(path) in (".csv", ".tsv") and header != [str(k) for k in range(len(header))]:
        hint += ", and with --no-header if the first line is an example"
    return UserError(
        f"{path}: none of its columns ({_with_values(first)}) is called {', '.join(known)}"
        f"{separator_hint(header, ending_of(path)) or hint}"
    )


def _with_values(first: Sequence[Cells]) -> str:
    """The columns, each with its values in the first rows."""
    return "; ".join(
        f"{name}: " + ", ".join(repr(str(row.get(name, ""))[:SHOWN]) for row in first)
        for name in first[0]
    )
