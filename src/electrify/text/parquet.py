"""Texts of parquet files, read in pieces of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UserError
from .options import PrepareConfig
from .row import Advance, column_of, no_column, valid_text
from .source import Source

# How much is read at once.
BATCH_BYTES = 1 << 26
"""Limit in bytes, according to the file's metadata."""
USUAL_BATCH_BYTES = 1 << 16
"""Aim in bytes for rows of usual length."""
MAX_ROWS = 256


def of_parquet(
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
    column = column_of(source, options)
    try:
        # Without a buffer in advance, which would hold all of a row group's bytes.
        with parquet.ParquetFile(
            source.path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        ) as file:
            names = file.schema_arrow.names
            if column not in names:
                raise no_column(str(source.path), column, names)
            if names.count(column) > 1:
                raise UserError(f"{source.path}: the column {column!r} occurs twice")
            total = max(file.metadata.num_rows, 1)
            for batch in _batches(file, column):
                for text in batch.column(0).to_pylist():
                    row_number += 1
                    where = f"{source.path}, row {row_number}"
                    valid = valid_text(text, where, column, options, counts)
                    if valid is not None:
                        yield valid
                if advance is not None:
                    advance(source.size * batch.num_rows // total)
    except (pyarrow.ArrowException, OSError) as e:
        raise UserError(
            f"{source.path} is truncated, damaged or not a parquet file "
            f"({str(e).splitlines()[0]}); fetch or make it again"
        ) from e
    except UnicodeDecodeError as e:
        raise UserError(f"{source.path}, row {row_number + 1}: {column!r} is not UTF-8") from e


def columns_of(path: Path) -> list[str]:
    """The columns of a parquet file; none if it cannot be read, which its reader reports."""
    with suppress(Exception):  # not installed, not parquet, damaged
        from pyarrow import parquet

        return parquet.read_schema(path).names
    return []


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
    """The number of rows of a row group that are read together. size: uncompressed bytes of the
    column in this group.

    In a group of up to BATCH_BYTES, the number is so small that each row might be as long as the
    whole group (with a dictionary, one long text can appear in many rows). In a larger group it
    follows from the mean length. Reading costs only 11 us per batch, so batches of few rows do no
    harm.
    """
    few = BATCH_BYTES // max(size, 1) if size <= BATCH_BYTES else USUAL_BATCH_BYTES * rows // size
    return min(max(few, 1), MAX_ROWS)
