"""Bytes of a file, decompressed as a stream. An archive that is damaged or ends too early is an
error, never a shorter corpus; see members.py.

Two faults cannot be detected: a file that was cut exactly between two members, because it is a
valid archive with fewer members; and what `has_checksum` describes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from ..errors import UserError
from ..progress import say
from .members import CHUNK, HEAD, Damaged, Truncated, is_checked, unpacked

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
# Bytes of the smallest .xz stream, an empty one: fewer zeros at the end cannot be a lost stream.
_SMALLEST_XZ = 32


def compression_of(path: Path) -> str:
    """The compression by the file's name: `.gz`, `.bz2`, `.xz`, `.zst`, or "" for none."""
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def read_chunks(path: Path, *, advance: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """The content of a file, decompressed, in pieces of about 1 MB. `advance` is called with the
    number of bytes of the file itself that were consumed.

    Raises UserError, naming the file, if it cannot be read, is truncated or damaged.
    """
    kind = compression_of(path)
    try:
        with path.open("rb") as raw:
            size = os.fstat(raw.fileno()).st_size
            if kind and size == 0:
                raise UserError(
                    f"{path} is empty: a {kind} file of 0 bytes is truncated; fetch or make it "
                    "again"
                )
            before = 0
            for chunk in _content(raw, kind, path):
                if advance is not None:
                    now = raw.tell()
                    advance(now - before)
                    before = now
                yield chunk
    except Truncated as e:
        raise UserError(
            f"{path} is truncated: the compressed data end too early{e}; fetch or make it again"
        ) from e
    except Damaged as e:
        raise UserError(
            f"{path} is damaged or not a {kind} file ({e}); fetch or make it again"
        ) from e
    except OSError as e:
        raise UserError(f"{path} cannot be read: {e.strerror or e}") from e


def _content(raw: IO[bytes], kind: str, path: Path) -> Iterator[bytes]:
    if kind:
        yield from unpacked(
            raw,
            kind,
            padding=lambda zeros: _may_be_lost(path, zeros),
            unchecked=lambda number: _tell_unchecked(path, number),
        )
        return
    while chunk := raw.read(CHUNK):
        yield chunk


def _may_be_lost(path: Path, zeros: int) -> None:
    if zeros >= _SMALLEST_XZ:
        say(
            f"{path} ends with {zeros} bytes of zeros: padding, or the place of a part that was "
            "lost; `xz -l` and its source tell"
        )


def _tell_unchecked(path: Path, number: int) -> None:
    """The first member is judged before anything is read (`has_checksum`)."""
    if number > 1:
        say(
            f"{path}: part {number} is packed without checksum, so a changed bit may pass for "
            "text; pack with `xz -C crc64` or `zstd --check`"
        )


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
    try:
        with path.open("rb") as raw:
            head = raw.read(HEAD)
    except OSError:
        return True  # read_chunks reports it
    return is_checked(kind, head)
