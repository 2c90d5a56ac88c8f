"""The options of `electrify prepare`."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from ..console import brief
from ..errors import UserError
from .given import Checked

MAX_VOCABULARY = (
    1 << 22
    # Four times the largest published vocabulary; the libraries reserve memory for the requested
    # number of pieces.
)
TRAINED = ("wordpiece", "bpe", "unigram", "character", "byte")
# Other names for kinds of tokenizers, with the nearest kind of ours. The Hub has no repositories
# with such names, and asking it takes a minute.
ALSO_CALLED = {
    "bytelevel": "bpe",
    "bytes": "byte",
    "char": "character",
    "chars": "character",
    "characters": "character",
    "charlevel": "character",
    "kmer": "character",
    "kmers": "character",
    "bbpe": "bpe",
    "tiktoken": "bpe",
    "gpt2bpe": "bpe",
    "sentencepiece": "unigram",
    "spm": "unigram",
    "ulm": "unigram",
    "bert": "wordpiece",
    "word": "",
    "words": "",
    "wordlevel": "",
    "whitespace": "",
    "none": "",
}


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(Checked):
    """What to read, how to split it into documents and tokens, and where to put the result."""

    HEADINGS: ClassVar = {
        "inputs": "corpus and result",
        "tokenizer": "the tokenizer",
        "document_boundary": "reading the text",
        "deduplicate": "which documents are kept, and for what",
        "shard_mb": "files and processes",
    }
    inputs: tuple[str, ...]
    """files, folders (searched to the bottom, in sorted order; links to folders are not followed)
    and globs of txt, md, jsonl, csv, tsv, parquet, fasta (.fa, .faa, .fna, .ffn) and smi, each but
    parquet also with .gz .bz2 .xz .zst; `pydocs` for the documentation of the installed Python
    packages; `hub:NAME[:CONFIG]` for a data set of the Hugging Face Hub or of a local folder"""
    output_dir: str
    """the folder of the prepared corpus; new or empty, or one in which the same command was
    interrupted"""
    tokenizer: str = "wordpiece"
    """wordpiece, bpe (byte-level), unigram, character or byte to train one on this corpus, or an
    existing one by folder or Hub name"""
    pre_tokenizer: Literal["auto", "whitespace", "none", "chunks"] = "auto"
    """what the pieces of a trained tokenizer do not cross; auto: words as is usual for its kind;
    whitespace: white space only; none: nothing, for text without spaces (but every 64th character);
    chunks: every chunk_length characters (with tokenizer character the chunks are the tokens,
    k-mers)"""
    chunk_length: int | None = None
    """characters of a chunk of pre_tokenizer chunks"""
    vocab_size: int = 30522
    """size of a trained vocabulary, special tokens included"""
    lowercase: bool = True
    """a trained tokenizer lower-cases the text"""
    strip_accents: bool | None = None
    """a trained tokenizer removes accents; the default is the value of lowercase"""
    min_frequency: int = 2
    """a trained vocabulary takes pieces that occur at least this often (unigram does not use it)"""
    tokenizer_sample_mb: int = 100
    """a tokenizer is trained on at most this much text in MB, documents chosen by hash; bounds
    memory too"""
    document_boundary: Literal["auto", "blank-line", "line", "file", "record"] = "auto"
    """where a document of a txt or md file ends; auto: blank-line for txt, file for md. A row of
    jsonl, csv, tsv, parquet and data sets, a sequence of fasta and a molecule of smi is always a
    document"""
    text_column: str = "text"
    """the key or column that holds the text; where a file has no `text`, its only column with a
    name that `finetune` knows (sentence, content, review, body, ...)"""
    dataset_split: str = "train"
    """the split of a `hub:` data set"""
    encoding_errors: Literal["strict", "replace", "skip"] = "strict"
    """text that is not UTF-8: strict stops and says where, replace puts U+FFFD, skip drops the
    document; both count"""
    deduplicate: bool = True
    """drop documents whose text occurred before (128-bit hashes, 16 bytes of memory a document, 48
    while they are merged)"""
    valid_fraction: float = 0.01
    """share of documents set aside for validation, chosen by the hash of the text, so independent
    of order"""
    allow_unk: bool = False
    """accept a tokenizer that does not know more than a tenth of the characters ([UNK])"""
    max_documents: int | None = None
    """stop after this many documents"""
    shard_mb: int = 256
    """maximum size of a token file, in MB of 2**20 bytes"""
    workers: int | None = None
    """processes that tokenise; default: the number of cores, or all CPUs of a joined Ray cluster.
    Does not change the result"""
    engine: Literal["local", "ray"] = "local"
    """where to tokenise: in processes of this host, or on a Ray cluster (the one at RAY_ADDRESS;
    without it, one is started on this host and ended after the work). This process alone reads the
    corpus and writes output_dir, so hosts need no shared storage, only the same versions of
    electrify and its packages. Does not change the result"""

    @property
    def accents_stripped(self) -> bool:
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @property
    def trains_tokenizer(self) -> bool:
        return self.tokenizer in TRAINED

    def check(self) -> None:
        """Raises UserError for a value that cannot work."""
        self._check_names()
        self._check_tokenizer()
        self._check_chunks()
        if not 0 <= self.valid_fraction < 1:
            raise UserError(
                f"valid_fraction must be at least 0 and below 1, not {self.valid_fraction}"
            )
        for name, least, most in (
            ("vocab_size", 32, MAX_VOCABULARY),
            ("chunk_length", 2, 64),
            ("min_frequency", 0, 1 << 31),
            ("tokenizer_sample_mb", 1, 1 << 20),
            ("shard_mb", 1, 1 << 20),
            ("max_documents", 1, 1 << 48),
            ("workers", 1, 1 << 10),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(
                    f"{name} must be at {f'least {least}' if value < least else f'most {most}'}, "
                    f"not {value}"
                )

    def _check_chunks(self) -> None:
        """Raises UserError for a pre-tokenizer that the tokenizer has no use for."""
        if not self.trains_tokenizer and self.pre_tokenizer != "auto":
            raise UserError(
                f"pre_tokenizer {self.pre_tokenizer} is for a tokenizer that is trained here, and "
                f"{brief(self.tokenizer)} has its own; leave one of the two out"
            )
        chunks = self.pre_tokenizer == "chunks"
        if chunks and self.chunk_length is None:
            raise UserError("pre_tokenizer chunks needs chunk_length, the characters of a chunk")
        if self.chunk_length is not None and not chunks:
            raise UserError(
                f"chunk_length {self.chunk_length} is for pre_tokenizer chunks, not "
                f"{self.pre_tokenizer}"
            )
        if self.tokenizer == "byte" and chunks:
            raise UserError(
                "tokenizer byte has pieces of one byte, which no chunk cuts: choose tokenizer bpe "
                "or character with pre_tokenizer chunks"
            )

    def _check_names(self) -> None:
        if not self.inputs:
            raise UserError(
                "nothing to prepare: name at least one file, folder, glob, `pydocs` or `hub:NAME`"
            )
        if not all(item.strip() for item in self.inputs):
            raise UserError(
                "an input is an empty text: name a file, folder or glob (`.` is the folder you are "
                "in)"
            )
        zeros = [name for name in ("output_dir", "tokenizer") if "\0" in getattr(self, name)]
        if zeros or any("\0" in item for item in self.inputs):
            raise UserError(
                f"{(zeros or ['inputs'])[0]} holds a zero byte, which no path does: look at how it "
                "was made"
            )
        if not self.output_dir.strip():
            raise UserError("output_dir is empty: name the folder of the prepared corpus")
        for name in ("text_column", "dataset_split"):
            if any(0xD800 <= ord(c) < 0xE000 for c in getattr(self, name)):
                raise UserError(f"{name} is not UTF-8 text: look at how it was written")

    def _check_tokenizer(self) -> None:
        """Raises UserError for the name of a kind of tokenizer that we do not have, before the Hub
        is asked for it."""
        if not self.tokenizer.strip():
            raise UserError(
                f"tokenizer is empty: choose {', '.join(TRAINED)}, a folder or a name on the Hub"
            )
        if os.path.isfile(self.tokenizer):
            folder = os.path.dirname(self.tokenizer) or "."
            raise UserError(
                f"tokenizer {brief(self.tokenizer)} is a file; name the folder that it lies in, "
                f"{brief(folder)}"
            )
        # os.path.exists, because Path.exists raises for names that are too long for a file.
        if self.trains_tokenizer or os.path.exists(self.tokenizer):
            return
        plain = "".join(c for c in self.tokenizer.lower() if c.isalnum())
        close = difflib.get_close_matches(plain, TRAINED, n=1, cutoff=0.7)
        meant = plain if plain in TRAINED else ALSO_CALLED.get(plain, close[0] if close else None)
        if meant:
            raise UserError(f"there is no tokenizer {self.tokenizer!r}; did you mean {meant!r}?")
        if meant == "":
            raise UserError(
                f"there is no tokenizer {self.tokenizer!r}; choose {', '.join(TRAINED)}, a folder "
                "or a name on the Hub"
            )

    def unused(self, formats: set[str]) -> list[str]:
        """What is said of the given options that have no effect."""
        defaults: dict[str, Any] = {f.name: f.default for f in fields(self)}
        return [
            f"{name} {getattr(self, name)} changes nothing: {why}"
            for name, why in self.idle(formats).items()
            if getattr(self, name) != defaults[name]
        ]

    def idle(self, formats: set[str]) -> dict[str, str]:
        """The options that have no effect, whatever their value is, and why: options for training a
        tokenizer if an existing one is used, or for kinds of files that do not occur.

        formats: of the files to be read.
        """
        rows = {"jsonl", "csv", "tsv", "parquet", "hub", "pydocs"}
        idle: dict[str, str] = {}
        if not self.trains_tokenizer:
            names = (
                "vocab_size",
                "lowercase",
                "strip_accents",
                "min_frequency",
                "tokenizer_sample_mb",
            )
            idle |= dict.fromkeys(names, "the tokenizer is taken as it is, not trained")
        if self.tokenizer == "unigram":
            idle["min_frequency"] = "unigram does not use it"
        if self.tokenizer == "byte":
            names = ("vocab_size", "min_frequency", "tokenizer_sample_mb")
            idle |= dict.fromkeys(names, "a byte vocabulary is the 256 bytes")
        if not formats & rows:
            idle["text_column"] = "no input has rows"
        if "hub" not in formats:
            idle["dataset_split"] = "no input is a data set (hub:NAME)"
        if not formats & {"txt", "md"} and self.document_boundary != "record":
            idle["document_boundary"] = "each record is a document"
        return idle
