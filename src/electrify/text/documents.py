"""Sources -> documents: text in memory-bounded pieces, whatever the file looks like.

A document is the text between blank lines, a line, a file, or a record (a row of a table, a
sequence of FASTA, a molecule of a SMILES file). Newlines become \\n. Byte order marks, NUL
characters, white space at both ends and empty documents are removed. A document longer than
MAX_DOCUMENT is cut at white space into several. The hash of its text says whether it is taken:
whether it occurred before, is in the validation split, or in the sample that a tokenizer is trained
on.

Reading is strict: a row that lacks the text or holds something else is named and stops the run,
because otherwise a "5" or None would silently be trained on.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from ..errors import need
from .options import PrepareConfig
from .sources import Source, column_of, rows_of
from .streams import NOT_UTF8, Advance, text_chunks
from .tables import sequences

# In characters. It bounds memory; no work in the usual corpora comes near it.
MAX_DOCUMENT = 1 << 23
BLANK_LINE = re.compile(r"\n[^\S\n]*\n", re.ASCII)
_LINE = re.compile("\n")
# Halves of surrogate pairs that are not Python's way to keep bytes that are not UTF-8.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def documents(
    source: Source, options: PrepareConfig, *, counts: Counter[str], advance: Advance = None
) -> Iterator[str]:
    """The documents of one source in order. `counts` receives blank (nothing but white space),
    empty_rows (those that are rows, or null), encoding_errors, nul_characters and cuts.

    advance: called with the number of bytes consumed. Raises UserError, naming file and line, for
    input that cannot be right.
    """
    for where, given in _placed(source, options, counts, advance):
        text = _encodable(given, options.encoding_errors, counts, where)
        if text is None:
            continue
        if "\0" in text:
            counts["nul_characters"] += text.count("\0")
            text = text.replace("\0", "")
        text = text.strip()
        counts["blank"] += not text
        yield from filter(None, map(str.strip, _cut(text, counts)))


def _placed(
    source: Source, options: PrepareConfig, counts: Counter[str], advance: Advance
) -> Iterator[tuple[str, str]]:
    """The texts of a source, each behind its place, which is for messages."""
    path, boundary = source.path, options.document_boundary
    if source.format in ("txt", "md"):
        if boundary == "auto":
            boundary = "file" if source.format == "md" else "blank-line"
        separator = {"blank-line": BLANK_LINE, "line": _LINE, "file": None}[boundary]
        errors = "strict" if options.encoding_errors == "strict" else "surrogateescape"
        for text in split(text_chunks(path, advance, errors=errors), separator, counts):
            yield str(path), text
    elif source.format == "fasta":
        lines = split(text_chunks(path, advance, errors="surrogateescape"), _LINE, counts)
        before = 0
        for number, _, letters in sequences(path, lines, longest=MAX_DOCUMENT):
            counts["cuts"] += number == before
            before = number
            if letters:
                yield f"{path}, line {number}: its sequence", letters
    else:
        column = source.column or column_of(source, options)
        for row in rows_of(source, options, advance=advance, only=column):
            text = row.text(column)
            counts["empty_rows"] += not text.strip()
            yield f"{row.where}: {column!r}", text


def split(
    chunks: Iterable[str], separator: re.Pattern[str] | None, counts: Counter[str]
) -> Iterator[str]:
    """The pieces between separators, those that are too long in several."""
    rest = ""
    for chunk in chunks:
        *whole, rest = separator.split(rest + chunk) if separator else (rest + chunk,)
        *parts, rest = _cut(rest, counts)
        yield from whole
        yield from parts
    if rest:
        yield rest


def _cut(text: str, counts: Counter[str]) -> list[str]:
    """The text in parts of at most MAX_DOCUMENT characters, cut at white space, or between
    characters where there is none."""
    parts = []
    while len(text) > MAX_DOCUMENT:
        counts["cuts"] += 1
        space = max(text.rfind(" ", 1, MAX_DOCUMENT), text.rfind("\n", 1, MAX_DOCUMENT))
        end = space if space > 0 else MAX_DOCUMENT
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text]


def _encodable(text: str, errors: str, counts: Counter[str], where: str) -> str | None:
    """A text by the policy for what is no character: bytes that are not UTF-8, which are halves of
    surrogate pairs here, and others, which JSON may hold. None if it is to be skipped. errors:
    strict, replace or skip. Raises UserError under `strict`."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        need(errors != "strict", f"{where} {NOT_UTF8}")
    counts["encoding_errors"] += 1
    if errors == "skip":
        return None
    return _HALF.sub("\ufffd", text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# ------------------------------------------------------------------ which documents are taken


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
