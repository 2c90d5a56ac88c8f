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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import zstandard

from ..errors import UserError, failing_as, need

A = TypeVar("A")
CHUNK = 1 << 20
# Bytes that are decompressed at once. They may unpack to thousands of times their size.
_BITE = 1 << 12
# What unpacks one member: `decompress`, `eof` and `unused_data`. Each verifies the checksum and the
# length that its format has.
_MEMBERS: dict[str, Callable[[], Any]] = {
    ".gz": partial(zlib.decompressobj, wbits=31),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ),
    ".zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
COMPRESSIONS = tuple(_MEMBERS)
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})
NOT_UTF8 = "is not UTF-8. Convert it, or let `prepare` replace or skip it with encoding_errors"
"""What is said behind the place of text in another encoding."""
Advance = Callable[[int], None] | None
"""Called with the bytes of the file itself that were read."""


def gathered(
    items: Iterable[A], size_of: Callable[[A], int], size: int, number: int | None = None
) -> Iterator[list[A]]:
    """The items in order, in lists that end when they have this size in all, or this many."""
    batch: list[A] = []
    held = 0
    for item in items:
        batch.append(item)
        held += size_of(item)
        if held >= size or len(batch) == number:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


# ------------------------------------------------------------------ bytes


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
    kind, before = compression_of(path), 0
    try:
        with path.open("rb") as raw:
            pieces = _unpacked(raw, kind, path) if kind else iter(partial(raw.read, CHUNK), b"")
            for some in gathered(pieces, len, CHUNK):
                if advance is not None:
                    advance(raw.tell() - before)
                    before = raw.tell()
                yield b"".join(some)
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e.strerror or e}") from e


def _unpacked(raw: IO[bytes], kind: str, path: Path) -> Iterator[bytes]:
    """The content of all members. Raises UserError if any byte of the file is not part of a whole
    member."""
    rest, number = raw.read(_BITE), 0
    while rest or not number:
        number += 1
        member = _MEMBERS[kind]()
        where = f"part {number}; fetch or make it again"
        while not member.eof:
            rest = rest or raw.read(_BITE)
            need(bool(rest), f"{path} is truncated: the compressed data end too early in {where}")
            with failing_as(f"{path} is damaged or not a {kind} file, in {where}"):
                piece = member.decompress(rest)
            rest = b""
            yield piece
        rest = member.unused_data or raw.read(_BITE)


# ------------------------------------------------------------------ text


def decoded(chunks: Iterable[bytes], shown: str | Path, *, errors: str = "strict") -> Iterator[str]:
    """The chunks as text, without byte order mark and with \\n for every kind of newline.

    errors: what Python is to make of bytes that are not UTF-8; `strict` raises UserError with their
    line. So does a beginning that is not text.
    """
    utf8 = codecs.getincrementaldecoder("utf-8-sig")(errors)
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    line = 1
    try:
        for number, raw in enumerate(chunks):
            if number == 0:
                head = raw[: 1 << 16]
                control = len(head) - len(head.translate(None, _CONTROL))
                # A few stray NULs happen in text; one byte in a hundred does not.
                fact = f"{shown} is a binary file, or text in UTF-16 ({control} control characters "
                fact += f"in its first {len(head)} bytes)"
                is_text = control <= 4 or control * 100 <= len(head)
                need(is_text, fact, "leave it out, or convert it to UTF-8")
            chunk = decoder.decode(raw)
            line += chunk.count("\n")
            yield chunk
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as e:
        line += len((e.object[: e.start] + b".").splitlines()) - 1
        raise UserError(f"{shown}, line {line}, {NOT_UTF8}") from None


def text_chunks(path: Path, advance: Advance = None, *, errors: str = "strict") -> Iterator[str]:
    """The text of a file in chunks, see `decoded`."""
    return decoded(read_chunks(path, advance=advance), path, errors=errors)


def read_text(path: str | Path) -> str:
    """The text of a small file. Raises UserError."""
    return "".join(text_chunks(Path(path)))
