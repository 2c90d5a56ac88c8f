"""The options of `electrify prepare`, and presets for text that is not prose."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from ..errors import need
from ..names import nearest
from ..values import BelowOne, Count, Natural, Options, Positional

TRAINED = ("wordpiece", "bpe", "unigram", "character", "byte")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(Options):
    """What to read, how to tokenise it, and where the corpus goes."""

    inputs: Positional[tuple[str, ...]]
    """Files, folders and globs of txt, md, log, source code, jsonl (ndjson, json), csv, tsv,
    parquet, fasta (fa, faa, fna, ffn) and smi (smiles), all but parquet also compressed (gz, bz2,
    xz, zst). Or `pydocs` (the documentation of the installed Python packages), or
    hub:NAME[:CONFIG] (a data set of the Hugging Face Hub)."""
    output_dir: str
    """Folder of the corpus. The same command resumes there."""
    tokenizer: str = "wordpiece"
    """Tokenizer to train: wordpiece, bpe (byte-level), unigram, character or byte. Or an existing
    one, by folder or Hub id."""
    pre_tokenizer: Literal["auto", "whitespace", "none", "chunks"] = "auto"
    """Boundaries that no token of a trained tokenizer may cross: auto (words), whitespace, none
    (only every 64th character), chunks (every chunk_length characters; with --tokenizer character a
    whole chunk is one token, a k-mer)."""
    chunk_length: Annotated[int, Ge(2), Le(64)] | None = None
    """With --pre-tokenizer chunks: characters per chunk."""
    vocab_size: Annotated[int, Ge(32), Le(1 << 22)] = 30522
    """Size of a trained vocabulary, special tokens included."""
    lowercase: bool = True
    """Lower-case the text in a trained tokenizer."""
    strip_accents: bool | None = None
    """Remove accents in a trained tokenizer [default: as --lowercase, but off if more than 1 % of
    the words have accents]."""
    min_frequency: Natural = 2
    """Frequency below which a trained tokenizer ignores a token. unigram does not use it."""
    tokenizer_sample_mb: Annotated[int, Ge(1), Le(1 << 20)] = 100
    """Text in MB on which a tokenizer is trained, chosen by hash. It bounds the memory."""
    document_boundary: Literal["auto", "blank-line", "line", "file"] = "auto"
    """End of a document in files of text: auto is file for md and blank-line for all others. One
    blank line (also of spaces, also with CRLF) ends a document. Each row of a table, sequence of a
    fasta file or line of a smi file is a document."""
    text_column: str = "text"
    """Column of the text, by name or number from 0. In a file without a column `text`, another
    common name is looked for."""
    header: bool = True
    """The first line of a csv or tsv names the columns. Otherwise they are numbers from 0."""
    dataset_split: str = "train"
    """Split of a hub: data set."""
    encoding_errors: Literal["strict", "replace", "skip"] = "strict"
    """Text that is not UTF-8: stop, replace by U+FFFD, or skip the document."""
    deduplicate: bool = True
    """Drop documents whose text occurred before (16 bytes of memory per document)."""
    valid_fraction: BelowOne = 0.01
    """Share of documents in the validation set, chosen by the hash of their text."""
    allow_unk: bool = False
    """Accept a tokenizer that maps over 10 % of the characters to [UNK]."""
    max_documents: Count | None = None
    """Stop after this many documents."""
    shard_mb: Annotated[int, Ge(1), Le(1 << 20)] = 256
    """Largest shard in MB."""
    workers: Annotated[int, Ge(1), Le(1 << 10)] | None = None
    """Processes that tokenise [default: the number of cores, or the CPUs of a Ray cluster]. They do
    not change the result."""
    engine: Literal["local", "ray"] = "local"
    """Where to tokenise: on this host, or on the Ray cluster at RAY_ADDRESS. It does not change the
    result. Hosts need no shared storage, but the same package versions."""

    @property
    def accents_stripped(self) -> bool:
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @property
    def trains_tokenizer(self) -> bool:
        return self.tokenizer in TRAINED

    def check(self) -> None:
        named = bool(self.inputs)
        need(named, "inputs are missing: name a file, folder, glob, `pydocs` or hub:NAME")
        name, chunks = self.tokenizer, self.pre_tokenizer == "chunks"
        hint = nearest(name.lower(), TRAINED)
        is_name = self.trains_tokenizer or os.path.exists(name) or "/" in name
        # Before the Hub is asked.
        need(is_name or "did you mean" not in hint, f"there is no tokenizer {name!r}{hint}")
        own = self.trains_tokenizer or self.pre_tokenizer == "auto"
        need(own, "pre_tokenizer is for a tokenizer that is trained here")
        both = chunks == (self.chunk_length is not None)
        need(both, "chunk_length and pre_tokenizer chunks go together: give both")
        fits = not (chunks and name == "byte")
        need(fits, "pre_tokenizer chunks does not go with tokenizer byte")


def _preset(
    tokenizer: str, vocab_size: int, document_boundary: str, *, lowercase: bool = False, **more: Any
) -> dict[str, Any]:
    own = {"tokenizer": tokenizer, "vocab_size": vocab_size, "lowercase": lowercase}
    return {**own, "document_boundary": document_boundary, **more}


CHUNKS = {"pre_tokenizer": "chunks", "chunk_length": 6}
PRESETS = {
    "prose": _preset("wordpiece", 30522, "auto", lowercase=True),
    "code": _preset("bpe", 16384, "file"),
    "smiles": _preset("character", 512, "line"),
    "protein": _preset("character", 64, "line"),
    # Lower case marks repeats.
    "dna": _preset("character", 4224, "line", lowercase=True, **CHUNKS),
    "logs": _preset("bpe", 8192, "line"),
}
"""Options for a kind of text."""
LONG = ("code", "protein", "dna")
"""Presets whose sequences are pre-trained with 512 tokens; the others have 128."""


def defaults_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a preset sets beside the options that are given. Raises UserError for another name."""
    need(name in PRESETS, f"there is no preset {name!r}{nearest(name, PRESETS)}")
    # A chunk length belongs to its pre-tokenizer, and k-mers to their tokenizer.
    kmers = given.get("tokenizer", "character") == "character"
    alone = given.get("pre_tokenizer", "chunks") == "chunks" and kmers
    taken = given if alone else {*given, *CHUNKS}
    return {k: v for k, v in PRESETS[name].items() if k not in taken}


@dataclass(frozen=True, kw_only=True)
class Prepare(PrepareConfig):
    """The command: its options may come from a preset."""

    preset: Literal["prose", "code", "smiles", "protein", "dna", "logs"] | None = None
    """Defaults for a kind of text: case, boundaries, tokenizer and vocabulary."""

    @classmethod
    def defaults(cls, given: Mapping[str, str]) -> dict[str, Any]:
        return defaults_of(given["preset"], given) if "preset" in given else {}
