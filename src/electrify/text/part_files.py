"""The files of `prepare` that hold the documents of one task as token ids.

A part is a line of JSON (key, hashes, counts) and then, for the splits train and valid, the lengths
of the documents (uint32) and their tokens. The key is a hash of the task's documents and of every
option that affects its bytes; a part is used again only if key and content agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .splits import SPLITS


def part_of(
    key: str,
    valid: Sequence[bool],
    lengths: np.ndarray,
    ids: np.ndarray,
    counts: dict[str, int],
) -> bytes:
    """The content of a part. valid: for each document whether it belongs to that split. ids: those
    of all documents, one after the other, which have these lengths."""
    owner_is_valid = np.array(valid, bool)
    token_is_valid = np.repeat(owner_is_valid, lengths)
    payload = []
    sizes = {}
    for split, documents, tokens in zip(
        SPLITS, (~owner_is_valid, owner_is_valid), (~token_is_valid, token_is_valid), strict=True
    ):
        sizes[split] = [int(documents.sum()), int(tokens.sum())]
        payload += [lengths[documents].astype("<u4").tobytes(), ids[tokens].tobytes()]
    data = b"".join(payload)
    header = {"key": key, "splits": sizes, "counts": counts}
    return json.dumps(header | {"sha256": _hash(header, data)}).encode() + b"\n" + data


def write_part(path: Path, part: bytes) -> None:
    """Writes a part file with one rename, so that it is either whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(part)  # not synced: a hash says whether a part is whole
    unfinished.replace(path)


def _hash(header: dict[str, Any], data: bytes) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n" + data).hexdigest()


def read_part(
    path: Path, *, key: str, dtype: str
) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, np.ndarray]]] | None:
    """(header, {split: (lengths, ids)}) of a part file, or None if it is absent, belongs to another
    task, or is not as it was written."""
    try:
        head, _, data = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        if header["key"] != key or header.pop("sha256") != _hash(header, data):
            return None
    except (OSError, ValueError, KeyError):
        return None
    arrays = {}
    at = 0
    for split in SPLITS:
        documents, tokens = header["splits"][split]
        lengths = np.frombuffer(data, "<u4", documents, at)
        at += lengths.nbytes
        arrays[split] = lengths, np.frombuffer(data, dtype, tokens, at)
        at += arrays[split][1].nbytes
    return header, arrays
