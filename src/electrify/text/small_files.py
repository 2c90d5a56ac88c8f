"""Reads a small text as a whole: a file of examples, or a text to judge. Corpora are read in
pieces, see decoding.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from .members import CHUNK

MB = 1 << 20
# Limit for a text to judge, or for the pairs of a paradigm: more than anybody judges in one piece,
# and a tenth of a usual machine's memory.
MAX_TEXT_BYTES = 1 << 28


def read_text(path: str | Path) -> str:
    """A UTF-8 file without its byte-order mark. Raises UserError if it is missing, binary or in
    another encoding."""
    shown = str(path)
    try:
        with Path(path).open("rb") as f:
            data = joined(iter(lambda: f.read(CHUNK), b""), shown, limit=MAX_TEXT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{shown}: no such file") from None
    except OSError as e:
        raise UserError(f"{shown}: cannot be read ({e.strerror})") from e
    return decode(data, shown)


def joined(chunks: Iterable[bytes], shown: str, *, limit: int, longest: int | None = None) -> bytes:
    """All chunks, joined. limit: bytes at most; longest: bytes of a line at most. Raises UserError
    as soon as a chunk shows that this is not a text of that size, so that only the beginning of a
    sparse file is ever held."""
    parts: list[bytes] = []
    size = lines = line = 0
    for chunk in chunks:
        if b"\0" in chunk:
            raise UserError(_zero_byte(shown, lines + chunk[: chunk.index(0)].count(10) + 1))
        size += len(chunk)
        if size > limit:
            raise UserError(
                f"{shown} has more than {limit // MB:,} MB, which is more than is read as a whole; "
                "split it, or take a part"
            )
        first = chunk.find(b"\n")
        last = chunk.rfind(b"\n")
        line += len(chunk) if first < 0 else first
        if longest is not None and line > longest:
            raise UserError(
                f"{shown}, line {lines + 1} is longer than {longest // MB} MB; is this one example "
                "a line?"
            )
        line = line if first < 0 else len(chunk) - last - 1
        lines += chunk.count(b"\n")
        parts.append(chunk)
    return b"".join(parts)


def _zero_byte(shown: str, line: int) -> str:
    return f"{shown}, line {line}: a zero byte; this is a binary file, not UTF-8 text"


def decode(data: bytes, shown: str) -> str:
    """Bytes as text. Raises UserError for binary data and for other encodings than UTF-8, with the
    line."""
    if b"\0" in data:
        raise UserError(_zero_byte(shown, data[: data.index(0)].count(10) + 1))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UserError(
            f"{shown}, line {data[: e.start].count(10) + 1}: not UTF-8 (byte "
            f"0x{data[e.start]:02x}); convert the file to UTF-8"
        ) from None


def must_be_characters(text: str, name: str) -> None:
    """Raises UserError for a text with half a surrogate pair, as JSON may hold."""
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise UserError(f"{name} holds half a surrogate pair, which is not a character")


def lines_of(text: str) -> list[str]:
    """The lines, split at line feeds only: str.splitlines would also split at characters that may
    occur in texts."""
    if "\n" not in text:  # the line ends of old machines
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def json_rows(path: str | Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of JSON lines that is not blank. Raises UserError naming
    file and line."""
    return json_lines(path, lines_of(text))


def json_lines(path: str | Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same of lines that are read one after the other."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise UserError(f"{path}, line {number}: broken JSON ({e})") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: not a JSON object")
        yield number, row
