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

from ..errors import UserError
from ..oldfiles.arrays import mapped_list
from ..oldfiles.reading import FileError, MissingError, UnreadableError, must_be_regular, sha256_of
from .manifest import Manifest, read_manifest
from .mapped import MappedFiles, Named
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
            for name, size in (
                (shard.tokens_file, shard.tokens * itemsize),
                (shard.documents_file, None),
            ):
                path = folder / name
                try:
                    must_be_regular(path, within=folder)
                except MissingError:
                    raise UserError(
                        f"{folder}: the file {name} named by the manifest is missing; prepare the "
                        "corpus again"
                    ) from None
                if size is not None and path.stat().st_size != size:
                    raise UserError(
                        f"{path} has {path.stat().st_size} bytes where the manifest says {size}: "
                        "it is truncated; prepare the corpus again"
                    )

    @property
    def num_tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @property
    def num_documents(self) -> int:
        return sum(s.documents for s in self.shards)

    @property
    def tokens(self) -> list[np.ndarray]:
        """One read-only array of ids per shard, to be read with `mapped.read`, which survives a
        truncated file."""
        return self.mapped.arrays

    @cached_property
    def mapped(self) -> MappedFiles:
        return MappedFiles(
            [Named(self.folder / s.tokens_file, s.tokens, s.tokens_sha256) for s in self.shards],
            np.dtype(self.manifest.dtype),
        )

    @cached_property
    def documents(self) -> list[np.ndarray]:
        """One int64 array of documents + 1 offsets per shard."""
        arrays = []
        for s in self.shards:
            path = self.folder / s.documents_file
            try:
                offsets = np.array(mapped_list(path, within=path.parent))
            except UnreadableError:
                raise
            except FileError as e:
                raise UserError(
                    f"{path} is damaged: it holds no array of offsets; prepare the corpus again"
                ) from e
            whole = offsets.shape == (s.documents + 1,) and offsets.dtype == np.int64
            if (
                not whole
                or offsets[0] != 0
                or offsets[-1] != s.tokens
                or (np.diff(offsets) < 0).any()
            ):
                raise UserError(
                    f"{path} does not agree with the manifest; prepare the corpus again"
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
        path = self.folder / "unigram.npy"
        try:
            counts = np.array(mapped_list(path, within=path.parent))
        except UnreadableError:
            raise
        except FileError as e:
            raise UserError(
                f"{path} is missing or damaged (it {e.why}); prepare the corpus again"
            ) from e
        if (
            counts.shape != (self.manifest.vocab_size,)
            or counts.dtype != np.int64
            or counts.min() < 0
        ):
            raise UserError(f"{path} does not agree with the manifest; prepare the corpus again")
        return counts

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
    for name, sha256 in sorted(
        (manifest.tokenizer_files | {"tokenizer.json": manifest.tokenizer_sha256}).items()
    ):
        must_have(folder, f"tokenizer/{name}", sha256)


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


def must_have(folder: Path, name: str, sha256: str) -> None:
    path = folder / name
    try:
        found = sha256_of(path, within=folder)
    except MissingError:
        found = ""
    if found != sha256:
        raise UserError(
            f"{path} does not have the hash in the manifest: it was changed; prepare the corpus "
            "again"
        )
