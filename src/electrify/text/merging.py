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

from ..errors import need
from ..files import sha256, sync
from ..progress import Progress
from ..special import SpecialIds
from .counts import UNK_CHARACTERS, UNK_DOCUMENTS
from .documents import EMPTY_ROWS
from .encode import WITHOUT_TOKENS
from .manifest import (
    Dtype,
    Manifest,
    Shard,
    write_manifest,
)
from .part_files import read_part
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
    EMPTY_ROWS,
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
        "inside": space.inside,
    }
    writers: dict[Split, ShardWriter] = {
        split: ShardWriter(space.folder, split, **more) for split in SPLITS
    }
    splits = _shards(parts, writers, unigram, dtype=dtype)
    unigram_sha256 = _put_array(space.folder / "unigram.npy", unigram, space.inside)
    manifest = Manifest(
        format=1,
        dtype=cast(Dtype, np.dtype(dtype).name),
        vocab_size=vocab_size,
        special_ids=special,
        tokenizer_sha256=tokenizer_sha256(space.tokenizer),
        unigram_sha256=unigram_sha256,
        splits=dict(splits.items()),
        options=space.options,
        sources=space.identities,
        counts={name: counts[name] for name in COUNTED + DROPPED_OR_CHANGED},
        tokenizer_files={p.name: sha256(p) for p in sorted(space.tokenizer.iterdir())},
    )
    _must_differ(manifest, space.folder)
    write_manifest(space.folder, manifest)
    return manifest


def _must_differ(manifest: Manifest, folder: Path) -> None:
    """Raises UserError if the two splits hold the same tokens, as those of a tiny corpus may."""
    train, valid = ({s.tokens_sha256 for s in manifest.splits[split]} for split in SPLITS)
    need(
        not train & valid,
        f"{folder} would have the same tokens in train and in valid: texts that differ only in "
        "what the tokenizer does not see are the same there",
        "give more text, or another --valid-fraction",
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
            need(found is not None, f"{part.path} was changed", "run the same command again")
            assert found is not None
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
        inside: Path | None = None,
    ) -> None:
        """inside: the folder, on the same disk, where a file is until it is complete."""
        self._inside = inside or folder
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
            self._part = self._inside / f".tokens-{self._split}.part"
            self._file = self._part.open("wb")
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
        self._part.replace(tokens)
        offsets = np.concatenate(self._ends)
        digest = _put_array(index, offsets, self._inside)
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


def _put_array(path: Path, array: np.ndarray, inside: Path) -> str:
    """Writes the file whole or not at all. Returns its hash."""
    part = inside / f".{path.name}"
    np.save(part, array, allow_pickle=False)
    sync(part)
    digest = sha256(part)
    part.replace(path)
    return digest
