"""A prepared corpus to the last byte: manifest, shards, counts and tokenizer, every one against
what was written down about it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..text.shards import MANIFEST, SEAL, Manifest, Shard, manifest_text, read_manifest
from ..text.tokenizer import TOKENIZER_FILE
from ..text.workspace import UNFINISHED, unfinished_state
from .corpus import Lengths, traps
from .files import (
    AGAIN,
    Bar,
    chunks,
    files_below,
    is_regular,
    links_out,
    named,
    read_bytes,
    read_json,
    sha256,
    size_of,
)
from .findings import DamageError, Diagnosis, Finding, error, note, ok, warning
from .tokenizers import check_tokenizer

PREPARE = "Prepare the corpus again in a new folder, or restore the file from a copy."
MAX_VOCABULARY = 1 << 24  # tables below have this many numbers at most


@dataclass(frozen=True)
class Data:
    """What comparing with a run needs of a prepared corpus."""

    folder: Path
    manifest: Manifest


def examine_data(folder: Path) -> tuple[Diagnosis, Data | None]:
    """Everything about a prepared corpus; None where its manifest says nothing that could be
    compared."""
    found = Diagnosis(folder, "DATA")
    kept: list[Manifest] = []
    found.run(lambda: manifest_findings(folder, kept))
    if not kept:
        return found, None
    manifest = kept[0]
    seen = Seen(manifest.vocab_size)
    with Bar(files_below(folder), title=f"reading {folder.name}") as bar:
        for split, shards in manifest.splits.items():
            for shard in shards:
                found.run(
                    lambda split=split, shard=shard: shard_findings(
                        folder, manifest, split, shard, seen, bar
                    )
                )
        found.run(lambda: unigram_findings(folder, manifest, seen, bar))
        found.run(lambda: tokenizer_findings(folder, manifest, bar))
    found.run(lambda: other_files(folder, manifest))
    found.run(lambda: links_out(folder))
    if not found.count("error"):
        shards = sum(map(len, manifest.splits.values()))
        tokens, documents = (
            sum(getattr(s, what) for shards in manifest.splits.values() for s in shards)
            for what in ("tokens", "documents")
        )
        fact = (
            f"{tokens:,} tokens in {documents:,} documents; every byte of {shards} shards, counts "
            "and tokenizer is as it was written"
        )
        found.findings.insert(0, ok("whole", fact))
    found.run(
        lambda: check_tokenizer(
            folder / "tokenizer", vocab_size=manifest.vocab_size, special=manifest.special_ids
        )
    )
    if seen.trusted:
        found.run(
            lambda: traps(manifest, unigram_V=seen.counts_V, lengths=seen.lengths, folder=folder)
        )
    return found, Data(folder, manifest)


# ------------------------------------------------------------------ the manifest


def manifest_findings(folder: Path, kept: list[Manifest]) -> Iterator[Finding]:
    """A manifest that can be worked with goes into `kept`."""
    if unfinished_state(folder) is not None and not (folder / MANIFEST).exists():
        fact = f"`prepare` is at work here, or was stopped: there is no {MANIFEST} yet"
        raise DamageError(
            "unfinished", fact, "The same `electrify prepare` command goes on where it stopped."
        )
    raw = read_json(folder / MANIFEST)
    manifest = read_manifest(folder)
    if manifest.vocab_size > MAX_VOCABULARY:
        raise DamageError("manifest", f"{MANIFEST}: vocab_size is {manifest.vocab_size:,}", PREPARE)
    kept.append(manifest)
    if manifest_text(raw).encode("utf-8", "surrogatepass") != read_bytes(folder / MANIFEST):
        yield error(
            "manifest",
            (
                f"{MANIFEST} was changed after it was written: it is not laid out byte for byte as "
                "`prepare` does"
            ),
            PREPARE,
        )
    if SEAL not in raw:
        yield note(
            "unsealed",
            (
                f"{MANIFEST} is of an earlier version: what it says of sources, options and counts "
                "cannot be verified"
            ),
        )
    for name in ("tokens", "documents"):
        have = sum(getattr(s, name) for shards in manifest.splits.values() for s in shards)
        if name in manifest.counts and manifest.counts[name] != have:
            yield error(
                "counts",
                f"the shards hold {have:,} {name} and {MANIFEST} counts {manifest.counts[name]:,}",
                PREPARE,
            )


# ------------------------------------------------------------------ shards


class Seen:
    """What the shards hold: the train split's tokens by id, and how long documents are."""

    def __init__(self, vocab_size: int) -> None:
        self.counts_V = np.zeros(vocab_size, np.int64)
        self.lengths = Lengths()
        self.trusted = True


