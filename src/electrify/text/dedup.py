"""Detects documents that occurred before: a set of 128-bit hashes in sorted arrays, with 16 bytes
per document (48 for a moment while two arrays merge)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

# numpy pads and compares whole 16-byte strings, so zero bytes at the end do no harm.
_HASH = np.dtype("S16")


def digest(text: bytes) -> bytes:
    """128-bit hash of a document."""
    return hashlib.blake2b(text, digest_size=16).digest()


def fraction(hashed: bytes, *, stream: int) -> float:
    """A number in [0, 1) from one half of a document's hash. Stream 0 decides the validation split,
    stream 1 the tokenizer's sample."""
    return int.from_bytes(hashed[8 * stream : 8 * stream + 7], "big") / (1 << 56)


def is_held_out(hashed: bytes, valid_fraction: float) -> bool:
    """Whether a document, by the hash of its cleaned text, is in the validation split."""
    return fraction(hashed, stream=0) < valid_fraction


def until(
    pairs: Iterator[tuple[bytes, str]], documents: int, *, distinct: bool
) -> Iterator[tuple[bytes, str]]:
    """The (hash, document) pairs up to the one that is the last of so many documents; with
    `distinct`, those that occurred before do not count. Nothing behind it is read."""
    seen: set[bytes] = set()
    left = documents
    while left and (pair := next(pairs, None)) is not None:
        yield pair
        left -= pair[0] not in seen
        if distinct:
            seen.add(pair[0])


class Seen:
    """The hashes seen so far, as sorted arrays whose lengths at least double from one to the next,
    so that each hash is merged about log2(n) times."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, hashes: list[bytes]) -> list[bool]:
        """True for each hash that was not seen before, in this list or an earlier one."""
        if not hashes:
            return []
        batch = np.frombuffer(b"".join(hashes), dtype=_HASH)
        unique, first = np.unique(batch, return_index=True)
        fresh = np.ones(len(unique), bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, unique), len(run) - 1)
            fresh &= run[at] != unique
        new = np.zeros(len(batch), bool)
        new[first[fresh]] = True
        self._push(unique[fresh])
        return new.tolist()

    def _push(self, run: np.ndarray) -> None:
        if not len(run):
            return
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate((self._runs.pop(), self._runs.pop()))
            merged.sort()
            self._runs.append(merged)
