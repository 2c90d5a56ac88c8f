"""Bytes of a file, decompressed as a stream, and the text in them. An archive that is damaged or
ends too early is an error, never a shorter corpus.

A compressed file may hold many members, one after the other: .gz calls them members, .bz2 and .xz
streams, .zst frames. Python's own BZ2File and LZMAFile end without an error if a later stream is
damaged, and so does zstandard's decompressor if the last frame is truncated. So this module takes
the members apart, and every byte of the file must belong to one. Everything that the formats allow
is read: empty members, skippable frames of zstandard, padding of xz (zeros, a multiple of four).
Zeros after a gzip member, with which tapes used to be filled up, are refused, because they look
like a member that a file system has lost.

Two faults cannot be detected: a file that was cut exactly between two members, because it is a
valid archive with fewer members; and what `has_checksum` describes.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import UserError
from ..progress import say

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
CHUNK = 1 << 20
# Bytes that are decompressed at once. They may unpack to thousands of times their size.
_BITE = 1 << 12
# The longest header of a frame of zstandard; the flags of an .xz stream are bytes 6 and 7.
_HEAD = 18
# Bytes of the smallest .xz stream, an empty one: fewer zeros at the end cannot be a lost stream.
_SMALLEST_XZ = 32
AGAIN = "fetch or make it again"
UNCHECKED = (
    "packed without checksum, so a changed bit may pass for text. Pack with `xz -C crc64` or "
    "`zstd --check`"
)
BOM = b"\xef\xbb\xbf"
_UTF_16 = "UTF-16 text. Convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`"
_UTF_32 = "UTF-32 text. Convert it to UTF-8, for example with `iconv -f UTF-32 -t UTF-8`"
_MAGIC = {
    b"\x1f\x8b": "gzip data. Give it the ending .gz",
    b"\xfd7zXZ\x00": "xz data. Give it the ending .xz",
    b"\x28\xb5\x2f\xfd": "zstandard data. Give it the ending .zst",
    b"BZh9": "bzip2 data. Give it the ending .bz2",
    b"\xff\xfe\0\0": _UTF_32,
    b"\0\0\xfe\xff": _UTF_32,
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"%PDF-": "a PDF; extract its text first",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"PAR1": "a parquet file. Give it the ending .parquet",
}
_CONTROL = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})
_HALF = re.compile("[\ud800-\udfff]")
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
            before = 0
            for chunk in _joined(pieces):
                if advance is not None:
                    now = raw.tell()
                    advance(now - before)
                    before = now
                yield chunk
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e.strerror or e}") from e


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    ready: list[bytes] = []
    size = 0
    for piece in pieces:
        ready.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(ready)
            ready, size = [], 0
    if size:
        yield b"".join(ready)


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
    if not rest:
        raise UserError(f"{path} is empty: a {kind} file of 0 bytes is truncated; {AGAIN}")
    number = 0
    told = not is_checked(kind, rest)  # of the first, `has_checksum` tells
    while rest:
        number += 1
        part = f" in part {number}" if number > 1 else ""
        if not told and not is_checked(kind, rest):
            told = True
            say(f"{path}: part {number} is {UNCHECKED}")
        member = _member(kind)
        while not member.eof:
            rest = rest or raw.read(_BITE)
            if not rest:
                raise UserError(
                    f"{path} is truncated: the compressed data end too early{part}; {AGAIN}"
                )
            try:
                piece = member.decompress(rest)
            except MemoryError:
                raise
            # OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError: each library has its own
            # exception, and all of them mean bad data.
            except Exception as e:
                raise _damaged(path, kind, f"{e}{part}") from e
            rest = b""
            if piece:
                yield piece
        rest = member.unused_data
        if kind == ".xz":
            rest = _behind_padding(raw, rest, path, number + 1)
        if len(rest) < _HEAD:
            rest += raw.read(_BITE)


def _behind_padding(raw: IO[bytes], rest: bytes, path: Path, number: int) -> bytes:
    """What was read of an .xz file after the zeros at the current position."""
    zeros = 0
    while rest := rest or raw.read(_BITE):
        left = rest.lstrip(b"\0")
        zeros += len(rest) - len(left)
        rest = left
        if left:
            break
    if zeros % 4:
        fact = f"{zeros} zeros before part {number} are not padding, which comes in fours"
        raise _damaged(path, ".xz", fact)
    if not rest and zeros >= _SMALLEST_XZ:
        say(
            f"{path} ends with {zeros} bytes of zeros: padding, or the place of a part that was "
            "lost; `xz -l` and its source tell"
        )
    return rest


def _damaged(path: Path, kind: str, why: str) -> UserError:
    return UserError(f"{path} is damaged or not a {kind} file ({why}); {AGAIN}")


def is_checked(kind: str, head: bytes) -> bool:
    """Whether the member that begins so has a checksum; True where it is not a member."""
    if kind == ".xz" and head.startswith(b"\xfd7zXZ\0"):
        return len(head) < 8 or head[7] & 0x0F != lzma.CHECK_NONE
    if kind == ".zst" and head.startswith(b"\x28\xb5\x2f\xfd"):
        return len(head) < 5 or bool(head[4] & 0x04)
    return True


def has_checksum(path: Path) -> bool:
    """Whether damage inside an archive can be noticed; True if the file is not an archive. Judged
    by its first member: .xz and .zst may lack a checksum, .gz and .bz2 may not. Reading tells about
    later members.

    Without a checksum, a flipped bit in .xz or .zst is noticed only if the data cannot be unpacked
    any more; otherwise it changes the text.
    """
    kind = compression_of(path)
    if kind not in (".xz", ".zst") or not path.is_file():
        return True
    with path.open("rb") as raw:
        return is_checked(kind, raw.read(_HEAD))


# ------------------------------------------------------------------ text


def text_chunks(path: Path, advance: Advance = None) -> Iterator[bytes]:
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
            chunk = chunk.removeprefix(BOM)
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
        yield held.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def must_be_text(path: Path, chunk: bytes) -> None:
    """Raises UserError, saying what the file is, if its beginning shows that it is not UTF-8
    text."""
    for magic, what in _MAGIC.items():
        if chunk.startswith(magic):
            holds = "holds, unpacked," if compression_of(path) else "is"
            raise UserError(f"{path} {holds} {what}")
    head = chunk[: 1 << 16]
    control = len(head) - len(head.translate(None, _CONTROL))
    # A few stray NULs happen in text; one byte in a hundred does not.
    if control > 4 and control * 100 > len(head):
        raise UserError(
            f"{path} is a binary file ({control} control characters in its first {len(head)} "
            "bytes). Leave it out"
        )


def read_text(path: str | Path) -> str:
    """A small text as a whole, without its byte order mark. Raises UserError if the file is
    missing, binary or in another encoding."""
    return decoded(b"".join(read_chunks(Path(path))), str(path))


def decoded(data: bytes, shown: str) -> str:
    """Bytes as text. Raises UserError for binary data and for other encodings than UTF-8, with the
    line."""
    zero = data.find(b"\0")
    if zero >= 0:
        line = data.count(b"\n", 0, zero) + 1
        raise UserError(f"{shown}, line {line}: a zero byte; this is a binary file, not UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        byte = f"0x{data[e.start]:02x}"
        raise UserError(
            f"{shown}, line {line}: not UTF-8 (byte {byte}). Convert the file to UTF-8"
        ) from None


def whole(text: str, errors: str, counts: Counter[str], where: Callable[[], str]) -> str | None:
    """A text by the policy for what is no character: bytes that are not UTF-8, which are halves of
    surrogate pairs here, and others, which JSON may hold. None if it is to be skipped.

    Args:
        errors: strict, replace or skip.
        counts: Receives encoding_errors.
        where: The place, for the message.

    Raises UserError under `strict`.
    """
    try:
        text.encode()
        return text
    except UnicodeEncodeError as e:
        if errors == "strict":
            raise UserError(
                f"{where()} is not UTF-8. Convert the file, or choose encoding_errors replace or "
                "skip"
            ) from e
    counts["encoding_errors"] += 1
    if errors == "skip":
        return None
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
