"""Bytes -> text: newlines, byte order marks, files that are not text, and the policy for bytes that
are not UTF-8."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..errors import UserError
from .streams import compression_of, read_chunks

# In characters (in bytes while a file is being cut). It bounds memory; no work in the usual corpora
# comes near it.
MAX_DOCUMENT = 1 << 23
_UTF_16 = "UTF-16 text; convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`"
_UTF_32 = "UTF-32 text; convert it to UTF-8, for example with `iconv -f UTF-32 -t UTF-8`"
_MAGIC = {
    b"\x1f\x8b": "gzip data; give it the ending .gz",
    b"\xfd7zXZ\x00": "xz data; give it the ending .xz",
    b"\x28\xb5\x2f\xfd": "zstandard data; give it the ending .zst",
    b"BZh9": "bzip2 data; give it the ending .bz2",
    b"\xff\xfe\0\0": _UTF_32,
    b"\0\0\xfe\xff": _UTF_32,
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"%PDF-": "a PDF; extract its text first",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"PAR1": "a parquet file; give it the ending .parquet",
}


def text_chunks(path: Path, advance: Callable[[int], None] | None) -> Iterator[bytes]:
    """The chunks of a text file, without byte order mark and with \\n for every kind of newline.
    Raises UserError for a file that is not text."""
    held = b""
    first = True
    for raw in read_chunks(path, advance=advance):
        chunk = held + raw
        if first:
            if len(chunk) < 8:  # enough to recognise the kind of file
                held = chunk
                continue
            must_be_text(path, chunk)
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            first = False
        held = b""
        if b"\r" in chunk:
            if chunk.endswith(b"\r"):
                chunk = chunk[:-1]
                held = b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield chunk
    if held:
        if first:
            must_be_text(path, held)
        yield held.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def must_be_text(path: Path, chunk: bytes) -> None:
    """Raises UserError, saying what the file is, if its beginning shows that it is not UTF-8
    text."""
    for magic, what in _MAGIC.items():
        if chunk.startswith(magic):
            packed = compression_of(path)
            if packed and " data; give it" in what:
                raise UserError(
                    f"{path} was packed twice: what its {packed} unpacks to is "
                    f"{what.partition(' data')[0]} data again; unpack it once"
                )
            if packed:
                raise UserError(f"{path} holds, unpacked, {what}")
            raise UserError(f"{path} is {what}")
    head = chunk[: 1 << 16]
    control = len(head) - len(
        head.translate(None, bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}))
    )
    # A few stray NULs happen in text; one byte in a hundred does not.
    if control > 4 and control * 100 > len(head):
        raise UserError(
            f"{path} is a binary file ({control} control characters in its first {len(head)} "
            "bytes); leave it out"
        )


def split(
    chunks: Iterable[bytes], separator: re.Pattern[bytes] | None, counts: Counter[str]
) -> Iterator[bytes]:
    """The pieces between separators; a piece longer than MAX_DOCUMENT is cut at white space, or
    between characters if it has no white space."""
    rest = b""
    for chunk in chunks:
        *whole, rest = separator.split(rest + chunk) if separator else (rest + chunk,)
        yield from whole
        while len(rest) > MAX_DOCUMENT:
            counts["cuts"] += 1
            cut = max(rest.rfind(b" ", 1, MAX_DOCUMENT), rest.rfind(b"\n", 1, MAX_DOCUMENT))
            if cut < 1:
                cut = MAX_DOCUMENT
                # The place is inside a UTF-8 character.
                while cut > MAX_DOCUMENT - 4 and rest[cut] & 0xC0 == 0x80:
                    cut -= 1
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def decode(raw: bytes, errors: str, counts: Counter[str], where: Callable[[], str]) -> str | None:
    """Bytes as text by the encoding policy; None if the document is to be skipped. Raises UserError
    under `strict`."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as e:
        if errors == "strict":
            raise UserError(
                f"{where()} is not UTF-8 ({e.reason}); convert the file, or choose encoding_errors "
                "replace or skip"
            ) from e
    counts["encoding_errors"] += 1
    return raw.decode("utf-8", "replace") if errors == "replace" else None


def first_bad_line(path: Path) -> str:
    """`FILE, line N`: the place of the first byte that is not UTF-8. Reads the file once more."""
    number = 1
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in text_chunks(path, None):
            number += decoder.decode(chunk).count("\n")
    except UnicodeDecodeError as e:
        number += e.object[: e.start].count(b"\n")
    return f"{path}, line {number},"
