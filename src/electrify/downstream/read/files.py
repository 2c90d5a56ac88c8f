"""A file of examples as one text, compressed or not, and the ending that tells its layout."""

from __future__ import annotations

from pathlib import Path

from ...text.decoding import text_chunks
from ...text.streams import compression_of
from ...text.whole import decode, read_text


def whole(path: str | Path) -> str:
    """The text of a file, also of .gz, .bz2, .xz and .zst. Raises UserError where it is missing, truncated, binary or another encoding than UTF-8."""
    return decode(b"".join(text_chunks(Path(path), None)), str(path)) if compression_of(Path(path)) else read_text(path)


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()
