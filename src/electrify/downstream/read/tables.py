"""Tables: CSV, TSV (no quoting) and JSON-lines files as rows, and cells as texts and labels."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import UserError
from ...text.endings import FASTA, SMILES
from ...text.records import MAX_LINE
from ...text.row import separator_hint
from ...text.small_files import json_lines, json_rows, lines_of, must_be_characters
from ..tasks import Kind
from .files import bare, ending_of, must_be_file, whole
from .sequences import fasta_rows, smiles_rows

MAX_CLASSES = 50_000
"""A head with more classes would be larger than the encoder; the published sets with most labels
have some ten thousand."""
Row = tuple[int, dict[str, Any]]
# Python also reads 1_1, as 11.
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(nan|inf(inity)?)", re.I)


def streamed_rows(path: str, raw_lines: Iterable[str], *, header: bool = True) -> Iterator[Row]:
    """Like `rows`, for lines that are read one after the other (files.lines); also the sequences of
    FASTA and the molecules of SMILES files, which hold no labels."""
    may_lack_header(path, header)
    match ending_of(path):
        case ".csv":
            csv.field_size_limit(MAX_LINE)
            return _csv_rows(path, csv.reader(raw_lines, strict=True), header)
        case ".tsv":
            return tsv_rows(path, bare(raw_lines), header=header)
        case ".jsonl" | ".ndjson":
            return json_lines(path, bare(raw_lines))
        case ending if ending in FASTA:
            return fasta_rows(path, bare(raw_lines))
        case ending if ending in SMILES:
            return smiles_rows(bare(raw_lines))
        case ending:
            raise _unknown_ending(path, ending, ".csv, .tsv, .jsonl, .txt, FASTA and SMILES files")


def legible_rows(path: str, raw_lines: Iterable[str], *, header: bool = True) -> Iterator[Row]:
    """Like `streamed_rows`, for rows that can be written again. Raises UserError for half a
    surrogate pair in any of their cells."""
    for number, cells in streamed_rows(path, raw_lines, header=header):
        for name, value in cells.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            must_be_characters(name + text, f"{path}, line {number}: {name[:40]!r}")
        yield number, cells


def _unknown_ending(path: str, ending: str, known: str) -> UserError:
    return UserError(f"{path}: ending {ending!r} is not known; this is read from {known}")


def rows(path: str, *, header: bool = True) -> Iterator[Row]:
    """(line number, column -> value) of each row of a file, by its ending. header: whether the
    first line of a table names its columns; if not, their names are their numbers, from 0."""
    may_lack_header(path, header)
    must_be_file(path)
    match ending_of(path):
        case ".csv":
            # Python's own limit is 131,072 characters, the length of a chapter.
            csv.field_size_limit(MAX_LINE)
            text = io.StringIO(whole(path), newline="")
            return _csv_rows(path, csv.reader(text, strict=True), header)
        case ".tsv":
            return tsv_rows(path, lines_of(whole(path)), header=header)
        case ".jsonl" | ".ndjson":
            return json_rows(path, whole(path))
        case ending:
            raise _unknown_ending(path, ending, ".csv, .tsv, .jsonl")


def may_lack_header(path: str, header: bool) -> None:
    """Raises UserError if a file that cannot have a header is said to have none."""
    if not header and ending_of(path) not in (".csv", ".tsv"):
        raise UserError(f"{path}: --no-header is for .csv and .tsv")


def _csv_rows(path: str, reader: Any, has_header: bool) -> Iterator[Row]:
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = _header(path, cells, has_header)
                if has_header:
                    continue
            if cells:  # an empty line is not a row in CSV
                yield _row(path, reader.line_num, header, cells)
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: broken CSV ({e})") from None


def tsv_rows(path: str, lines: Iterable[str], *, header: bool = True) -> Iterator[Row]:
    names: list[str] | None = None
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if names is None:
            names = _header(path, cells, header)
            if header:
                continue
        yield _row(path, number, names, cells)


def _header(path: str, cells: list[str], has_header: bool) -> list[str]:
    """The names of the columns. cells: those of the first line."""
    if not has_header:
        return [str(k) for k in range(len(cells))]
    if len(set(cells)) != len(cells):
        raise UserError(f"{path}, line 1: a column name occurs twice: {', '.join(cells)}")
    return cells


def _row(path: str, number: int, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        hint = separator_hint(header, ending_of(path))
        raise UserError(
            f"{path}, line {number}: {len(cells)} columns, expected {len(header)}{hint}"
        )
    return number, dict(zip(header, cells, strict=True))


def texts_of(path: str, row: Row, text: str, pair: str | None) -> tuple[str, str | None]:
    number, cells = row
    where = f"{path}, line {number}"
    for column in (text, pair):
        if column is not None and column not in cells:
            raise UserError(
                f"{where}: no column {column!r}; found: {', '.join(cells) or 'nothing'}"
            )
        if column is not None and not isinstance(cells[column], str):
            raise UserError(
                f"{where}: {column!r} must be a text, not {json.dumps(cells[column])[:40]}"
            )
        if column is not None:
            must_be_characters(cells[column], f"{where}: {column!r}")
    return cells[text], None if pair is None else cells[pair]


def label_of(value: Any, kind: Kind, classes: dict[str, int], where: str) -> float:
    if kind == "classification":
        key = class_name(value)
        if key not in classes:
            known = ", ".join(list(classes)[:10]) + (", ..." if len(classes) > 10 else "")
            raise UserError(f"{where}: label {str(value)[:40]!r} is none of the classes {known}")
        return classes[key]
    number = number_of(value)
    if number is None or not math.isfinite(number):
        raise UserError(f"{where}: label {str(value)[:40]!r} is not a number")
    return number


def number_of(value: Any) -> float | None:
    """The value as a number; None if it is not written as one."""
    if isinstance(value, bool) or (isinstance(value, str) and not NUMBER.fullmatch(value.strip())):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def must_be_classes(path: str, classes: int, flag: str) -> None:
    """Raises UserError if there are so many different labels that they must be texts, or numbers
    with another meaning."""
    if classes > MAX_CLASSES:
        raise UserError(
            f"{path}: {classes:,} different labels, and at most {MAX_CLASSES:,} are learnt; is "
            f"{flag} the one that is meant?"
        )


def class_name(value: Any) -> str:
    """Raises UserError for half a surrogate pair."""
    name = str(value).strip() if not isinstance(value, bool) else str(value).lower()
    must_be_characters(name, f"the label {name[:40]!r}")
    return name
