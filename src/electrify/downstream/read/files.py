"""A file of examples as one text, compressed or not, and the ending that tells its layout."""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from ...text.decoding import must_be_text
from ...text.streams import compression_of, read_chunks
from ...text.whole import decode


def whole(path: str | Path) -> str:
    """The text of a file, also of .gz, .bz2, .xz and .zst. Raises UserError where it is missing, truncated, binary or another encoding than UTF-8."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file")
    data = b"".join(read_chunks(path))
    must_be_text(path, data)
    return decode(data, str(path))


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()