def shard_findings(
    folder: Path, manifest: Manifest, split: str, shard: Shard, seen: Seen, bar: Bar
) -> Iterator[Finding]:
    dtype = np.dtype(manifest.dtype)
    good = True
    for name, size, check in (
        (
            shard.tokens_file,
            shard.tokens * dtype.itemsize,
            lambda: tokens_findings(folder, manifest, split, shard, seen, bar),
        ),
        (shard.documents_file, None, lambda: documents_findings(folder, shard, seen, bar)),
    ):
        path = folder / name
        if not is_regular(path):
            found = [
                error("missing", f"the file {name}, which {MANIFEST} names, is missing", PREPARE)
            ]
        elif size is not None and size_of(path) != size:
            how = "truncated" if size_of(path) < size else "too long"
            found = [
                error(
                    "size",
                    (
                        f"{name} has {size_of(path):,} bytes where {MANIFEST} says {size:,}: it is "
                        f"{how}"
                    ),
                    PREPARE,
                )
            ]
        else:
            found = list(check())
        good &= not found
        yield from found
    seen.trusted &= good


def tokens_findings(
    folder: Path, manifest: Manifest, split: str, shard: Shard, seen: Seen, bar: Bar
) -> Iterator[Finding]:
    found = hashlib.sha256()
    counts_V = np.zeros(manifest.vocab_size, np.int64)
    beyond = 0
    for data in chunks(folder / shard.tokens_file, bar):
        found.update(data)
        ids_T = np.frombuffer(data, manifest.dtype)
        outside = (
            int((ids_T >= manifest.vocab_size).sum()) if ids_T.max() >= manifest.vocab_size else 0
        )
        beyond += outside
        counts_V += np.bincount(
            ids_T[ids_T < manifest.vocab_size] if outside else ids_T, minlength=manifest.vocab_size
        )
    if found.hexdigest() != shard.tokens_sha256:
        yield error(
            "hash",
            f"{shard.tokens_file} does not have the hash in {MANIFEST}: bytes of it were changed",
            PREPARE,
        )
        return
    if beyond:
        yield error(
            "ids",
            (
                f"{shard.tokens_file} holds {beyond:,} ids beyond the vocabulary of "
                f"{manifest.vocab_size:,}"
            ),
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
        yield error(
            "specials", f"{shard.tokens_file} holds ids of special tokens ({shown})", advice
        )
    if split == "train":
        seen.counts_V += counts_V


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
    """Mapped, so that a header that promises too much costs no memory."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, MemoryError, OverflowError) as e:
        raise DamageError(
            "damaged", f"{path.name} is no array of numpy ({' '.join(str(e).split())[:100]})", AGAIN
        ) from e
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.ndim != 1:
        raise DamageError("damaged", f"{path.name} is no list of 64-bit numbers", AGAIN)
    return found


# ------------------------------------------------------------------ counts, tokenizer, other files


def unigram_findings(folder: Path, manifest: Manifest, seen: Seen, bar: Bar) -> Iterator[Finding]:
    path = folder / "unigram.npy"
    read_bytes(path, limit=1 << 32)
    if sha256(path, bar) != manifest.unigram_sha256:
        yield error(
            "hash",
            f"{path.name} does not have the hash in {MANIFEST}: bytes of it were changed",
            PREPARE,
        )
        return
    counts_V = load_array(path)
    if counts_V.shape != (manifest.vocab_size,):
        yield error(
            "unigram",
            f"{path.name} counts {len(counts_V):,} ids of a vocabulary of {manifest.vocab_size:,}",
            PREPARE,
        )
    elif seen.trusted and not np.array_equal(counts_V, seen.counts_V):
        odd = np.flatnonzero(counts_V != seen.counts_V)
        fact = (
            f"{path.name} counts {len(odd):,} ids otherwise than the train shards hold (id "
            f"{odd[0]}: {counts_V[odd[0]]:,}, {seen.counts_V[odd[0]]:,})"
        )
        yield error("unigram", fact, PREPARE)


def tokenizer_findings(folder: Path, manifest: Manifest, bar: Bar) -> Iterator[Finding]:
    wanted: dict[str, Any] = manifest.tokenizer_files | {TOKENIZER_FILE: manifest.tokenizer_sha256}
    for name, want in sorted(wanted.items()):
        path = folder / "tokenizer" / name
        if not is_regular(path):
            yield error(
                "missing", f"the file tokenizer/{name}, which {MANIFEST} names, is missing", PREPARE
            )
        elif sha256(path, bar) != want:
            yield error(
                "hash",
                f"tokenizer/{name} does not have the hash in {MANIFEST}: it was changed",
                PREPARE,
            )


def other_files(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """Shards that nobody reads, and what an interrupted `prepare` left."""
    known = {
        name
        for shards in manifest.splits.values()
        for s in shards
        for name in (s.tokens_file, s.documents_file)
    }
    found = sorted(p.name for p in folder.iterdir())
    extra = [
        n
        for n in found
        if n.startswith(("tokens-", "documents-"))
        and n.endswith((".bin", ".npy"))
        and n not in known
    ]
    if extra:
        fact = (
            f"{len(extra)} shard file{'s are' if len(extra) > 1 else ' is'} not in {MANIFEST} and "
            f"read by nobody: {named(extra)}"
        )
        yield warning(
            "extra-shards",
            fact,
            (
                "They are of another corpus or an earlier attempt: remove them, or prepare into a "
                "folder of its own."
            ),
        )
    left = [
        n
        for n in found
        if n.endswith(".part") or (n == UNFINISHED and unfinished_state(folder) is not None)
    ]
    if left:
        yield note(
            "left-over", f"unfinished files were left behind: {named(left)}", "They can be removed."
        )
