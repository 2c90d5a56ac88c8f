"""Verifies the shards of a prepared corpus to the last byte: hashes, ids, and where documents
begin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from ..oldfiles.arrays import mapped_list
from ..text.manifest import MANIFEST, Manifest, Shard
from .corpus import Lengths
from .files import Bar, chunks, found_in, is_regular, named, sha256, size_of
from .findings import Finding, error

PREPARE = "Prepare the corpus again in a new folder, or restore the file from a copy."


class Seen:
    """The content of the shards: counts of the train split's tokens by id, and lengths of
    documents."""

    def __init__(self, vocab_size: int) -> None:
        self.counts_V = np.zeros(vocab_size, np.int64)
        self.lengths = Lengths()
        self.trusted = True


def shard_findings(
    folder: Path, manifest: Manifest, split: str, shard: Shard, seen: Seen, bar: Bar
) -> Iterator[Finding]:
    size = shard.tokens * np.dtype(manifest.dtype).itemsize
    tokens = folder / shard.tokens_file
    found = list(
        file_findings(
            tokens, size, lambda: tokens_findings(folder, manifest, split, shard, seen, bar)
        )
    )
    yield from found
    documents = folder / shard.documents_file
    others = list(
        file_findings(documents, None, lambda: documents_findings(folder, shard, seen, bar))
    )
    yield from others
    seen.trusted &= not found and not others


def file_findings(
    path: Path, size: int | None, check: Callable[[], Iterable[Finding]]
) -> Iterator[Finding]:
    """The findings of `check` for a file, after verifying that it exists and, if a size is given,
    has that size."""
    name = path.name
    if not is_regular(path):
        yield error("missing", f"the file {name}, which {MANIFEST} names, is missing", PREPARE)
    elif size is not None and size_of(path) != size:
        how = "truncated" if size_of(path) < size else "too long"
        fact = f"{name} has {size_of(path):,} bytes where {MANIFEST} says {size:,}: it is {how}"
        yield error("size", fact, PREPARE)
    else:
        yield from check()


def tokens_findings(
    folder: Path, manifest: Manifest, split: str, shard: Shard, seen: Seen, bar: Bar
) -> Iterator[Finding]:
    name = shard.tokens_file
    digest, counts_V, beyond = read_tokens(folder / name, manifest, bar)
    if digest != shard.tokens_sha256:
        yield error(
            "hash",
            f"{name} does not have the hash in {MANIFEST}: bytes of it were changed",
            PREPARE,
        )
        return
    if beyond:
        yield error(
            "ids",
            f"{name} holds {beyond:,} ids beyond the vocabulary of {manifest.vocab_size:,}",
            PREPARE,
        )
    forbidden = {
        i: int(counts_V[i])
        for i in manifest.special_ids.never_chosen
        if i < manifest.vocab_size and counts_V[i]
    }
    if forbidden:
        shown = named(f"{n:,} times {i}" for i, n in forbidden.items())
        advice = (
            "Nothing between documents is stored, so they come from the text; prepare it with a "
            "tokenizer that reads [MASK] in a text as text."
        )
        yield error("specials", f"{name} holds ids of special tokens ({shown})", advice)
    if split == "train":
        seen.counts_V += counts_V


def read_tokens(path: Path, manifest: Manifest, bar: Bar) -> tuple[str, np.ndarray, int]:
    """The hash of a file of tokens, how often each id occurs, and the number of ids beyond the
    vocabulary."""
    size = manifest.vocab_size
    found = hashlib.sha256()
    counts_V = np.zeros(size, np.int64)
    beyond = 0
    for data in chunks(path, bar):
        found.update(data)
        ids_T = np.frombuffer(data, manifest.dtype)
        outside = int((ids_T >= size).sum()) if ids_T.max() >= size else 0
        beyond += outside
        counts_V += np.bincount(ids_T[ids_T < size] if outside else ids_T, minlength=size)
    return found.hexdigest(), counts_V, beyond


def documents_findings(folder: Path, shard: Shard, seen: Seen, bar: Bar) -> Iterator[Finding]:
    name = shard.documents_file
    if sha256(folder / name, bar) != shard.documents_sha256:
        yield error(
            "hash",
            f"{name} does not have the hash in {MANIFEST}: bytes of it were changed",
            PREPARE,
        )
        return
    offsets = load_array(folder / name)
    if offsets.shape != (shard.documents + 1,) or offsets[0] != 0 or offsets[-1] != shard.tokens:
        yield error(
            "offsets",
            f"{name} does not go from 0 to {shard.tokens:,} in {shard.documents:,} documents",
            PREPARE,
        )
        return
    lengths_D = np.diff(offsets)
    if (lengths_D < 0).any():
        at = int(np.argmax(lengths_D < 0))
        yield error("offsets", f"{name} goes back at document {at:,}: offsets must grow", PREPARE)
        return
    seen.lengths.add(lengths_D)


def load_array(path: Path) -> np.ndarray:
    """A memory-mapped list of numbers. Raises DamageError."""
    return found_in(path, lambda: mapped_list(path))
