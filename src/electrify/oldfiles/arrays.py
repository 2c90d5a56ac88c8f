"""Lists of 64-bit numbers in numpy files. The header may claim any number of them, so it is
compared with the size of the file before anything is loaded: otherwise memory could run out."""

from __future__ import annotations

import math
import os
import tokenize
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from ..errors import is_of_memory
from .reading import FileError, open_regular, unreadable

MAX_HEADER = 256  # the header of a list has 118 characters


def mapped_list(path: Path, *, within: Path | None = None) -> np.ndarray:
    """The numbers, memory-mapped. Raises FileError if the file is not such a list to its last
    byte."""
    with open_regular(path, within=within) as stream:
        try:
            numbers = _claimed(stream, path)
            offset = stream.tell()
            size = os.fstat(stream.fileno()).st_size
            if offset + 8 * numbers != size:
                raise FileError(
                    path, f"claims {numbers:,} numbers of 8 bytes and has {size - offset:,} bytes"
                )
            return np.memmap(stream, np.int64, "r", offset, (numbers,))
        except OSError as e:
            if is_of_memory(e):
                raise
            raise unreadable(path, e) from e


def _claimed(stream: IO[bytes], path: Path) -> int:
    """How many numbers the header claims."""
    try:
        version = npy.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"version {version} of the format")
        shape, _, dtype = npy.read_array_header_1_0(stream, max_header_size=MAX_HEADER)
    # What numpy raises for malformed headers.
    except (ValueError, TypeError, SyntaxError, RecursionError, tokenize.TokenError) as e:
        said = " ".join(str(e).split())[:100]
        raise FileError(path, f"is not an array of numpy ({said})") from e
    if dtype != np.int64 or len(shape) != 1:
        raise FileError(path, "is not a list of 64-bit numbers")
    return math.prod(shape)
