"""A prepared corpus: its files, their reader, the writer of its shards, and DATA as the user gives
it, which may be text that is prepared first.

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
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from annotated_types import Gt, Le

from ..errors import failing_as, need
from ..files import json_text, read_json, sha256, sync, text_hash, write, written
from ..progress import say
from ..values import Natural, SpecialIds

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = get_args(Split)
Dtype = Literal["uint16", "uint32"]
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
    tokens: Natural
    documents: Natural
    tokens_sha256: str
    documents_sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a prepared corpus."""

    format: Literal[1]
    dtype: Dtype
    """Of the token ids in a shard."""
    vocab_size: Annotated[int, Gt(0), Le(1 << 32)]
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
    """documents, words, characters, bytes, tokens, unk_tokens, duplicates, dropped ...: the numbers
    that `prepare` printed."""
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
    need(
        path.exists(),
        f"{folder} is not a prepared corpus: it has no {MANIFEST}",
        f"make one with `electrify prepare CORPUS --output-dir {quote(str(folder))}`",
    )
    fields = read_json(path)
    whole = fields.pop("sha256", None) == _hash_of(fields)
    need(whole, f"{path} is damaged or was edited: its checksum differs", AGAIN)
    return _schema().validate_python(fields)


@cache
def _schema() -> TypeAdapter[Manifest]:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def is_unfinished(folder: Path) -> bool:
    """Whether `prepare` has begun a corpus there and not ended it."""
    return (folder / STATE).is_file() and not (folder / MANIFEST).exists()


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
            need(
                found == wanted,
                f"{path} has {found} bytes where the manifest says {wanted}: it is truncated",
                AGAIN,
            )

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
        return [_array(self.folder / s.documents_file) for s in self.shards]

    def unigram(self) -> np.ndarray:
        """int64 [vocabulary]: how often each id occurs in the train split."""
        return _array(self.folder / UNIGRAM)


def verify(folder: Path, *, max_bytes: int = 1 << 62, key: int = 0) -> None:
    """Compares hashes with the manifest: of the files that say where tokens are and what they mean
    (documents, counts, tokenizer), and of token shards of up to `max_bytes` in all, the small
    validation split first and at least one of each split; another key selects other shards.

    Raises UserError naming the first file that is missing or differs.
    """
    manifest = read_manifest(folder)
    wanted = {UNIGRAM: manifest.unigram_sha256}
    wanted |= {f"{TOKENIZER}/{n}": h for n, h in sorted(manifest.tokenizer_files.items())}
    itemsize = np.dtype(manifest.dtype).itemsize
    left = max_bytes
    for split in ("valid", "train"):
        shards = Corpus(folder, split).shards
        wanted |= {s.documents_file: s.documents_sha256 for s in shards}
        chosen = [shards[k] for k in np.random.default_rng(key).permutation(len(shards))]
        for i, shard in enumerate(chosen):
            if i == 0 or shard.tokens * itemsize <= left:
                wanted[shard.tokens_file] = shard.tokens_sha256
                left -= shard.tokens * itemsize
    for name, digest in wanted.items():
        path = folder / name
        same = path.is_file() and sha256(path) == digest
        need(same, f"{path} does not have the hash in the manifest: it was changed", AGAIN)


def _array(path: Path) -> np.ndarray:
    with failing_as(f"{path} is missing or damaged; {AGAIN}"):
        return np.load(path, allow_pickle=False)


# ------------------------------------------------------------------ writing

Documents = tuple[np.ndarray, np.ndarray]
"""The lengths of some documents, and their token ids, laid end to end."""


