"""Texts of files whose rows are documents: JSON lines, CSV, TSV, parquet (parquet.py),
and data sets.

Reading is strict: a row that lacks the text or holds something else is named and stops the run,
because otherwise a "5" or None would silently be trained on.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..hub import must_be_reachable
from . import parquet
from .decoding import decode, text_chunks
from .options import PrepareConfig
from .row import Advance, column_of, no_column, valid_text
from .source import Source

MAX_LINE = 1 << 26
"""Limit in bytes for one line or field; it bounds memory."""


def texts(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    """The texts of a source of rows, in order, not yet cleaned."""
    if source.format == "hub":
        return _of_dataset(source, options, counts)
    if source.format == "parquet":
        return parquet.of_parquet(source, options, counts, advance)
    if source.format == "jsonl":
        return _of_jsonl(source, options, counts, advance)
    return _of_csv(source, options, counts, advance)


def _lines(source: Source, advance: Advance) -> Iterator[tuple[int, bytes]]:
    """The line number, counted from 1, and the line without its line end."""
    number = 0
    rest = b""
    for chunk in text_chunks(source.path, advance):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield number, line
        if len(rest) > MAX_LINE:
            raise UserError(
                f"{source.path}, line {number + 1} is longer than {MAX_LINE >> 20} MB; is this one "
                "record a line?"
            )
    if rest:
        yield number + 1, rest


def _of_jsonl(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    column = column_of(source, options)
    once = _each_once(column)
    for number, raw in _lines(source, advance):
        where = f"{source.path}, line {number}"
        line = decode(raw, options.encoding_errors, counts, lambda where=where: where)
        if line is None or not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=once)
        except (ValueError, RecursionError) as e:
            hint = (
                "; this looks like one JSON array, write one object a line"
                if number == 1 and line.lstrip().startswith("[")
                else ""
            )
            raise UserError(f"{where} is not valid JSON ({e}){hint}") from e
        if not isinstance(row, dict):
            raise UserError(
                f"{where} is not a JSON object but {type(row).__name__}; write one object a line"
            )
        if column not in row:
            raise no_column(where, column, row)
        text = valid_text(row[column], where, column, options, counts)
        if text is not None:
            yield text


def _each_once(key: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Makes JSON objects, and raises ValueError if `key` occurs twice in one, because the first
    text would be lost silently."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs) and sum(name == key for name, _ in pairs) > 1:
            raise ValueError(f"the key {key!r} occurs twice")
        return row

    return made


def _of_csv(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    csv.field_size_limit(MAX_LINE)
    column = column_of(source, options)
    lines = (line.decode("utf-8", "surrogateescape") + "\n" for _, line in _lines(source, advance))
    rows = _rows(source, lines)
    try:
        header = next(rows, [])
        if column not in header:
            raise no_column(str(source.path), column, header, source.format or "")
        if header.count(column) > 1:
            raise UserError(f"{source.path}, line 1: the column {column!r} occurs twice")
        at = header.index(column)
        for row in rows:
            where = f"{source.path}, line {rows.line_num}"
            if not row:
                continue
            if len(row) != len(header):
                raise UserError(f"{where} has {len(row)} fields where the header has {len(header)}")
            text = valid_text(row[at], where, column, options, counts)
            if text is not None:
                yield text
    except csv.Error as e:
        raise UserError(f"{source.path}, line {rows.line_num} is not valid CSV ({e})") from e


def columns_of(source: Source) -> list[str]:
    """The columns in the header of a table, or the keys in the first line of a file of JSON lines;
    none if it has neither."""
    if source.format == "parquet":
        return parquet.columns_of(source.path)
    lines = (line.decode("utf-8", "replace") for _, line in _lines(source, None))
    if source.format == "jsonl":
        try:
            row = json.loads(next(filter(str.strip, lines), ""))
        except (ValueError, RecursionError):
            return []
        return list(row) if isinstance(row, dict) else []
    csv.field_size_limit(MAX_LINE)
    with suppress(csv.Error):  # which its reader reports
        return next(_rows(source, iter([next(lines, "")])), [])
    return []


def _rows(source: Source, lines: Iterator[str]) -> Any:
    """The rows of a table. Tab-separated files in common use do not quote (GLUE, WikiANN ...),
    comma-separated ones do."""
    if source.format == "tsv":
        return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(lines, strict=True)


def _of_dataset(source: Source, options: PrepareConfig, counts: Counter[str]) -> Iterator[str]:
    rows = _open_dataset(source, options)
    column = column_of(source, options)
    number = 0
    try:
        for row in rows:
            number += 1
            where = f"data set {source.name}, row {number}"
            if column not in row:
                raise no_column(where, column, row)
            text = valid_text(row[column], where, column, options, counts)
            if text is not None:
                yield text
    except UserError:
        raise
    # Every reader of `datasets` has exceptions of its own; all mean that this row cannot be read.
    except Exception as e:
        raise UserError(
            f"data set {source.name} cannot be read after row {number} ({type(e).__name__}: "
            f"{_one_line(e)})"
        ) from e


def _open_dataset(source: Source, options: PrepareConfig) -> Any:
    try:
        import datasets
    except ImportError as e:
        raise UserError(
            f"{source.name}: a data set needs `datasets`: pip install 'electrify[data]'"
        ) from e
    name, _, config = source.hub.partition(":")
    if not Path(name).is_dir():
        must_be_reachable(name, "data set")
    try:
        return datasets.load_dataset(
            name, config or None, split=options.dataset_split, streaming=True
        )
    # See above: not found, no network, no such configuration or split each have their own.
    except Exception as e:
        raise UserError(
            f"{name!r} is neither a file or folder here nor a data set that can be reached"
            f" (configuration {config or 'default'}, split {options.dataset_split}; "
            f"{type(e).__name__}: {_one_line(e)})"
        ) from e


def _one_line(e: Exception) -> str:
    return " ".join(str(e).split())[:300]
