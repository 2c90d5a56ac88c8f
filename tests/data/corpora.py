"""Small prepared corpora, written by hand through the dataclasses of text/corpus.py."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from electrify.files import sha256 as sha256_of
from electrify.text.corpus import Corpus, Manifest, Shard, token_dtype, write_manifest
from electrify.tokens import SpecialIds

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def corpus_of(folder: Path, shards: list[list[Any]], *, vocab_size: int) -> Corpus:
    """Documents of given ids, with the counts of each id."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype, rows, count_V = token_dtype(vocab_size), [], np.zeros(vocab_size, np.int64)
    for i, documents in enumerate(shards):
        tokens = np.concatenate([np.zeros(0), *documents]).astype(dtype)
        names = f"tokens-train-{i:05d}.bin", f"documents-train-{i:05d}.npy"
        tokens.tofile(folder / names[0])
        np.save(folder / names[1], np.cumsum([0, *map(len, documents)]).astype(np.int64))
        hashes = (sha256_of(folder / name) for name in names)
        rows.append(Shard(*names, len(tokens), len(documents), *hashes))
        count_V += np.bincount(tokens.astype(np.int64), minlength=vocab_size)
    np.save(folder / "unigram.npy", count_V)
    parts = {"train": rows}
    manifest = Manifest(1, dtype.name, vocab_size, SPECIAL, "", "", parts, {}, [], {}, {})
    write_manifest(folder, manifest)
    return Corpus(folder, "train")


def write_corpus(folder: Path, lengths: list[list[int]], *, vocab_size: int = 60_000) -> Corpus:
    """One shard a list of document lengths. Token ids count upwards from 5 through the corpus,
    modulo vocab_size - 5, so each place shows."""
    shards, first = [], 0
    for shard in lengths:
        ends = np.cumsum([first, *shard]).tolist()
        shards.append([np.arange(a, b) % (vocab_size - 5) + 5 for a, b in pairwise(ends)])
        first = ends[-1]
    return corpus_of(folder, shards, vocab_size=vocab_size)


def lognormal_lengths(
    count: int, *, median: float = 200, spread: float = 1.0, seed: int = 0
) -> list[int]:
    return np.random.default_rng(seed).lognormal(np.log(median), spread, count).astype(int).tolist()
