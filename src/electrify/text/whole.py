"""A small text as a whole: a file of examples, a text to judge. Corpora are read in pieces, see decoding.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files.reading import FileError, json_of
from .streams import must_be_file


def read_text(path: str | Path, *, name: str | None = None) -> str:
    """A UTF-8 file without its byte-order mark. Raises UserError where it is missing, binary or another encoding."""
    shown = name or str(path)
    must_be_file(Path(path))
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


def lines_of(text: str) -> list[str]:
    """Split at line feeds only: str.splitlines would cut at characters that texts may hold."""
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def json_rows(path: str | Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of JSON lines that is not blank. Raises UserError naming file and line."""
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        try:
            row = json_of(line, Path(path))
        except FileError as e:
            raise UserError(f"{path}, line {number}: broken JSON ({e.why.removeprefix('is not JSON (').removesuffix(')')})") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: not a JSON object")
        yield number, row