class CorpusWriter:
    """Documents of both splits -> the files of a corpus, without its manifest."""

    def __init__(self, folder: Path, vocab_size: int, *, shard_mb: int) -> None:
        self._folder = folder
        self._dtype = token_dtype(vocab_size)
        self._unigram_V = np.zeros(vocab_size, np.int64)
        self._writers: dict[Split, ShardWriter] = {
            split: ShardWriter(folder, split, dtype=self._dtype, shard_bytes=shard_mb << 20)
            for split in SPLITS
        }

    def add(self, documents: dict[Split, Documents]) -> None:
        for split, writer in self._writers.items():
            writer.add(*documents[split])
        self._unigram_V += np.bincount(documents["train"][1], minlength=len(self._unigram_V))

    def close(self) -> dict[str, Any]:
        """The fields of the manifest that describe the files."""
        return {
            "format": 1,
            "dtype": self._dtype.name,
            "vocab_size": len(self._unigram_V),
            "unigram_sha256": put_array(self._folder / UNIGRAM, self._unigram_V),
            "splits": {split: writer.close() for split, writer in self._writers.items()},
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
        self._tokens = 0
        self._ends = [np.zeros(1, np.int64)]

    def add(self, lengths_D: np.ndarray, ids_T: np.ndarray) -> None:
        """Adds D documents, laid end to end."""
        while len(lengths_D):
            ends_D = np.cumsum(lengths_D, dtype=np.int64)
            # The documents that still fit; a document larger than a whole shard gets its own shard.
            fit = int(np.searchsorted(ends_D, self._limit - self._tokens, side="right"))
            if not fit and self._tokens:
                self._finish()
                continue
            fit = max(fit, 1)
            stop = int(ends_D[fit - 1])
            self._write(ends_D[:fit], ids_T[:stop])
            lengths_D, ids_T = lengths_D[fit:], ids_T[stop:]

    def _names(self) -> tuple[str, str]:
        number = f"{self._split}-{len(self._shards):05d}"
        return f"tokens-{number}.bin", f"documents-{number}.npy"

    def _write(self, ends_D: np.ndarray, ids_T: np.ndarray) -> None:
        begun = len(self._ends) > 1
        with (self._folder / self._names()[0]).open("ab" if begun else "wb") as file:
            file.write(np.ascontiguousarray(ids_T, self._dtype).data)
        self._ends.append(ends_D + self._tokens)
        self._tokens += len(ids_T)

    def _finish(self) -> None:
        tokens, documents = self._names()
        sync(self._folder / tokens)
        offsets = np.concatenate(self._ends)
        digest = put_array(self._folder / documents, offsets)
        whole = sha256(self._folder / tokens)
        self._shards.append(Shard(tokens, documents, self._tokens, len(offsets) - 1, whole, digest))
        self._tokens = 0
        self._ends = [np.zeros(1, np.int64)]

    def close(self) -> list[Shard]:
        if len(self._ends) > 1:
            self._finish()
        return self._shards


def put_array(path: Path, array: np.ndarray) -> str:
    """Writes the numpy file whole or not at all. Returns its hash."""
    with written(path) as part, part.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    return sha256(path)


# ------------------------------------------------------------------ DATA


def is_prepared(data: str) -> bool:
    """Whether it is a prepared corpus, by its manifest."""
    return (Path(data) / MANIFEST).exists()


def data_folder_of(run: Path) -> Path:
    """RUN-data, beside the run that a text is prepared for."""
    run = run if run.name not in ("", "..") else run.resolve()
    return run.with_name(run.name + "-data")


def prepared(data: str, run: Path, *, tokenizer: str | None = None) -> Path:
    """The prepared folder: `data` itself, or RUN-data made from the corpus `data` with the defaults
    of `electrify prepare`. tokenizer: the one to use instead of training one: a folder, or a Hub
    id. Raises UserError."""
    if is_prepared(data):
        return Path(data)
    from .options import PrepareConfig
    from .prepare import prepare
    from .sources import resolve

    fact = f"{data} is a prepared corpus that was never finished"
    need(not is_unfinished(Path(data)), fact, "repeat its `electrify prepare`, which continues")
    advice = f"run `electrify prepare {quote(data)} --output-dir DATA` before several processes do"
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    need(alone, f"{data} is not a prepared corpus", f"{advice} train on it")
    folder = data_folder_of(run)
    begun = run.exists() and (folder / MANIFEST).exists()
    if tokenizer and begun and not os.path.isdir(tokenizer):
        return folder  # a run that is continued needs neither that folder nor the Hub any more
    resolve((data,), {})  # a missing file is reported before anything is announced
    words = f" with the tokenizer of {tokenizer}" if tokenizer else ""
    say(f"{data} is not a prepared corpus: preparing it into {folder}{words}")
    how: dict[str, Any] = {"tokenizer": tokenizer} if tokenizer else {}
    prepare(PrepareConfig(inputs=(data,), output_dir=str(folder), **how))
    return folder
