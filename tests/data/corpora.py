"""Small prepared corpora, written by hand through the dataclasses of text/corpus.py."""

from pathlib import Path

import numpy as np

from electrify.files import sha256 as sha256_of
from electrify.text.corpus import Corpus, Manifest, Shard, token_dtype, write_manifest
from electrify.tokens import SpecialIds

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def write_corpus(
    folder: Path, lengths: list[list[int]], *, vocab_size: int = 60_000, split: str = "train"
) -> Corpus:
    """One shard a list of document lengths. Token ids count upwards from 5 through the corpus,
    modulo vocab_size - 5, so each place shows."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype, shards, first = token_dtype(vocab_size), [], 0
    for i, shard in enumerate(lengths):
        tokens = (np.arange(first, first + sum(shard)) % (vocab_size - 5) + 5).astype(dtype)
        first += sum(shard)
        names = f"tokens-{split}-{i:05d}.bin", f"documents-{split}-{i:05d}.npy"
        tokens.tofile(folder / names[0])
        np.save(folder / names[1], np.cumsum([0, *shard]).astype(np.int64))
        shards.append(
            Shard(*names, len(tokens), len(shard), *(sha256_of(folder / name) for name in names))
        )
    manifest = Manifest(1, dtype.name, vocab_size, SPECIAL, "", "", {split: shards}, {}, [], {}, {})
    write_manifest(folder, manifest)
    return Corpus(folder, split)  # type: ignore[arg-type]


def lognormal_lengths(
    count: int, *, median: float = 200, spread: float = 1.0, seed: int = 0
) -> list[int]:
    return np.random.default_rng(seed).lognormal(np.log(median), spread, count).astype(int).tolist()
