"""Part files -> shards, unigram counts and the manifest. The manifest comes last, because it is
what makes a folder a prepared corpus."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from ..errors import UserError
from ..oldfiles.reading import sha256_of
from ..oldfiles.whole import temporary, written
from ..progress import Progress
from ..special import SpecialIds
from .counts import UNK_CHARACTERS, UNK_DOCUMENTS
from .encode import WITHOUT_TOKENS
from .manifest import (
    FORMAT,
    MANIFEST,
    TOKENIZER,
    Dtype,
    Manifest,
    Shard,
    write_manifest,
    wrong_in,
)
from .part_files import read_part
from .placed import Placed
from .splits import SPLITS, Split
from .tokenizer import tokenizer_sha256
from .workspace import Workspace

COUNTED = (
    "documents",
    "words",
    "characters",
    "visible_characters",
    "bytes",
    "tokens",
    "unk_tokens",
    UNK_CHARACTERS,
    UNK_DOCUMENTS,
)
DROPPED_OR_CHANGED = (
    "duplicates",
    "blank",
    "encoding_errors",
    "nul_characters",
    "cuts",
    WITHOUT_TOKENS,
)


def join(
    space: Workspace,
    parts: Sequence[Any],
    *,
    counts: Counter[str],
    vocab_size: int,
    special: SpecialIds,
    shard_bytes: int,
    dtype: str,
) -> Manifest:
    """Writes shards, unigram.npy and the manifest into space.folder and returns the manifest."""
    unigram = np.zeros(vocab_size, np.int64)
    more: dict[str, Any] = {
        "dtype": np.dtype(dtype),
        "shard_bytes": shard_bytes,
        "placed": space.placed,
    }
    writers: dict[Split, ShardWriter] = {
        split: ShardWriter(space.folder, split, **more) for split in SPLITS
    }
    splits = _shards(parts, writers, unigram, dtype=dtype)
    _atomic_npy(space.folder / "unigram.npy", unigram, space.placed)
    tokenizer_files = space.publish_tokenizer()
    manifest = Manifest(
        format=FORMAT,
        dtype=cast(Dtype, np.dtype(dtype).name),
        vocab_size=vocab_size,
        special_ids=special,
        tokenizer_sha256=tokenizer_sha256(space.folder / TOKENIZER),
        unigram_sha256=sha256_of(space.folder / "unigram.npy"),
        splits=dict(splits.items()),
        options=space.options,
        sources=space.identities,
        counts={name: counts[name] for name in COUNTED + DROPPED_OR_CHANGED},
        tokenizer_files=dict(sorted(tokenizer_files.items())),
    )
    _must_be_one(manifest, space)
    write_manifest(space.folder, manifest)
    return manifest


def _must_be_one(manifest: Manifest, space: Workspace) -> None:
    """Raises UserError for a corpus that no other verb would read, and where its files are gone."""
    shards = [shard for found in manifest.splits.values() for shard in found]
    files = [name for shard in shards for name in (shard.tokens_file, shard.documents_file)]
    space.placed.must_be_there([*files, "unigram.npy"])
    space.placed.must_be_free(MANIFEST)
    odd = next(wrong_in(manifest), None)
    if odd is not None:
        raise UserError(
            f"{space.folder} would not be a corpus: {odd}. Texts that differ only in what the "
            "tokenizer does not see are the same there: give more text, or another "
            "--valid-fraction"
        )


def _shards(
    parts: Sequence[Any], writers: dict[Split, ShardWriter], unigram: np.ndarray, *, dtype: str
) -> dict[Split, list[Shard]]:
    """Writes the documents of the parts into shards, and adds the counts of each id in the train
    split to `unigram`."""
    with ExitStack() as opened, Progress(len(parts), title="joining", unit="parts") as bar:
        for writer in writers.values():
            opened.callback(writer.let_go)
        for part in parts:
            found = read_part(part.path, key=part.key, dtype=dtype)
            if found is None:
                raise UserError(
                    f"{part.path} was removed or changed while the corpus was prepared; run the "
                    "same command again"
                )
            for split, writer in writers.items():
                writer.add(*found[1][split])
            unigram += np.bincount(found[1]["train"][1], minlength=len(unigram))
            bar.advance()
        return {split: writer.close() for split, writer in writers.items()}


class ShardWriter:
    """Documents of one split -> pairs of files of at most `shard_bytes` of tokens; a document is
    never split over two shards."""

    def __init__(
        self,
        folder: Path,
        split: str,
        *,
        dtype: np.dtype[Any],
        shard_bytes: int,
        placed: Placed | None = None,
    ) -> None:
        """placed: records the files that are put into the folder; without it, any file with one of
        their names is replaced."""
        self._placed = placed
        self._folder = folder
        self._split = split
        self._dtype = dtype
        self._limit = shard_bytes // dtype.itemsize
        self._shards: list[Shard] = []
        self._file: IO[bytes] | None = None
        self._part = folder  # where the open file is until it is complete
        self._hash = hashlib.sha256()
        self._tokens = 0
        self._ends = [np.zeros(1, np.int64)]

    def add(self, lengths_D: np.ndarray, ids_T: np.ndarray) -> None:
        """Adds D documents, laid end to end."""
        ends_D = np.cumsum(lengths_D, dtype=np.int64)
        first = start = 0
        while first < len(lengths_D):
            # The documents that still fit; a document larger than a whole shard gets its own shard.
            fit = int(np.searchsorted(ends_D, start + self._limit - self._tokens, side="right"))
            if fit <= first and self._tokens:
                self._finish()
                continue
            last = max(fit, first + 1)
            self._write(ends_D[first:last] - start, ids_T[start : ends_D[last - 1]])
            first = last
            start = int(ends_D[last - 1])

    def _write(self, ends_D: np.ndarray, ids_T: np.ndarray) -> None:
        if self._file is None:
            self._part = temporary(self._folder)
            self._file = self._part.open("xb")
        data = np.ascontiguousarray(ids_T, self._dtype).tobytes()
        self._file.write(data)
        self._hash.update(data)
        self._ends.append(ends_D + self._tokens)
        self._tokens += len(ids_T)

    def _path(self, kind: str, suffix: str) -> Path:
        return self._folder / f"{kind}-{self._split}-{len(self._shards):05d}{suffix}"

    def _finish(self) -> None:
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        tokens = self._path("tokens", ".bin")
        index = self._path("documents", ".npy")
        _put(self._part, tokens, self._hash.hexdigest(), self._placed)
        offsets = np.concatenate(self._ends)
        digest = _atomic_npy(index, offsets, self._placed)
        shard = Shard(
            tokens.name, index.name, self._tokens, len(offsets) - 1, self._hash.hexdigest(), digest
        )
        self._shards.append(shard)
        self._file = None
        self._hash = hashlib.sha256()
        self._tokens = 0
        self._ends = [np.zeros(1, np.int64)]

    def let_go(self) -> None:
        """Closes open files after an error; the next run removes what is left of them."""
        if self._file is not None:
            with suppress(OSError):  # a full disk, whose error is already being raised
                self._file.close()

    def close(self) -> list[Shard]:
        self._finish()
        return self._shards


def _atomic_npy(path: Path, array: np.ndarray, placed: Placed | None) -> str:
    """Writes the file whole or not at all. Returns its hash."""
    part = temporary(path.parent)
    try:
        with written(part) as f:
            np.save(f, array, allow_pickle=False)
    except OSError as e:
        e.filename = str(path)  # the folder that the user knows
        raise
    digest = sha256_of(part)
    _put(part, path, digest, placed)
    return digest


def _put(part: Path, path: Path, digest: str, placed: Placed | None) -> None:
    if placed is None:
        part.replace(path)
    else:
        placed.put(part, path.name, digest)
