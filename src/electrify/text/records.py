"""Texts of files whose rows are documents: JSON lines, CSV, TSV, parquet, and data sets.

Strict: a row that lacks the text or holds something else stops the run and is named, because a
silent "5" or None would be trained on.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..config.prepare import PrepareConfig
from ..errors import UserError
from .decoding import decode, text_chunks
from .sources import Source
from .streams import BOMB_BYTES, BOMB_RATIO

MAX_LINE = 1 << 26
"""Bytes of one line or field at most; bounds memory."""
BATCH_BYTES = 1 << 26
USUAL_BATCH_BYTES = 1 << 16
MAX_ROWS = 256
"""Of parquet, read at once: bytes at most as far as the file's metadata tell, bytes of rows of the
usual length, rows."""
Advance = Callable[[int], None] | None


def texts(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    """The texts of a source of rows, in order, uncleaned."""
    if source.format == "hub":
        return _of_dataset(source, options, counts)
    if source.format == "parquet":
        return _of_parquet(source, options, counts, advance)
    if source.format == "jsonl":
        return _of_jsonl(source, options, counts, advance)
    return _of_csv(source, options, counts, advance)


def _lines(source: Source, advance: Advance) -> Iterator[tuple[int, bytes]]:
    """Line number from 1, and the line without its end."""
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


def _valid(text: Any, where: str, options: PrepareConfig, counts: Counter[str]) -> str | None:
    """The text of a row, or None where it is to be dropped. Raises UserError where it is no text."""
    if text is None:
        counts["blank"] += 1
        return None
    if not isinstance(text, str):
        raise UserError(
            f"{where}: {options.text_column!r} is of type {type(text).__name__}, not text"
        )
    try:
        text.encode("utf-8")
    except (
        UnicodeEncodeError
    ) as e:  # half a surrogate pair (JSON can write one), or a byte that was not UTF-8
        if options.encoding_errors == "strict":
            raise UserError(
                f"{where}: {options.text_column!r} is not valid Unicode; choose encoding_errors "
                "replace or skip"
            ) from e
        counts["encoding_errors"] += 1
        return (
            text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
            if options.encoding_errors == "replace"
            else None
        )
    return text


def _no_column(where: str, options: PrepareConfig, found: Any) -> UserError:
    return UserError(
        f"{where} has no {options.text_column!r}; it has "
        f"{', '.join(map(str, found)) or 'nothing'}; choose one with text_column"
    )


def _of_jsonl(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    once = _each_once(options.text_column)
    quoted = json.dumps(options.text_column)
    for number, raw in _lines(source, advance):
        where = f"{source.path}, line {number}"
        line = decode(raw, options.encoding_errors, counts, lambda where=where: where)
        if line is None or not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=once if line.count(quoted) > 1 else None)
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
        if options.text_column not in row:
            raise _no_column(where, options, row)
        text = _valid(row[options.text_column], where, options, counts)
        if text is not None:
            yield text


def _each_once(key: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Makes objects of JSON and raises ValueError where `key` stands twice in one: the first text
    would be lost without a word."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if sum(name == key for name, _ in pairs) > 1:
            raise ValueError(f"the key {key!r} stands twice")
        return dict(pairs)

    return made


def _of_csv(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    csv.field_size_limit(MAX_LINE)
    lines = (line.decode("utf-8", "surrogateescape") + "\n" for _, line in _lines(source, advance))
    # Tab-separated files in the wild do not quote (GLUE, WikiANN ...), comma-separated ones do.
    rows = (
        csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        if source.format == "tsv"
        else csv.reader(lines, strict=True)
    )
    try:
        header = next(rows, [])
        if options.text_column not in header:
            raise _no_column(str(source.path), options, header)
        if header.count(options.text_column) > 1:
            raise UserError(
                f"{source.path}, line 1: the column {options.text_column!r} stands twice"
            )
        column = header.index(options.text_column)
        for row in rows:
            where = f"{source.path}, line {rows.line_num}"
            if not row:
                continue
            if len(row) != len(header):
                raise UserError(f"{where} has {len(row)} fields where the header has {len(header)}")
            text = _valid(row[column], where, options, counts)
            if text is not None:
                yield text
    except csv.Error as e:
        raise UserError(f"{source.path}, line {rows.line_num} is not valid CSV ({e})") from e


def has_column(source: Source, options: PrepareConfig) -> bool:
    """Whether the header of a CSV or TSV file has the text column."""
    delimiter = "\t" if source.format == "tsv" else ","
    csv.field_size_limit(MAX_LINE)
    header = next((line.decode("utf-8", "replace") for _, line in _lines(source, None)), "")
    return options.text_column in next(csv.reader([header], delimiter=delimiter), [])


def _of_parquet(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[str]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as e:
        raise UserError(
            f"reading {source.path} needs pyarrow: pip install 'electrify[data]'"
        ) from e
    row_number = 0
    try:
        # Without a buffer in advance, which would hold all of a row group's bytes.
        with parquet.ParquetFile(source.path, pre_buffer=False, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            if options.text_column not in names:
                raise _no_column(str(source.path), options, names)
            if names.count(options.text_column) > 1:
                raise UserError(f"{source.path}: the column {options.text_column!r} stands twice")
            total = max(file.metadata.num_rows, 1)
            _must_be_no_bomb(source, file.metadata)
            for batch in _batches(file, options.text_column):
                for text in batch.column(0).to_pylist():
                    row_number += 1
                    valid = _valid(text, f"{source.path}, row {row_number}", options, counts)
                    if valid is not None:
                        yield valid
                if advance is not None:
                    advance(source.size * batch.num_rows // total)
    except (pyarrow.ArrowException, OSError) as e:
        raise UserError(
            f"{source.path} is truncated, damaged or no parquet file ({str(e).splitlines()[0]}); "
            "fetch or make it again"
        ) from e
    except UnicodeDecodeError as e:
        raise UserError(
            f"{source.path}, row {row_number + 1}: {options.text_column!r} is not UTF-8"
        ) from e


def _batches(file: Any, column: str) -> Iterator[Any]:
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        chunks = (group.column(i) for i in range(group.num_columns))
        size = sum(
            c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] == column
        )
        yield from file.iter_batches(
            batch_size=rows_at_once(size, group.num_rows), row_groups=[number], columns=[column]
        )


def rows_at_once(size: int, rows: int) -> int:
    """Rows of a row group that are read together. size: unpacked bytes of the column in this group.

    In a group of up to BATCH_BYTES so few that each might be as long as all of it (a dictionary can
    make that of one long text), in a larger one by the mean length: reading costs 11 us a batch, so
    there is no need for many short rows at once.
    """
    few = BATCH_BYTES // max(size, 1) if size <= BATCH_BYTES else USUAL_BATCH_BYTES * rows // size
    return min(max(few, 1), MAX_ROWS)


def _must_be_no_bomb(source: Source, metadata: Any) -> None:
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * source.size:
        raise UserError(
            f"{source.path} unpacks to more than {BOMB_RATIO} times its size: this is not text; "
            "leave it out"
        )


def _of_dataset(source: Source, options: PrepareConfig, counts: Counter[str]) -> Iterator[str]:
    rows = _open_dataset(source, options)
    number = 0
    try:
        for row in rows:
            number += 1
            where = f"data set {source.name}, row {number}"
            if options.text_column not in row:
                raise _no_column(where, options, row)
            text = _valid(row[options.text_column], where, options, counts)
            if text is not None:
                yield text
    except UserError:
        raise
    # Every reader of `datasets` has exceptions of its own; all mean that this row cannot be had.
    except Exception as e:
        raise UserError(
            f"data set {source.name} cannot be read after row {number} ({type(e).__name__}: "
            f"{_one_line(e)})"
        ) from e


def _open_dataset(source: Source, options: PrepareConfig) -> Any:
    try:
        import datasets
    except ImportError as e:
        hint = (
            "no such file or folder, and as a data set of the Hub it"
            if not source.path.name
            else "it"
        )
        raise UserError(
            f"{source.hub}: {hint} needs `datasets`: pip install 'electrify[data]'"
        ) from e
    name, _, config = source.hub.partition(":")
    try:
        return datasets.load_dataset(
            name, config or None, split=options.dataset_split, streaming=True
        )
    except (
        Exception
    ) as e:  # see above: not found, no network, no such configuration or split each have their own
        raise UserError(
            f"{name!r} is neither a file or folder here nor a data set that can be reached"
            f" (configuration {config or 'default'}, split {options.dataset_split}; "
            f"{type(e).__name__}: {_one_line(e)})"
        ) from e


def _one_line(e: Exception) -> str:
    return " ".join(str(e).split())[:300]
