"""A prepared corpus: its files, their reader, and the writer of its shards.

    DATA/manifest.json                 what is here, from what, with which options, with the size
                                       and sha256 of every file
    DATA/tokens-<split>-00000.bin      token ids, little-endian uint16 (vocabulary up to 65 536)
                                       or uint32, documents end to end, no specials
    DATA/documents-<split>-00000.npy   int64 [documents + 1], offsets of the documents in that
                                       shard: 0, ..., tokens of the shard
    DATA/unigram.npy                   int64 [vocabulary], how often each id occurs in the train
                                       split
    DATA/tokenizer/                    a Hugging Face tokenizer folder

Splits are `train` and `valid`. A document never crosses a shard. The manifest is written last:
without it the folder is unfinished.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Literal, get_args

import numpy as np

from ..errors import need
from ..files import json_text, read_json, sha256, sync, text_hash, write, written
from ..values import SpecialIds

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = get_args(Split)
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"  # the folder beside it
UNIGRAM = "unigram.npy"
UNFINISHED = "unfinished"
STATE = f"{UNFINISHED}/state.json"
"""What `prepare` writes first, and removes behind the manifest."""
AGAIN = "prepare the corpus again"


@dataclass(frozen=True)
class Shard:
    """One pair of files. Names are relative to the folder of the manifest."""

    tokens_file: str
    documents_file: str
    tokens: int
    documents: int
    tokens_sha256: str
    documents_sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a prepared corpus."""

    format: int
    dtype: str
    """Of the token ids in a shard."""
    vocab_size: int
    special_ids: SpecialIds
    tokenizer_sha256: str
    """Hash of tokenizer/tokenizer.json: the identity of the vocabulary, stored in checkpoints too.
    """
    unigram_sha256: str
    splits: dict[Split, list[Shard]]
    options: dict[str, Any]
    """The options of `prepare` that affect the bytes."""
    sources: list[dict[str, Any]]
    """One row for each input: name (not an absolute path), bytes, sha256."""
    counts: dict[str, int]
    """documents, words, characters, bytes, tokens, unk_tokens, duplicates, ... (report.COUNTED):
    the numbers that `prepare` printed."""
    tokenizer_files: dict[str, str]
    """Hashes of every file in tokenizer/."""

    @property
    def fingerprint(self) -> str:
        """The identity of the data: a hash over the contents of every shard and of the
        tokenizer."""
        rows = {
            split: [(s.tokens_sha256, s.documents_sha256) for s in shards]
            for split, shards in self.splits.items()
        }
        return text_hash(json.dumps([self.dtype, self.tokenizer_sha256, rows], sort_keys=True))

    @property
    def hashes(self) -> dict[str, str]:
        """Those of every file, by its name in the folder."""
        shards = [shard for split in self.splits.values() for shard in split]
        return {
            UNIGRAM: self.unigram_sha256,
            **{f"{TOKENIZER}/{name}": digest for name, digest in self.tokenizer_files.items()},
            **{s.documents_file: s.documents_sha256 for s in shards},
            **{s.tokens_file: s.tokens_sha256 for s in shards},
        }

    def documents(self, split: Split) -> int:
        return sum(s.documents for s in self.splits.get(split, []))


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest last and with one rename, so a folder with a manifest is complete."""
    fields = asdict(manifest)
    write(folder / MANIFEST, json_text({**fields, "sha256": _hash_of(fields)}, indent=1) + "\n")


def _hash_of(fields: dict[str, Any]) -> str:
    return text_hash(json_text(fields))


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest. Raises UserError if the folder is not a prepared corpus, or is an
    unfinished or foreign one."""
    path = folder / MANIFEST
    fact = f"{folder} is not a prepared corpus: it has no {MANIFEST}"
    advice = f"make one with `electrify prepare CORPUS --output-dir {quote(str(folder))}`"
    need(path.exists(), fact, advice)
    fields = read_json(path)
    whole = fields.pop("sha256", None) == _hash_of(fields)
    need(whole, f"{path} is damaged or was edited: its checksum differs", AGAIN)
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest).validate_python(fields)


def is_prepared(data: str) -> bool:
    """Whether it is a prepared corpus, by its manifest."""
    return os.path.exists(Path(data) / MANIFEST)  # a text in place of a name may be too long


def is_unfinished(folder: Path) -> bool:
    """Whether `prepare` has begun a corpus there and not ended it."""
    return os.path.isfile(folder / STATE) and not is_prepared(str(folder))


# ------------------------------------------------------------------ reading


