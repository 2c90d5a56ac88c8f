"""Which documents are taken, by the hash of their text: those that did not occur before, those of
the validation split, and the sample that a tokenizer is trained on."""

from __future__ import annotations

import hashlib
import heapq

import numpy as np

Pair = tuple[bytes, str]
"""The hash of a document, and its text."""
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


class Seen:
    """The hashes seen so far, as sorted arrays whose lengths at least double from one to the next,
    so that each hash is merged about log2(n) times: 16 bytes per document (48 for a moment)."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, hashes: list[bytes]) -> list[bool]:
        """True for each hash that was not seen before, in this list or an earlier one."""
        batch = np.array(hashes, _HASH)
        new = np.zeros(len(batch), bool)
        new[np.unique(batch, return_index=True)[1]] = True
        for run in self._runs:
            new &= run[np.searchsorted(run[:-1], batch)] != batch
        if new.any():
            self._runs.append(np.sort(batch[new]))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._runs.append(np.sort(np.concatenate((self._runs.pop(), self._runs.pop()))))
        return new.tolist()


class Sample:
    """The documents with the smallest numbers whose sizes sum up to at most a limit, each text
    once. The choice does not depend on the order in which they come."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._texts: dict[float, str] = {}
        self._heap: list[float] = []
        """Their numbers, with a minus."""
        self._size = 0
        self._below = 1.0

    def add(self, number: float, text: str) -> None:
        if number >= self._below or number in self._texts:
            return
        heapq.heappush(self._heap, -number)
        self._texts[number] = text
        self._size += len(text)
        while self._size > self._limit and len(self._heap) > 1:
            self._below = -heapq.heappop(self._heap)
            self._size -= len(self._texts.pop(self._below))

    def texts(self) -> list[str]:
        """In order of their numbers, so that the order of the corpus does not matter either."""
        return [self._texts[number] for number in sorted(self._texts)]
