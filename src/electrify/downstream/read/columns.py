"""Which columns of a table hold what: named, numbered, or guessed by names or values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UserError, nearest
from ...text.row import TEXT_COLUMNS as TEXT_COLUMNS
from ...text.row import separator_hint
from .files import ending_of
from .tables import number_of

# The names that are looked for, in this order, beside TEXT_COLUMNS.
PAIR_COLUMNS = ("sentence2",)
LABEL_COLUMNS = ("label", "labels", "category", "class", "target", "intent", "sentiment")
SHOWN = 30
"""Characters of an example value in a message."""
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
Cells = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that the user gave, by name or number; None looks for one. label: one column, or
    several with commas between them, one for each class. header: whether the first line of a table
    names its columns; otherwise their names are their numbers, from 0.
    """

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    header: bool = True

    def flags(self) -> dict[str, str | None]:
        """What was given, by flag."""
        return {
            "--text-column": self.text,
            "--pair-column": self.pair,
            "--label-column": self.label,
            "--no-header": None if self.header else "true",
        }

    @property
    def unnamed(self) -> bool:
        """Whether neither a header nor the user names any column."""
        return not self.header and self.text is self.pair is self.label is None

    def found(self, path: str, rows: Sequence[Cells]) -> tuple[str, str | None, list[str]]:
        """The names of the columns of the text, of the second text, and of the labels. Raises
        UserError."""
        if self.unnamed and len(rows[0]) == 2:
            text, label = _text_and_label(path, rows)
            return text, None, [label]
        first = rows[:2]
        text = column_named(path, first, self.text, TEXT_COLUMNS, "--text-column")
        if self.pair is not None:
            pair = column_named(path, first, self.pair, (), "--pair-column")
        else:
            pair = next((c for c in PAIR_COLUMNS if c in first[0] and c != text), None)
        given = several(self.label) or [self.label]
        labels = [column_named(path, first, c, LABEL_COLUMNS, "--label-column") for c in given]
        _must_differ(path, text, pair, labels)
        return text, pair, labels


def _text_and_label(path: str, rows: Sequence[Cells]) -> tuple[str, str]:
    """The columns of a table that has two, without names: fewer different values, or numbers, are
    labels. Raises UserError where that does not tell."""
    names = ("0", "1")
    different = [len({row[name] for row in rows}) for name in names]
    numbers = [all(number_of(row[name]) is not None for row in rows) for name in names]
    fewer = {k for k in (0, 1) if different[k] < different[1 - k]}
    labels = fewer | {k for k in (0, 1) if numbers[k] > numbers[1 - k]}
    if len(labels) != 1:
        raise UserError(
            f"{path}: neither of its columns ({_with_values(rows[:2])}) is clearly that of the "
            "labels; name both with --text-column and --label-column"
        )
    (label,) = labels
    return names[1 - label], names[label]


def several(label_column: str | None) -> list[str]:
    """The columns with one label each, if several are named."""
    return (label_column or "").split(",") if "," in (label_column or "") else []


def column_named(
    path: str, first: Sequence[Cells], given: str | None, known: tuple[str, ...], flag: str
) -> str:
    """The column that was named or numbered, or the first with a known name. first: the first
    rows of the file."""
    header = list(first[0])
    if given in header:
        return given
    if given is not None:
        if ending_of(path) in (".csv", ".tsv") and WHOLE_NUMBER.fullmatch(given):
            if not 0 <= int(given) < len(header):
                raise UserError(
                    f"{path}: no column {given}; there are {len(header)}, counted from 0"
                )
            return header[int(given)]
        hint = separator_hint(header, ending_of(path)) or nearest(given, header)
        raise UserError(f"{path}: no column {given!r}{hint}")
    found = next((c for c in known if c in header), None)
    if found is None:
        hint = f"; name it with {flag}"
        if ending_of(path) in (".csv", ".tsv") and header != list(map(str, range(len(header)))):
            hint += ", and with --no-header if the first line is an example"
        raise UserError(
            f"{path}: none of its columns ({_with_values(first)}) is called {', '.join(known)}"
            f"{separator_hint(header, ending_of(path)) or hint}"
        )
    return found


def only_column(path: str, cells: Cells) -> str | None:
    """The column of a table that has no other; None if it has several. Raises UserError if its name
    looks like several with another separator between them."""
    if len(cells) != 1:
        return None
    (name,) = cells
    hint = separator_hint([name], ending_of(path))
    if hint:
        raise UserError(
            f"{path}: its only column is called {name[:SHOWN]!r}{hint}; if there is one column, "
            "say so with --text-column 0, or with --no-header if the first line is a text"
        )
    return name


def _must_differ(path: str, text: str, pair: str | None, labels: list[str]) -> None:
    """Raises UserError for a column that is meant to be two things."""
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


def _with_values(first: Sequence[Cells]) -> str:
    """The columns, each with its values in the first rows."""
    return "; ".join(
        f"{name}: " + ", ".join(repr(str(row.get(name, ""))[:SHOWN]) for row in first)
        for name in first[0]
    )
