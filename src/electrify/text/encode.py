"""One task of `prepare`: some documents -> a part with their token ids. It runs in a worker
process, perhaps on another host, so it imports little.

A worker neither reads nor writes files: it receives the tokenizer as text and sends the part back
as bytes (2 bytes a token, about half the size of the text). So it can run on a host that does not
see the output folder, and a killed worker leaves nothing behind.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UserError, failing_as
from .counts import counted, visible
from .part_files import part_of
from .plain import plain
from .whole_windows import WholeWindows

# Longer documents are tokenised in pieces; this bounds the memory of the library's structures. They
# are cut before a space, because none of the tokenizers here joins anything across one, or where a
# tokenizer cuts by length at the end of a window.
PIECE = 1 << 17
_BATCH = 1 << 18
WITHOUT_TOKENS = "without_tokens"  # documents of which the tokenizer leaves nothing
_ID = np.dtype("u4")
# About 60 MB of chunks and ids; when it is full, the cache is emptied.
_MAX_KNOWN = 1 << 18
# Python splits at these characters, but BERT's normaliser deletes them and joins their neighbours.
_UNUSUAL_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


@dataclass(frozen=True)
class Start:
    """The data that a worker needs before its first task."""

    tokenizer: str
    """the content of tokenizer.json"""
    vocab_size: int
    unk: int
    forbidden: tuple[int, ...]
    """ids that plain text must never be tokenised to"""
    dtype: str


@dataclass(frozen=True)
class Task:
    """Documents to encode: `texts[i]` belongs to the validation split if `valid[i]`."""

    key: str
    texts: list[str]
    valid: list[bool]
    about: str = ""
    """a description of the task, for messages"""


@dataclass(frozen=True)
class Encoded:
    """A finished task: its counts, and the bytes of its part file."""

    counts: dict[str, int]
    part: bytes


def start(settings: Start) -> Callable[[Task], Encoded]:
    """Returns the function that encodes a task."""
    encode = Encoder(settings.tokenizer, unk=settings.unk)

    def handle(task: Task) -> Encoded:
        lengths, ids, unknown = encode(task.texts)
        if ids.size and (top := int(ids.max())) >= settings.vocab_size:
            raise UserError(
                f"the tokenizer gives id {top}, beyond its vocabulary of {settings.vocab_size}"
            )
        bad = np.intersect1d(ids, settings.forbidden)
        if bad.size:
            raise UserError(
                f"the tokenizer puts its special token {int(bad[0])} into plain text; `prepare` "
                "needs one that does not"
            )
        counts = {
            **counted(task.texts, unknown),
            "bytes": sum(len(text.encode()) for text in task.texts),
            "tokens": int(ids.size),
            "unk_tokens": int((ids == settings.unk).sum()),
        }
        if lost := int((lengths == 0).sum()):
            counts[WITHOUT_TOKENS] = lost
        ids = ids.astype(settings.dtype)
        return Encoded(counts, part_of(task.key, task.valid, lengths, ids, counts))

    return handle


class Encoder:
    """Texts -> token ids without special tokens, for the content of a tokenizer.json.

    A tokenizer like BERT's never looks across white space, so a text's ids are the concatenated ids
    of its chunks between white space. A few different chunks make up most of any corpus, so caching
    their ids gives the same result several times faster than the library's own loop.
    """

    def __init__(self, content: str, *, remember: bool = True, unk: int = -1) -> None:
        """unk: the id of [UNK], whose characters are counted; -1 for none."""
        self._tokenizer = plain(content)
        windows = WholeWindows(self._tokenizer)
        self._windows = windows if windows.matter else None
        self._unk = unk
        self._lossy: dict[str, int] = {}  # what became [UNK] in the chunks that are known
        self._known: dict[str, bytes] | None = (
            {} if remember and ignores_white_space(self._tokenizer) else None
        )

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int64 [documents] lengths, uint32 [their sum] ids, and int64 [documents] characters that
        became [UNK]."""
        owners: list[int] = []
        pieces: list[str] = []
        ids: list[bytes] = []
        lengths = np.zeros(len(texts), np.int64)
        unknown = np.zeros(len(texts), np.int64)
        size = 0
        for owner, text in enumerate(texts):
            for piece in cut(text, self._windows):
                owners.append(owner)
                pieces.append(piece)
                size += len(piece)
                if size >= _BATCH:
                    ids += self._batch(pieces, owners, lengths, unknown)
                    owners = []
                    pieces = []
                    size = 0
        ids += self._batch(pieces, owners, lengths, unknown)
        return lengths, np.frombuffer(b"".join(ids), _ID), unknown

    def _batch(
        self, pieces: list[str], owners: list[int], lengths: np.ndarray, unknown: np.ndarray
    ) -> list[bytes]:
        encode = self._plain if self._known is None else self._remembering
        encoded, lost = encode(pieces)
        for owner, ids in zip(owners, encoded, strict=True):
            lengths[owner] += len(ids) // _ID.itemsize
        for i, characters in lost.items():
            unknown[owners[i]] += characters
        return encoded

    def _plain(self, pieces: list[str]) -> tuple[list[bytes], dict[int, int]]:
        """The ids of each piece, and {number of a piece: its characters that became [UNK]}."""
        # Most encodings here are of single words, and a Python array costs a quarter of a numpy
        # array.
        with failing_as(
            "the tokenizer fails on this text; its tokenizer.json is damaged, or does not fit"
        ):
            encoded = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
            ids = [e.ids for e in encoded]  # each access makes a list
            lossy = [i for i, numbers in enumerate(ids) if self._unk in numbers]
            placed = self._tokenizer.encode_batch(
                [pieces[i] for i in lossy], add_special_tokens=False
            )
        lost = {
            i: sum(
                visible(pieces[i][start:stop])
                for number, (start, stop) in zip(e.ids, e.offsets, strict=True)
                if number == self._unk
            )
            for i, e in zip(lossy, placed, strict=True)
        }
        return [array("I", numbers).tobytes() for numbers in ids], lost

    def _remembering(self, pieces: list[str]) -> tuple[list[bytes], dict[int, int]]:
        known = self._known
        assert known is not None
        split = [[piece] if _UNUSUAL_SPACE.search(piece) else piece.split() for piece in pieces]
        chunks = set().union(*split)
        new = list(chunks.difference(known))
        if len(known) + len(new) > _MAX_KNOWN:
            known.clear()
            self._lossy.clear()
            new = list(chunks)
        encoded, lost = self._plain(new)
        known.update(zip(new, encoded, strict=True))
        self._lossy.update((new[i], characters) for i, characters in lost.items())
        bad = self._lossy.keys() & chunks
        return [b"".join(map(known.__getitem__, words)) for words in split], {
            i: sum(self._lossy[word] for word in words if word in bad)
            for i, words in enumerate(split)
            if bad and not bad.isdisjoint(words)
        }


def ignores_white_space(tokenizer: Any) -> bool:
    """Whether white space only separates words, as in BERT."""
    parts = json.loads(tokenizer.to_str())
    kinds = [
        (parts.get(name) or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")
    ]
    added = all(token["special"] for token in parts["added_tokens"])
    return (
        added
        and kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
        and parts["normalizer"]["clean_text"]
    )


def cut(text: str, windows: WholeWindows | None = None) -> Iterator[str]:
    """A text in pieces of at most PIECE characters. They are cut at the end of one of the windows,
    or before the first character of a stretch of white space, and inside a word only if there is no
    such place."""
    start = 0
    while len(text) - start > PIECE:
        stop = start + (windows.end(text[start : start + PIECE]) if windows else 0)
        if stop == start:
            stop = _before_space(text, start)
        yield text[start:stop]
        start = stop
    yield text[start:] if start else text


def _before_space(text: str, start: int) -> int:
    stop = start + PIECE
    while stop > start and not (text[stop].isspace() and not text[stop - 1].isspace()):
        stop -= 1
    return stop if stop > start else start + PIECE
