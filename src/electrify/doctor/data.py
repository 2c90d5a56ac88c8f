"""Verifies a prepared corpus to the last byte: manifest, shards, counts and tokenizer, each against
what was recorded about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..oldfiles.seals import SEAL
from ..oldfiles.seals import text_of as manifest_text
from ..text.manifest import MANIFEST, TOKENIZER, Manifest, read_manifest
from ..text.placed import UNFINISHED, unfinished_state
from ..text.tokenizer import TOKENIZER_FILE
from .corpus import traps
from .files import Bar, files_below, is_regular, links_out, named, read_bytes, read_json, sha256
from .findings import DamageError, Diagnosis, Finding, error, note, ok, warning
from .shards import PREPARE, Seen, load_array, shard_findings
from .tokenizers import check_tokenizer, leading_out

MAX_VOCABULARY = 1 << 24  # the tables below have at most this many numbers


@dataclass(frozen=True)
class Data:
    """The facts about a prepared corpus that a comparison with a run needs."""

    folder: Path
    manifest: Manifest


def examine_data(folder: Path) -> tuple[Diagnosis, Data | None]:
    """Checks everything about a prepared corpus. Returns None if its manifest says nothing that
    could be compared with a run."""
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
                found.run(partial(shard_findings, folder, manifest, split, shard, seen, bar))
        found.run(lambda: unigram_findings(folder, manifest, seen, bar))
        found.run(lambda: tokenizer_findings(folder, manifest, bar))
    found.run(lambda: other_files(folder, manifest))
    found.run(lambda: links_out(folder))
    if not found.count("error"):
        found.findings.insert(0, whole(manifest))
    found.run(lambda: leading_out(folder / TOKENIZER))
    found.run(
        lambda: check_tokenizer(
            folder / TOKENIZER, vocab_size=manifest.vocab_size, special=manifest.special_ids
        )
    )
    if seen.trusted:
        found.run(
            lambda: traps(manifest, unigram_V=seen.counts_V, lengths=seen.lengths, folder=folder)
        )
    return found, Data(folder, manifest)


def whole(manifest: Manifest) -> Finding:
    """The finding for a corpus in which nothing is damaged."""
    shards = [shard for split in manifest.splits.values() for shard in split]
    tokens = sum(s.tokens for s in shards)
    documents = sum(s.documents for s in shards)
    return ok(
        "whole",
        f"{tokens:,} tokens in {documents:,} documents; every byte of {len(shards)} shards, counts "
        "and tokenizer is as it was written",
    )


# ------------------------------------------------------------------ the manifest


def manifest_findings(folder: Path, kept: list[Manifest]) -> Iterator[Finding]:
    """Checks the manifest; a usable one is put into `kept`."""
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
            f"the counts of {len(odd):,} ids in {path.name} are not those of the train shards (id "
            f"{odd[0]}: {counts_V[odd[0]]:,}, {seen.counts_V[odd[0]]:,})"
        )
        yield error("unigram", fact, PREPARE)


def tokenizer_findings(folder: Path, manifest: Manifest, bar: Bar) -> Iterator[Finding]:
    wanted: dict[str, Any] = manifest.tokenizer_files | {TOKENIZER_FILE: manifest.tokenizer_sha256}
    for name, want in sorted(wanted.items()):
        path = folder / TOKENIZER / name
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
    """Shards that are not in the manifest, and leftovers of an interrupted `prepare`."""
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
                "new folder."
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
