"""Texts -> token ids, and the parts that `prepare` keeps them in. It runs in a worker process,
perhaps on another host, so it imports little.

A worker neither reads nor writes files: it receives the tokenizer as text and sends the part back
as bytes (2 bytes a token, about half the size of the text). So it can run on a host that does not
see the output folder, and a killed worker leaves nothing behind.

A part is a line of JSON (key, hash, counts) and then, for the splits train and valid, the lengths
of the documents (uint32) and their tokens. The key is a hash of the task's documents and of every
option that affects its bytes; a part is used again only if key and content agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, failing_as
from .corpus import SPLITS
from .tokenizer import plain
from .vocabulary import steps, window_length

# Longer documents are tokenised in pieces; this bounds the memory of the library's structures.
PIECE = 1 << 17
_BATCH = 1 << 18
_ID = np.dtype("u4")
# About 60 MB of chunks and ids; when it is full, the cache is emptied.
_MAX_KNOWN = 1 << 18
# Python splits at these characters, but BERT's normaliser deletes them and joins their neighbours.
_UNUSUAL_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# Of these the usual normalizers make one character each.
_EASY = re.compile(r"[ -~\t\n\r]*")
_SAMPLE = "".join(f"x{chr(c)}x" for c in (*b"\t\n\r", *range(32, 127)))
# Names of counts: characters in words that became [UNK], documents that consist of them by half or
# more, characters that are not white space, documents of which the tokenizer leaves nothing.
UNK_CHARACTERS = "unk_characters"
UNK_DOCUMENTS = "unk_documents"
VISIBLE = "visible_characters"
WITHOUT_TOKENS = "without_tokens"


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


def counted(texts: list[str], unknown: np.ndarray) -> dict[str, int]:
    """The counts of the texts themselves. unknown [texts]: characters that became [UNK]; their
    counts are left out if they are 0."""
    words = [text.split() for text in texts]
    seen = np.array([sum(map(len, found)) for found in words], np.int64)
    counts = {
        "documents": len(texts),
        "words": sum(map(len, words)),
        "characters": sum(map(len, texts)),
        VISIBLE: int(seen.sum()),
    }
    if unknown.any():
        counts[UNK_CHARACTERS] = int(unknown.sum())
        counts[UNK_DOCUMENTS] = int((2 * unknown >= np.maximum(seen, 1)).sum())
    return counts


class Encoder:
    """Texts -> token ids without special tokens, for the content of a tokenizer.json.

    A tokenizer like BERT's never looks across white space, so a text's ids are the concatenated ids
    of its chunks between white space. A few different chunks make up most of any corpus, so caching
    their ids gives the same result several times faster than the library's own loop.
    """

    def __init__(self, content: str, *, remember: bool = True, unk: int = -1) -> None:
        """unk: the id of [UNK], whose characters are counted; -1 for none."""
        self._tokenizer = plain(content)
        self._pieces = Pieces(self._tokenizer)
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
            for piece in self._pieces(text):
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
                len("".join(pieces[i][start:stop].split()))
                for number, (start, stop) in zip(e.ids, e.offsets, strict=True)
                if number == self._unk
            )
            for i, e in zip(lossy, placed, strict=True)
        }
        # Most encodings here are of single words, and a Python array costs a quarter of a numpy
        # array.
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


class Pieces:
    """Cuts long texts where a tokenizer reads the pieces as it reads the whole.

    None of the tokenizers here joins anything across a space, so texts are cut before one, and
    inside a word only if there is none. One that cuts by length counts from the start of a text, or
    of a word: its texts are cut where a window ends, if each character counts as one, and otherwise
    before a space or not at all.
    """

    def __init__(self, tokenizer: Any) -> None:
        split = json.loads(tokenizer.to_str())["pre_tokenizer"]
        first = next(steps(split), {}).get("type")
        length = window_length(split)
        normalizer = tokenizer.normalizer
        normal = _SAMPLE if normalizer is None else normalizer.normalize_str(_SAMPLE)
        self._window = 0
        if length > 1 and first == "Split" and len(normal) == len(_SAMPLE):
            self._window = length
        self._in_words = length <= 1
        # Unigram replaces each stretch of white space, and a space begins its windows.
        self._at_spaces = self._in_words or first not in ("Metaspace", "Split")

    def __call__(self, text: str) -> Iterator[str]:
        """Pieces of about PIECE characters."""
        if len(text) <= PIECE:
            yield text
        elif self._at_spaces:
            yield from self._before_spaces(text)
        elif self._window and _EASY.fullmatch(text):
            size = PIECE // self._window * self._window
            yield from (text[i : i + size] for i in range(0, len(text), size))
        else:
            yield text

    def _before_spaces(self, text: str) -> Iterator[str]:
        start = 0
        while len(text) - start > PIECE:
            stop = start + PIECE
            while stop > start and not (text[stop].isspace() and not text[stop - 1].isspace()):
                stop -= 1
            if stop == start and self._in_words:
                stop = start + PIECE
            elif stop == start:  # the word is read as a whole
                space = re.compile(r"(?<=\S)\s").search(text, start + PIECE)
                stop = space.start() if space else len(text)
            yield text[start:stop]
            start = stop
        if start < len(text):
            yield text[start:]


# ------------------------------------------------------------------ parts


def part_of(
    key: str, valid: list[bool], lengths: np.ndarray, ids: np.ndarray, counts: dict[str, int]
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


def _hash(header: dict[str, Any], data: bytes) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n" + data).hexdigest()


def write_part(path: Path, part: bytes) -> None:
    """Writes a part file with one rename, so that it is either whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(part)  # not synced: a hash says whether a part is whole
    unfinished.replace(path)


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
