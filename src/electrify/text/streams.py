"""Bytes of a file, decompressed as a stream, and the text in them. An archive that is damaged or
ends too early is an error, never a shorter corpus.

A compressed file may hold many members, one after the other: .gz calls them members, .bz2 and .xz
streams, .zst frames. Python's own BZ2File and LZMAFile end without an error if a later stream is
damaged, and so does zstandard's decompressor if the last frame is truncated. So this module takes
the members apart, and every byte of the file must belong to one. Empty members and skippable frames
of zstandard are read. Zeros behind a member are refused, because they look like one that a file
system has lost.

Two faults cannot be detected: a file that was cut exactly between two members, because it is a
valid archive with fewer members; and a flipped bit in .xz or .zst without checksum, if the data can
still be unpacked.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

from ..errors import UserError, need

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
CHUNK = 1 << 20
# Bytes that are decompressed at once. They may unpack to thousands of times their size.
_BITE = 1 << 12
AGAIN = "fetch or make it again"
_MAGIC = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})
NOT_UTF8 = "is not UTF-8. Convert it, or let `prepare` replace or skip it with encoding_errors"
"""What is said behind the place of text in another encoding."""
Advance = Callable[[int], None] | None
"""Called with the bytes of the file itself that were read."""


def compression_of(path: Path) -> str:
    """The compression by the file's name: `.gz`, `.bz2`, `.xz`, `.zst`, or "" for none."""
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def ending_of(path: str | Path) -> str:
    """`.jsonl` of a.jsonl and of a.jsonl.xz."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def read_chunks(path: Path, *, advance: Advance = None) -> Iterator[bytes]:
    """The content of a file, decompressed, in pieces of about CHUNK bytes.

    Raises UserError, naming the file, if it cannot be read, is truncated or damaged.
    """
    kind = compression_of(path)
    try:
        with path.open("rb") as raw:
            pieces = _unpacked(raw, kind, path) if kind else iter(lambda: raw.read(CHUNK), b"")
            ready = bytearray()
            before = 0
            for piece in chain(pieces, (None,)):
                ready += piece or b""
                if len(ready) >= CHUNK or (piece is None and ready):
                    if advance is not None:
                        advance(raw.tell() - before)
                        before = raw.tell()
                    yield bytes(ready)
                    ready.clear()
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e.strerror or e}") from e


def _member(kind: str) -> Any:
    """What unpacks one member: `decompress`, `eof` and `unused_data`. Each verifies the checksum
    and the length that its format has."""
    if kind == ".gz":
        return zlib.decompressobj(wbits=31)
    if kind == ".bz2":
        return bz2.BZ2Decompressor()
    if kind == ".xz":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _unpacked(raw: IO[bytes], kind: str, path: Path) -> Iterator[bytes]:
    """The content of all members. Raises UserError if any byte of the file is not part of a whole
    member (from the second member on, with its number)."""
    rest = raw.read(_BITE)
    need(bool(rest), f"{path} is empty: a {kind} file of 0 bytes is truncated; {AGAIN}")
    number = 0
    while rest:
        number += 1
        part = f" in part {number}" if number > 1 else ""
        member = _member(kind)
        while not member.eof:
            rest = rest or raw.read(_BITE)
            fact = f"{path} is truncated: the compressed data end too early{part}; {AGAIN}"
            need(bool(rest), fact)
            try:
                piece = member.decompress(rest)
            except MemoryError:
                raise
            # OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError: each library has its own
            # exception, and all of them mean bad data.
            except Exception as e:
                raise UserError(
                    f"{path} is damaged or not a {kind} file ({e}{part}); {AGAIN}"
                ) from e
            rest = b""
            yield piece
        rest = member.unused_data or raw.read(_BITE)


# ------------------------------------------------------------------ text


def text_chunks(path: Path, advance: Advance = None, *, errors: str = "strict") -> Iterator[str]:
    """The chunks of a text file, without byte order mark and with \\n for every kind of newline.

    errors: what Python is to make of bytes that are not UTF-8; `strict` raises UserError with their
    line. So does a file that is not text.
    """
    utf8 = codecs.getincrementaldecoder("utf-8-sig")(errors)
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    line = 1
    try:
        for number, raw in enumerate(read_chunks(path, advance=advance)):
            if number == 0:
                must_be_text(path, raw)
            chunk = decoder.decode(raw)
            line += chunk.count("\n")
            yield chunk
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as e:
        line += len((e.object[: e.start] + b".").splitlines()) - 1
        raise UserError(f"{path}, line {line}, {NOT_UTF8}") from None


def must_be_text(path: Path, chunk: bytes) -> None:
    """Raises UserError, saying what the file is, if its beginning shows that it is not UTF-8
    text."""
    for magic, kind in _MAGIC.items():
        advice = f"convert it to UTF-8, for example with `iconv -f {kind} -t UTF-8`"
        need(not chunk.startswith(magic), f"{path} is {kind} text", advice)
    head = chunk[: 1 << 16]
    control = len(head) - len(head.translate(None, _CONTROL))
    # A few stray NULs happen in text; one byte in a hundred does not.
    need(
        control <= 4 or control * 100 <= len(head),
        f"{path} is a binary file ({control} control characters in its first {len(head)} bytes). "
        "Leave it out, or unpack it if it is an archive",
    )


def read_text(path: str | Path) -> str:
    """A small text as a whole, without its byte order mark. Raises UserError if the file is
    missing, binary or in another encoding."""
    return decoded(b"".join(read_chunks(Path(path))), str(path))


def decoded(data: bytes, shown: str) -> str:
    """Bytes as text. Raises UserError for binary data and for other encodings than UTF-8, with the
    line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise UserError(f"{shown}, line {line}, {NOT_UTF8}") from None
    need("\0" not in text, f"{shown} holds a zero byte; this is a binary file")
    return text
