"""The members of a compressed file: .gz calls them members, .bz2 and .xz streams, .zst frames. A
file may hold many, one after the other.

Python's own BZ2File and LZMAFile end without an error if a later stream is damaged, and so does
zstandard's decompressor if the last frame is truncated. So this module takes the members apart, and
every byte of the file must belong to one. Everything that the formats allow is read: empty members,
several members, skippable frames of zstandard, padding of xz (zeros, a multiple of four). Zeros
after a gzip member, with which tapes used to be filled up, are refused, because they look like a
member that a file system has lost.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import IO, Protocol

CHUNK = 1 << 20
# zstandard returns everything that a piece of input unpacks to at once, which can be thousands of
# times its size; the other libraries respect CHUNK.
_BITE = 1 << 16
_ZSTD_BITE = 1 << 12
# The longest header of a frame of zstandard; the flags of an .xz stream are bytes 6 and 7.
HEAD = 18


class Damaged(Exception):  # noqa: N818 - read_chunks makes a sentence of it
    """The data is not what a compressor of this format writes."""


class Truncated(Exception):  # noqa: N818 - see above
    """The file ends inside a member."""


class Member(Protocol):
    """The interface of bz2.BZ2Decompressor and lzma.LZMADecompressor: unpacks one member."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


class _Inflater:
    """A gzip member. zlib verifies its checksum and its length."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self._more = False

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._more

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        out = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        self._more = bool(self._zlib.unconsumed_tail) or len(out) == max_length
        return out


class _Frame:
    """A zstandard frame, which may be a skippable one. Returns everything that its input unpacks
    to."""

    needs_input = True

    def __init__(self) -> None:
        import zstandard

        self._zstd = zstandard.ZstdDecompressor().decompressobj()

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        return self._zstd.decompress(data)


def _opener(kind: str) -> Callable[[], Member]:
    makers: dict[str, Callable[[], Member]] = {
        ".gz": _Inflater,
        ".bz2": bz2.BZ2Decompressor,
        ".xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ),
        ".zst": _Frame,
    }
    return makers[kind]


def is_checked(kind: str, head: bytes) -> bool:
    """Whether the member that begins so has a checksum; True where it is not a member."""
    if kind == ".xz":
        return (
            not head.startswith(b"\xfd7zXZ\0") or len(head) < 8 or head[7] & 0x0F != lzma.CHECK_NONE
        )
    if kind == ".zst":
        return not head.startswith(b"\x28\xb5\x2f\xfd") or len(head) < 5 or bool(head[4] & 0x04)
    return True


def unpacked(
    raw: IO[bytes], kind: str, *, padding: Callable[[int], None], unchecked: Callable[[int], None]
) -> Iterator[bytes]:
    """The content of all members in pieces of about CHUNK bytes. padding: called with the number of
    zeros at the end of an .xz file; unchecked: with that of the first member without checksum.

    Raises Damaged or Truncated if any byte of the file is not part of a whole member (from the
    second member on, with its number), and OSError if the file cannot be read.
    """
    ready: list[bytes] = []
    size = 0
    for piece in _pieces(raw, kind, padding, unchecked):
        ready.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(ready)
            ready = []
            size = 0
    if size:
        yield b"".join(ready)


def _pieces(
    raw: IO[bytes], kind: str, padding: Callable[[int], None], unchecked: Callable[[int], None]
) -> Iterator[bytes]:
    opener = _opener(kind)
    number = 0
    rest = b""
    all_checked = True
    while True:
        zeros = 0
        if kind == ".xz" and number:
            rest, zeros = _without_zeros(raw, rest)
        if len(rest) < HEAD:
            rest += raw.read(_ZSTD_BITE if kind == ".zst" else _BITE)
        number += 1
        if all_checked and not is_checked(kind, rest[:HEAD]):
            all_checked = False
            unchecked(number)
        if zeros % 4:
            raise Damaged(
                f"{zeros} zeros before part {number} are not padding, which comes in fours"
            )
        if not rest and number > 1:
            padding(zeros)
            return
        rest = yield from _one(opener(), raw, kind, rest, number)


def _without_zeros(raw: IO[bytes], rest: bytes) -> tuple[bytes, int]:
    """Skips zeros at the current position. Returns the data after them, and their number."""
    zeros = 0
    while rest := rest or raw.read(_BITE):
        left = rest.lstrip(b"\0")
        zeros += len(rest) - len(left)
        if left:
            return left, zeros
        rest = b""
    return b"", zeros


def _one(
    member: Member, raw: IO[bytes], kind: str, data: bytes, number: int
) -> Generator[bytes, None, bytes]:
    """Yields the pieces of one member, which begins with `data`. Returns the data after the member
    that was already read."""
    part = f" in part {number}" if number > 1 else ""
    while not member.eof:
        if member.needs_input and not data:
            data = raw.read(_ZSTD_BITE if kind == ".zst" else _BITE)
            if not data:
                raise Truncated(part)
        try:
            piece = member.decompress(data, CHUNK)
        except MemoryError:
            raise
        # OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError: each library has its own
        # exception, and all of them mean bad data
        except Exception as e:
            raise Damaged(f"{e}{part}") from e
        data = b""
        if piece:
            yield piece
    return member.unused_data
