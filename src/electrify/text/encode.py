"""Texts -> token ids, and the parts that `prepare` keeps them in. It runs in a worker process,
perhaps on another host, so it imports little.

A worker neither reads nor writes files: it receives the tokenizer as text and sends the part back
as bytes (2 bytes a token, about half the size of the text). So it can run on a host that does not
see the output folder, and a killed worker leaves nothing behind.

A part is an archive of numpy with the lengths of the documents, their tokens, whether they are in
the validation split, and the counts. Before it in its file stands a hash of it and of a key: a hash
of the task's documents and of every option that affects its bytes. So a part is used again only if
key and content agree.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import failing_as
from .corpus import Documents, Split
from .tokenizer import plain
from .vocabulary import batches, steps, window_length

# Longer documents are tokenised in pieces; this bounds the memory of the library's structures.
PIECE = 1 << 17
_BATCH = 1 << 18
_ID = np.dtype("u4")
# About 60 MB of chunks and ids; when it is full, the cache is emptied.
_MAX_KNOWN = 1 << 18
# Python splits at these characters, but BERT's normaliser deletes them and joins their neighbours.
_UNUSUAL_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# The longest piece that ends before a space and not behind one.
_AT_SPACES = rf"(?s).{{1,{PIECE}}}(?=(?<=\S)\s|\Z)"
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
    unk: int
    dtype: str


@dataclass(frozen=True)
class Task:
    """Documents to encode: `texts[i]` belongs to the validation split if `valid[i]`."""

    texts: list[str]
    valid: list[bool]


def start(settings: Start) -> Callable[[Task], bytes]:
    """Returns the function that makes the part of a task."""
    encode = Encoder(settings.tokenizer, unk=settings.unk)

    def handle(task: Task) -> bytes:
        lengths, ids, unknown = encode(task.texts)
        counts = {
            **counted(task.texts, unknown),
            "bytes": sum(len(text.encode()) for text in task.texts),
            "tokens": int(ids.size),
            "unk_tokens": int((ids == settings.unk).sum()),
        }
        if lost := int((lengths == 0).sum()):
            counts[WITHOUT_TOKENS] = lost
        file, ids = io.BytesIO(), ids.astype(settings.dtype)
        np.savez(file, counts=json.dumps(counts), valid=task.valid, lengths=lengths, ids=ids)
        return file.getvalue()

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

    def __init__(self, content: str, *, unk: int = -1) -> None:
        """unk: the id of [UNK], whose characters are counted; -1 for none."""
        self._tokenizer = plain(content)
        self._pieces = Pieces(self._tokenizer)
        self._unk = unk
        self._lossy: dict[str, int] = {}  # what became [UNK] in the chunks that are known
        can_remember = ignores_white_space(self._tokenizer)
        self._known: dict[str, bytes] | None = {} if can_remember else None

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int64 [documents] lengths, uint32 [their sum] ids, and int64 [documents] characters that
        became [UNK]."""
        encode = self._plain if self._known is None else self._remembering
        cut = [self._pieces(text) for text in texts]
        owners = np.repeat(np.arange(len(texts)), [len(pieces) for pieces in cut])
        ids: list[bytes] = []
        lost: list[int] = []
        for batch in batches((piece for pieces in cut for piece in pieces), _BATCH):
            encoded, unknown = encode(batch)
            ids += encoded
            lost += unknown

        def summed(numbers: list[int]) -> np.ndarray:
            return np.bincount(owners, numbers, len(texts)).astype(np.int64)

        lengths = summed([len(found) // _ID.itemsize for found in ids])
        return lengths, np.frombuffer(b"".join(ids), _ID), summed(lost)

    def _plain(self, pieces: list[str]) -> tuple[list[bytes], list[int]]:
        """The ids of each piece, and how many of its characters became [UNK]."""
        with failing_as(
            "the tokenizer fails on this text; its tokenizer.json is damaged, or does not fit"
        ):
            encoded = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
            ids = [e.ids for e in encoded]  # each access makes a list
            lossy = [i for i, numbers in enumerate(ids) if self._unk in numbers]
            placed = self._tokenizer.encode_batch(
                [pieces[i] for i in lossy], add_special_tokens=False
            )
        lost = [0] * len(pieces)
        for i, e in zip(lossy, placed, strict=True):
            lost[i] = sum(
                len("".join(pieces[i][start:stop].split()))
                for number, (start, stop) in zip(e.ids, e.offsets, strict=True)
                if number == self._unk
            )
        # Most encodings here are of single words, and a Python array costs a quarter of a numpy
        # array.
        return [array("I", numbers).tobytes() for numbers in ids], lost

    def _remembering(self, pieces: list[str]) -> tuple[list[bytes], list[int]]:
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
        self._lossy.update((chunk, n) for chunk, n in zip(new, lost, strict=True) if n)
        unknown = [0] * len(pieces)
        if bad := self._lossy.keys() & chunks:
            unknown = [sum(self._lossy[w] for w in words if w in bad) for words in split]
        return [b"".join(map(known.__getitem__, words)) for words in split], unknown


def ignores_white_space(tokenizer: Any) -> bool:
    """Whether white space only separates words, as in BERT."""
    parts = json.loads(tokenizer.to_str())
    kinds = [(parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
    like_bert = kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
    added = all(token["special"] for token in parts["added_tokens"])
    return added and like_bert and parts["normalizer"]["clean_text"]


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
        self._whole = False
        """Whether a text that is not _EASY is not cut."""
        if length <= 1:
            self._cut = _AT_SPACES + rf"|.{{1,{PIECE}}}"
        elif first not in ("Metaspace", "Split"):  # a word that is too long is read as a whole
            self._cut = _AT_SPACES + rf"|.{{{PIECE},}}?(?=(?<=\S)\s|\Z)"
        else:  # Unigram replaces each stretch of white space, and a space begins its windows
            self._whole = True
            counts_alike = first == "Split" and len(normal) == len(_SAMPLE)
            self._cut = rf"(?s).{{1,{PIECE // length * length}}}" if counts_alike else r"(?s).+"

    def __call__(self, text: str) -> list[str]:
        """Pieces of about PIECE characters."""
        if len(text) <= PIECE or (self._whole and not _EASY.fullmatch(text)):
            return [text]
        return re.findall(self._cut, text)


# ------------------------------------------------------------------ parts


def write_part(path: Path, part: bytes, *, key: str) -> None:
    """Writes a part file with one rename, so that it is either whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    # Not synced: the hash says whether a part is whole.
    unfinished.write_bytes(_hash_of(part, key) + part)
    unfinished.replace(path)


def _hash_of(part: bytes, key: str) -> bytes:
    return hashlib.sha256(key.encode() + part).digest()


def read_part(path: Path, *, key: str) -> tuple[dict[str, int], dict[Split, Documents]] | None:
    """The counts and the documents of each split in a part file, or None if it is absent, belongs
    to another task, or is not as it was written."""
    data = path.read_bytes() if path.is_file() else b""
    content = data[hashlib.sha256().digest_size :]
    if _hash_of(content, key) + content != data:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        part = dict(archive)
    valid, lengths, ids = part["valid"], part["lengths"], part["ids"]
    is_valid = np.repeat(valid, lengths)
    splits: dict[Split, Documents] = {
        "train": (lengths[~valid], ids[~is_valid]),
        "valid": (lengths[valid], ids[is_valid]),
    }
    return json.loads(str(part["counts"])), splits
