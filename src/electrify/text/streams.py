"""Bytes of a file, decompressed in a stream. An archive that ends too early is an error, never a shorter corpus.

The zstandard library reads a cut file as a shorter one without a word, so the end of the last frame is checked here; the others check themselves.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import UserError

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
CHUNK = 1 << 20
# Text that compresses 250-fold beyond a quarter of a gigabyte is no text: a bomb, or one line repeated.
BOMB_BYTES, BOMB_RATIO = 1 << 28, 250


def compression_of(path: Path) -> str:
    """`.gz`, `.bz2`, `.xz`, `.zst`, or "" for none, by the name."""
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def read_chunks(path: Path, *, advance: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """The content of a file, decompressed, in pieces of about 1 MB. `advance` hears of every byte of the file itself that was consumed.

    Raises UserError naming the file where it cannot be read, is truncated, damaged or a decompression bomb.
    """
    kind = compression_of(path)
    must_be_file(path)
    try:
        with path.open("rb") as raw:
            size = path.stat().st_size
            if kind and size == 0:
                raise UserError(f"{path} is empty: a {kind} file of 0 bytes is truncated; fetch or make it again")
            before = written = 0
            for chunk in _decompressed(raw, kind):
                written += len(chunk)
                if kind and written > BOMB_BYTES and written > BOMB_RATIO * size:
                    raise UserError(f"{path} unpacks to more than {BOMB_RATIO} times its size: this is not text; leave it out")
                if advance is not None:
                    now = raw.tell()
                    advance(now - before)
                    before = now
                yield chunk
    except EOFError as e:
        raise UserError(f"{path} is truncated: the compressed data end too early; fetch or make it again") from e
    except (zlib.error, lzma.LZMAError, gzip.BadGzipFile) as e:
        raise UserError(f"{path} is damaged or no {kind} file ({e}); fetch or make it again") from e
    except OSError as e:
        if kind == ".bz2" and e.errno is None:
            raise UserError(f"{path} is damaged or no {kind} file ({e}); fetch or make it again") from e
        raise UserError(f"{path} cannot be read: {e.strerror or e}") from e


def must_be_file(path: Path) -> None:
    """Raises UserError for a pipe or a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is a pipe or a device; write its content to a file first")


def must_lead_somewhere(folder: Path) -> None:
    """Raises UserError where a folder, or one above it, is a link to nothing or to itself."""
    for path in (folder, *folder.parents):
        if path.is_symlink() and not os.path.exists(path):
            raise UserError(f"{path} is a link that leads nowhere; choose another folder")


def _decompressed(raw: IO[bytes], kind: str) -> Iterator[bytes]:
    if kind == ".zst":
        yield from _zstd_frames(raw)
        return
    opened: dict[str, Callable[[IO[bytes]], Any]] = {
        "": lambda f: f,
        ".gz": lambda f: gzip.GzipFile(fileobj=f),
        ".bz2": bz2.BZ2File,
        ".xz": lzma.LZMAFile,
    }
    stream = opened[kind](raw)
    while chunk := stream.read(CHUNK):
        yield chunk


def _zstd_frames(raw: IO[bytes]) -> Iterator[bytes]:
    import zstandard

    # Small bites: zstandard's decompressobj returns all that a bite unpacks to at once, which can be thousands of times its size.
    bite, ready, size = 1 << 12, [], 0
    frame, data, inside = zstandard.ZstdDecompressor().decompressobj(), b"", False
    try:
        while data := data or raw.read(bite):
            ready.append(frame.decompress(data))
            size += len(ready[-1])
            inside, data = not frame.eof, b""
            if frame.eof:
                data = frame.unused_data
                frame = zstandard.ZstdDecompressor().decompressobj()
            if size >= CHUNK:
                yield b"".join(ready)
                ready, size = [], 0
    except zstandard.ZstdError as e:
        raise zlib.error(str(e)) from e
    if inside:
        raise EOFError
    if size:
        yield b"".join(ready)