class Corpus:
    """One split of a prepared corpus, memory-mapped. Opening checks that every file is there with
    its size; `verify` checks hashes."""

    def __init__(self, folder: Path, split: Split) -> None:
        self.folder = folder
        self.split = split
        self.manifest = read_manifest(folder)
        self.shards = self.manifest.splits.get(split, [])
        itemsize = np.dtype(self.manifest.dtype).itemsize
        for shard in self.shards:
            path, wanted = folder / shard.tokens_file, shard.tokens * itemsize
            found = path.stat().st_size if path.is_file() else 0
            fact = f"{path} has {found} bytes where the manifest says {wanted}: it is truncated"
            need(found == wanted, fact, AGAIN)

    @property
    def num_tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @cached_property
    def tokens(self) -> list[np.ndarray]:
        """One read-only, memory-mapped array of ids per shard."""
        dtype = np.dtype(self.manifest.dtype)
        return [
            np.memmap(self.folder / s.tokens_file, dtype, "r") if s.tokens else np.empty(0, dtype)
            for s in self.shards
        ]

    @cached_property
    def documents(self) -> list[np.ndarray]:
        """One int64 array of documents + 1 offsets per shard."""
        names = (s.documents_file for s in self.shards)
        return [np.load(self.folder / name, allow_pickle=False) for name in names]

    def unigram(self) -> np.ndarray:
        """int64 [vocabulary]: how often each id occurs in the train split."""
        return np.load(self.folder / UNIGRAM, allow_pickle=False)


def verify(folder: Path, *, max_bytes: int = 1 << 62, key: int = 0) -> None:
    """Compares hashes with the manifest: of the files that say where tokens are and what they mean
    (documents, counts, tokenizer), and of token shards of up to `max_bytes` in all, the small
    validation split first and at least one of each split; another key selects other shards.

    Raises UserError naming the first file that is missing or differs.
    """
    manifest, left = read_manifest(folder), max_bytes
    wanted = manifest.hashes
    for split in ("valid", "train"):
        shards = Corpus(folder, split).shards
        for i, k in enumerate(np.random.default_rng(key).permutation(len(shards))):
            size = shards[k].tokens * np.dtype(manifest.dtype).itemsize
            if i and size > left:
                del wanted[shards[k].tokens_file]
            else:
                left -= size
    for name, digest in wanted.items():
        path = folder / name
        need(path.is_file(), f"{path} is missing", AGAIN)
        same = sha256(path) == digest
        need(same, f"{path} does not have the hash in the manifest: it was changed", AGAIN)


# ------------------------------------------------------------------ writing

Documents = tuple[np.ndarray, np.ndarray]
"""The lengths of some documents, and their token ids, laid end to end."""


def write_shards(
    folder: Path, parts: Iterable[dict[Split, Documents]], vocab_size: int, *, shard_mb: int
) -> dict[str, Any]:
    """The files of a corpus, without its manifest. Returns the fields that describe them there."""
    dtype, unigram_V = token_dtype(vocab_size), np.zeros(vocab_size, np.int64)
    writers = [ShardWriter(folder, s, dtype=dtype, shard_bytes=shard_mb << 20) for s in SPLITS]
    for documents in parts:
        for split, writer in zip(SPLITS, writers, strict=True):
            writer.add(*documents[split])
        unigram_V += np.bincount(documents["train"][1], minlength=vocab_size)
    return {
        "format": 1,
        "dtype": dtype.name,
        "vocab_size": vocab_size,
        "unigram_sha256": put_array(folder / UNIGRAM, unigram_V),
        "splits": {s: writer.close() for s, writer in zip(SPLITS, writers, strict=True)},
    }


class ShardWriter:
    """Documents of one split -> pairs of files of at most `shard_bytes` of tokens; a document is
    never split over two shards."""

    def __init__(self, folder: Path, split: str, *, dtype: np.dtype[Any], shard_bytes: int) -> None:
        self._folder = folder
        self._split = split
        self._dtype = dtype
        self._limit = shard_bytes // dtype.itemsize
        self._shards: list[Shard] = []
        self._offsets = array("q", [0])
        """Of the documents of the shard that is being written."""

    def add(self, lengths_D: np.ndarray, ids_T: np.ndarray) -> None:
        """Adds D documents, laid end to end."""
        while len(lengths_D):
            begin = self._offsets[-1]
            ends_D = begin + np.cumsum(lengths_D, dtype=np.int64)
            # The documents that still fit; a document larger than a whole shard gets its own shard.
            fit = int(np.searchsorted(ends_D, self._limit, side="right"))
            if not fit and begin:
                self._finish()
                continue
            ends_D = ends_D[: max(fit, 1)]
            size = int(ends_D[-1]) - begin
            with self._file("tokens", "bin").open("ab" if len(self._offsets) > 1 else "wb") as file:
                file.write(np.ascontiguousarray(ids_T[:size], self._dtype).data)
            self._offsets.frombytes(ends_D.tobytes())
            lengths_D, ids_T = lengths_D[len(ends_D) :], ids_T[size:]

    def _file(self, kind: str, ending: str) -> Path:
        return self._folder / f"{kind}-{self._split}-{len(self._shards):05d}.{ending}"

    def _finish(self) -> None:
        tokens, documents = self._file("tokens", "bin"), self._file("documents", "npy")
        sync(tokens)
        size = self._offsets[-1], len(self._offsets) - 1
        hashes = sha256(tokens), put_array(documents, np.array(self._offsets))
        self._shards.append(Shard(tokens.name, documents.name, *size, *hashes))
        self._offsets = array("q", [0])

    def close(self) -> list[Shard]:
        if len(self._offsets) > 1:
            self._finish()
        return self._shards


def put_array(path: Path, array: np.ndarray) -> str:
    """Writes the numpy file whole or not at all. Returns its hash."""
    with written(path) as part, part.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    return sha256(path)
