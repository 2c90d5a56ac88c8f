"""The byte layout of a prepared corpus, and its reader.

    DATA/manifest.json                 what is here, from what, with which options; sizes and
                                       sha256 of every file (manifest.py)
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

from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import UserError, need
from ..files import sha256
from .manifest import AGAIN, Manifest, read_manifest
from .splits import Split


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
            need((folder / shard.documents_file).is_file(), _missing(folder, shard.documents_file))
            path = folder / shard.tokens_file
            need(path.is_file(), _missing(folder, path.name))
            found, wanted = path.stat().st_size, shard.tokens * itemsize
            need(
                found == wanted,
                f"{path} has {found} bytes where the manifest says {wanted}: it is truncated",
                AGAIN,
            )

    @property
    def num_tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @property
    def num_documents(self) -> int:
        return sum(s.documents for s in self.shards)

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
        arrays = []
        for s in self.shards:
            offsets = _array(self.folder / s.documents_file, s.documents + 1)
            whole = offsets[0] == 0 and offsets[-1] == s.tokens and (np.diff(offsets) >= 0).all()
            need(
                bool(whole),
                f"{self.folder / s.documents_file} does not agree with the manifest",
                AGAIN,
            )
            arrays.append(offsets)
        return arrays

    def sound(self, ids: np.ndarray) -> np.ndarray:
        """Returns the ids that were read. Raises UserError if one is beyond the vocabulary. Each
        piece is checked when it is read, because a corpus is never read as a whole."""
        if ids.max(initial=0) >= self.manifest.vocab_size:
            raise UserError(
                f"{self.folder} holds the token {ids.max()}, beyond its vocabulary of "
                f"{self.manifest.vocab_size}: it is damaged; prepare it again"
            )
        return ids

    def unigram(self) -> np.ndarray:
        """int64 [vocabulary]: how often each id occurs in the train split."""
        return _array(self.folder / "unigram.npy", self.manifest.vocab_size)

    def verify(self) -> None:
        """Reads every byte; raises UserError naming the first file whose hash differs from the
        manifest."""
        self.verify_documents()
        self.verify_tokens()

    def verify_documents(self) -> None:
        """Verifies the files that say where documents begin; raises as `verify`."""
        for s in self.shards:
            must_have(self.folder, s.documents_file, s.documents_sha256)

    def verify_tokens(self, *, max_bytes: int = 1 << 62, key: int = 0) -> int:
        """Verifies shards of up to `max_bytes` in all, and at least one; another key selects other
        shards. Raises as `verify`. Returns the number of bytes that were read."""
        read = 0
        for k in np.random.default_rng(key).permutation(len(self.shards)):
            s = self.shards[k]
            size = s.tokens * np.dtype(self.manifest.dtype).itemsize
            if not read or read + size <= max_bytes:
                must_have(self.folder, s.tokens_file, s.tokens_sha256)
                read += size
        return read


def verify_common(folder: Path, manifest: Manifest) -> None:
    """Verifies the counts and the tokenizer, which both splits need. Raises UserError naming the
    first file whose hash differs from the manifest."""
    must_have(folder, "unigram.npy", manifest.unigram_sha256)
    for name, digest in sorted(manifest.tokenizer_files.items()):
        must_have(folder, f"tokenizer/{name}", digest)


def verify_sample(folder: Path, *, max_bytes: int, key: int) -> None:
    """Verifies the files that say where tokens are and what they mean (documents, counts,
    tokenizer), and token shards of up to `max_bytes`, the small validation split first; another key
    selects other shards. Raises as `Corpus.verify`, which checks everything."""
    valid = Corpus(folder, "valid")
    train = Corpus(folder, "train")
    verify_common(folder, train.manifest)
    for corpus in (valid, train):
        corpus.verify_documents()
    train.verify_tokens(
        max_bytes=max_bytes - valid.verify_tokens(max_bytes=max_bytes, key=key), key=key
    )


def must_have(folder: Path, name: str, digest: str) -> None:
    """Raises UserError if a file is missing or does not have the hash."""
    need((folder / name).is_file(), _missing(folder, name))
    need(
        sha256(folder / name) == digest,
        f"{folder / name} does not have the hash in the manifest: it was changed",
        AGAIN,
    )


def _missing(folder: Path, name: str) -> str:
    return f"{folder}: the file {name} named by the manifest is missing; {AGAIN}"


def _array(path: Path, numbers: int) -> np.ndarray:
    """The int64 numbers in a numpy file. Raises UserError if it holds something else."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise UserError(f"{path} is missing or damaged ({e})", AGAIN) from e
    need(
        found.shape == (numbers,) and found.dtype == np.int64,
        f"{path} does not agree with the manifest",
        AGAIN,
    )
    return found
