"""Checks, before anything is written, that the disk of a corpus has enough space for what `prepare`
writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from ..config.prepare import PrepareConfig
from ..errors import UserError
from .placed import UNFINISHED
from .source import Source
from .streams import compression_of

# The most text that a compressed file holds per byte in practice; and the least bytes of text per
# token on average.
_UNPACKED = {"": 1.0, ".gz": 3.5, ".bz2": 4.5, ".xz": 4.5, ".zst": 4.0}
_BYTES_PER_TOKEN = 3.0
_SPARE_BYTES = 64 << 20


def must_fit(options: PrepareConfig, sources: list[Source], folder: Path) -> None:
    """Raises UserError if the disk is too small."""
    need = bytes_needed(options, sources)
    room = shutil.disk_usage(_existing(folder)).free
    begun = folder / UNFINISHED
    done = sum(map(_written, (folder, begun, *begun.glob("parts/*"))))
    if need > room + done:
        raise UserError(
            f"{folder} needs about {need >> 20} MB and its disk has {room >> 20} MB left; make "
            "room or choose another disk"
        )


def _written(folder: Path) -> int:
    """Bytes of the files directly in a folder: those that an earlier attempt has written."""
    try:
        with os.scandir(folder) as found:
            return sum(e.stat(follow_symlinks=False).st_size for e in found if e.is_file())
    except OSError:  # there is none, or it is just being changed
        return 0


def bytes_needed(options: PrepareConfig, sources: list[Source]) -> int:
    """A generous estimate of the bytes that the run writes: parts and shards. Data sets on the Hub
    are not counted, because their size is unknown, and nothing is where max_documents says how much
    of the text is taken."""
    if options.max_documents is not None:
        return _SPARE_BYTES
    text = sum(
        s.size * _UNPACKED[compression_of(s.path)] * (3.0 if s.format == "parquet" else 1.0)
        for s in sources
    )
    itemsize = (
        np.dtype("<u2").itemsize
        if options.trains_tokenizer and options.vocab_size <= 1 << 16
        else 4
    )
    single = options.tokenizer in ("character", "byte")
    tokens = text if single else text / _BYTES_PER_TOKEN
    return int(tokens * itemsize * 2) + _SPARE_BYTES


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return folder
