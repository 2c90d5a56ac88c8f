"""A small text as a whole: a file of examples, a text to judge. Corpora are read in pieces, see decoding.py."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserError


def read_text(path: str | Path, *, name: str | None = None) -> str:
    """A UTF-8 file without its byte-order mark. Raises UserError where it is missing, binary or another encoding."""
    shown = name or str(path)
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{shown}: no such file") from None
    except OSError as e:
        raise UserError(f"{shown}: cannot be read ({e.strerror})") from e
    return decode(data, shown)


def decode(data: bytes, shown: str) -> str:
    """Bytes as text. Raises UserError for binary data and for other encodings than UTF-8, with the line."""
    if b"\0" in data:
        raise UserError(f"{shown}, line {data[: data.index(0)].count(10) + 1}: a zero byte; this is a binary file, not UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UserError(f"{shown}, line {data[: e.start].count(10) + 1}: not UTF-8 (byte 0x{data[e.start]:02x}); convert the file to UTF-8") from None


def write_atomically(path: Path, text: str) -> None:
    """The whole file or none of it."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
