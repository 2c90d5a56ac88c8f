"""A file of examples as one text, compressed or not, and the file ending that tells its layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import UserError
from ...text.decoding import must_be_text
from ...text.records import MAX_LINE
from ...text.small_files import decode, joined
from ...text.streams import compression_of, read_chunks

MAX_EXAMPLES_BYTES = 1 << 32
"""Unpacked; the examples of a file are held in memory, and the largest published sets of labelled
texts have three quarters of that."""


def whole(path: str | Path) -> str:
    """The text of a file, also of .gz, .bz2, .xz and .zst. Raises UserError where it is missing,
    truncated, binary or another encoding than UTF-8."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file")
    longest = MAX_LINE if ending_of(path) != ".json" else None  # SQuAD's files are one line
    data = joined(_recognised(path), str(path), limit=MAX_EXAMPLES_BYTES, longest=longest)
    return decode(data, str(path))


def _recognised(path: Path) -> Iterator[bytes]:
    """The chunks of a file. Raises UserError where the first says that it is not text."""
    chunks = read_chunks(path)
    first = next(chunks, b"")
    must_be_text(path, first)
    yield first
    yield from chunks


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()
