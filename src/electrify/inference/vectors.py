"""Vectors -> .npy or .parquet, block by block, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from ..errors import UserError
from ..files import written
from .options import EmbedConfig
from .output import as_text, must_fit, must_go_together
from .source import Head, Item


class Sink(Protocol):
    """Takes items with their vectors, [N, D] in float32."""

    def write(self, items: list[Item], vectors_ND: np.ndarray) -> None: ...


@contextmanager
def vector_sink(options: EmbedConfig, head: Head, *, width: int) -> Iterator[Sink]:
    """The file is there when the block ends without an error. Raises UserError if .parquet is
    wanted and pyarrow is missing."""
    path = Path(options.output_file)
    with written(path) as part, part.open("wb") as stream:
        if path.suffix.lower() == ".npy":
            rows = Npy(stream, width=width)
            yield rows
            rows.finish()
        else:
            with parquet_rows(stream, head, width=width) as table:
                yield table


class Npy:
    """An array of numpy, [N, D] in float32. numpy's header has room for any number of rows, so it
    is written again when this number is known."""

    def __init__(self, stream: IO[bytes], *, width: int) -> None:
        self.stream = stream
        self.width = width
        self.rows = 0
        self._header()
        self._begin = stream.tell()

    def write(self, items: list[Item], vectors_ND: np.ndarray) -> None:
        self.stream.write(np.ascontiguousarray(vectors_ND, dtype="<f4").tobytes())
        self.rows += len(items)

    def finish(self) -> None:
        self.stream.seek(0)
        self._header()
        assert self.stream.tell() == self._begin
        self.stream.seek(0, 2)

    def _header(self) -> None:
        shape = (self.rows, self.width)
        np.lib.format.write_array_header_1_0(
            self.stream, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )


@contextmanager
def parquet_rows(stream: IO[bytes], head: Head, *, width: int) -> Iterator[Sink]:
    """A table with the columns of the first row as text, and `embedding`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as e:
        raise UserError("writing .parquet needs pyarrow: pip install 'electrify[data]'") from e
    must_go_together(head, "write .npy, or run a command for each", fewer=True)
    if "embedding" in head.columns:
        raise UserError(f"{head.path} has a column 'embedding' already; rename it, or write .npy")
    kind = pyarrow.list_(pyarrow.float32(), width)
    fields = [(name, pyarrow.string()) for name in head.columns]
    schema = pyarrow.schema([*fields, ("embedding", kind)])
    with parquet.ParquetWriter(stream, schema) as writer:
        yield _Table(pyarrow, writer, schema, head.columns)


class _Table:
    def __init__(self, pyarrow: Any, writer: Any, schema: Any, columns: tuple[str, ...]) -> None:
        self.pyarrow = pyarrow
        self.writer = writer
        self.schema = schema
        self.columns = columns

    def write(self, items: list[Item], vectors_ND: np.ndarray) -> None:
        pa = self.pyarrow
        for item in items:
            must_fit(item, self.columns, "write .npy")
        texts = [
            pa.array([_text(item.columns.get(name)) for item in items], pa.string())
            for name in self.columns
        ]
        flat = pa.array(np.ascontiguousarray(vectors_ND, dtype=np.float32).reshape(-1))
        vectors = pa.FixedSizeListArray.from_arrays(flat, vectors_ND.shape[1])
        self.writer.write_table(pa.table([*texts, vectors], schema=self.schema))


def _text(value: Any) -> str | None:
    return None if value is None else as_text(value)
