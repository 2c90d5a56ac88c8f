"""Texts -> token ids, and the parts that `prepare` keeps them in. It runs in a worker process,
perhaps on another host, so it imports little.

A worker neither reads nor writes files: it receives the tokenizer as text and sends the part back
as bytes (2 bytes a token, about half the size of the text). So it can run on a host that does not
see the output folder, and a killed worker leaves nothing behind.

A part is an archive of numpy with the lengths of the documents, their tokens, whether they are in
the validation split, and the counts. Its file is named by a hash of the task's documents and of
every option that affects its bytes, and begins with a hash of the part. So a part is used again
only if its task is the same and its content is whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

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


Task = tuple[Path, list[str], list[bool]]
"""Where a part will be, on the host of the command; its documents; which of them are of the
validation split."""


def start(tokenizer: str, unk: int, dtype: str) -> Callable[[Task], tuple[Path, bytes]]:
    """Returns the function that makes the part of a task. tokenizer: the content of a
    tokenizer.json."""
    encode = TextToIds(tokenizer, unk=unk)

    def handle(task: Task) -> tuple[Path, bytes]:
        path, texts, valid = task
        lengths, ids, unknown = encode(texts)
        counts = {
            **counted(texts, unknown),
            "bytes": sum(len(text.encode()) for text in texts),
            "tokens": int(ids.size),
            "unk_tokens": int((ids == unk).sum()),
            "without_tokens": int((lengths == 0).sum()),
        }
        file, ids = io.BytesIO(), ids.astype(dtype)
        np.savez(file, counts=json.dumps(counts), valid=valid, lengths=lengths, ids=ids)
        return path, file.getvalue()

    return handle


def counted(texts: list[str], unknown: np.ndarray) -> dict[str, int]:
    """The counts of the texts themselves. unknown [texts]: characters that became [UNK], of which
    an unknown document consists by half or more; visible is what is not white space."""
    words = [text.split() for text in texts]
    seen = np.array([sum(map(len, found)) for found in words], np.int64)
    return {
        "documents": len(texts),
        "words": sum(map(len, words)),
        "characters": sum(map(len, texts)),
        "visible_characters": int(seen.sum()),
        "unk_characters": int(unknown.sum()),
        "unk_documents": int(((unknown > 0) & (2 * unknown >= seen)).sum()),
    }


def unknown_in(tokenizer: str, texts: list[str], *, unk: int) -> dict[str, int]:
    """The counts of the texts for the content of a tokenizer.json."""
    return counted(texts, TextToIds(tokenizer, unk=unk)(texts)[2])


class TextToIds:
    """Texts -> token ids without special tokens, for the content of a tokenizer.json.

    A tokenizer like BERT's never looks across white space, so a text's ids are the concatenated ids
    of its chunks between white space. A few different chunks make up most of any corpus, so caching
    their ids gives the same result several times faster than the library's own loop. For other
    tokenizers the chunks are whole texts, in pieces if they are long.
    """

    def __init__(self, content: str, *, unk: int = -1) -> None:
        """unk: the id of [UNK], whose characters are counted; -1 for none."""
        self._tokenizer = plain(content)
        self._unk = unk
        parts = json.loads(content)
        self._cut = cut_of(parts["pre_tokenizer"])
        self._splits = ignores_white_space(parts)
        self._ids: dict[str, bytes] = {}  # of the chunks that are known
        self._lost: dict[str, int] = {}  # characters that became [UNK], in chunks with such

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int64 [documents] lengths, uint32 [their sum] ids, and int64 [documents] characters that
        became [UNK]."""
        ids: list[bytes] = []
        unknown: list[int] = []
        for batch in batches(texts, _BATCH):
            split = [self._chunks(text) for text in batch]
            wanted = set().union(*split)
            self._learn(wanted)
            ids += [b"".join(map(self._ids.__getitem__, chunks)) for chunks in split]
            lossy = self._lost.keys() & wanted
            for chunks in split:
                unknown.append(sum(self._lost[c] for c in chunks if c in lossy) if lossy else 0)
        lengths = np.array([len(found) // _ID.itemsize for found in ids], np.int64)
        return lengths, np.frombuffer(b"".join(ids), _ID), np.array(unknown, np.int64)

    def _chunks(self, text: str) -> list[str]:
        pieces = [text]
        if len(text) > PIECE and self._cut is not None:
            found = self._cut.findall(text)
            pieces = found if sum(map(len, found)) == len(text) else pieces
        if not self._splits:
            return pieces
        chunks: list[str] = []
        for piece in pieces:
            chunks += [piece] if _UNUSUAL_SPACE.search(piece) else piece.split()
        return chunks

    def _learn(self, wanted: set[str]) -> None:
        """Encodes the chunks that are not known yet. Of whole texts none is kept."""
        new = wanted.difference(self._ids)
        if not self._splits or len(self._ids) + len(new) > _MAX_KNOWN:
            self._ids.clear()
            self._lost.clear()
            new = wanted
        for batch in batches(new, _BATCH):
            encoded = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            ids = [e.ids for e in encoded]  # each access makes a list
            # Most are of single words, and a Python array costs a quarter of a numpy array.
            self._ids |= {
                c: array("I", found).tobytes() for c, found in zip(batch, ids, strict=True)
            }
            lossy = [c for c, found in zip(batch, ids, strict=True) if self._unk in found]
            placed = self._tokenizer.encode_batch(lossy, add_special_tokens=False)
            for chunk, e in zip(lossy, placed, strict=True):
                self._lost[chunk] = sum(
                    len("".join(chunk[begin:end].split()))
                    for number, (begin, end) in zip(e.ids, e.offsets, strict=True)
                    if number == self._unk
                )


def ignores_white_space(parts: dict[str, Any]) -> bool:
    """Whether white space only separates words for the tokenizer of these parts, as in BERT."""
    kinds = [(parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
    like_bert = kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
    added = all(token["special"] for token in parts["added_tokens"])
    return added and like_bert and parts["normalizer"]["clean_text"]


def cut_of(split: dict[str, Any] | None) -> re.Pattern[str] | None:
    """The pieces, of about PIECE characters, of which a tokenizer with this pre-tokenizer makes
    what it makes of a whole text. A text that they do not cover, or that has none, stays whole.

    None of the tokenizers here joins anything across a space, so texts are cut before one (not
    behind it), and inside a word only if there is none. One that cuts by length counts from the
    start of a text, or of a word: its texts are cut where a window ends, if it counts from the
    start of the text and each character as one (of these, normalizers make one character each).
    """
    length = window_length(split)
    if length <= 1:
        return re.compile(rf"(?s).{{1,{PIECE}}}(?=(?<=\S)\s|\Z)|.{{1,{PIECE}}}")
    by_text = next(steps(split))["type"] == "Split"
    return re.compile(rf"[ -~\t\n\r]{{1,{PIECE // length * length}}}") if by_text else None


# ------------------------------------------------------------------ parts


def write_part(path: Path, part: bytes) -> None:
    """Writes a part file with one rename."""
    unfinished = path.with_suffix(".tmp")
    # Not synced: the hash says whether a part is whole.
    unfinished.write_bytes(hashlib.sha256(part).digest() + part)
    unfinished.replace(path)


def read_part(path: Path) -> tuple[dict[str, int], dict[Split, Documents]] | None:
    """The counts and the documents of each split in a part file, or None if it is absent or not as
    it was written."""
    data = path.read_bytes() if path.is_file() else b""
    part = data[hashlib.sha256().digest_size :]
    if hashlib.sha256(part).digest() + part != data:
        return None
    with np.load(io.BytesIO(part), allow_pickle=False) as archive:
        valid, lengths, ids = archive["valid"], archive["lengths"], archive["ids"]
        counts = json.loads(str(archive["counts"]))
    of_valid = np.repeat(valid, lengths)
    train = lengths[~valid], ids[~of_valid]
    return counts, {"train": train, "valid": (lengths[valid], ids[of_valid])}
