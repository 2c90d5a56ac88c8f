"""The options of `electrify prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..errors import UserError

MAX_VOCABULARY = 1 << 22  # four times the largest published; the libraries reserve memory for as many pieces as are asked for
TRAINED = ("wordpiece", "bpe", "unigram")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """What to read, how to cut it into documents and tokens, where to put the result."""

    HEADINGS: ClassVar = {
        "inputs": "corpus and result",
        "tokenizer": "the tokenizer",
        "document_boundary": "reading the text",
        "deduplicate": "which documents are kept, and for what",
        "shard_mb": "files and processes",
    }
    inputs: tuple[str, ...]
    """files, folders (searched to the bottom, in sorted order) and globs of txt, md, jsonl, csv, tsv and parquet, each but parquet also with
    .gz .bz2 .xz .zst; `pydocs` for the documentation of the installed Python packages; `hub:NAME[:CONFIG]` for a data set of the Hugging Face Hub
    or of a local folder"""
    output_dir: str
    """the folder of the prepared corpus; new or empty, or that of the same command interrupted"""
    tokenizer: str = "wordpiece"
    """wordpiece, bpe (byte-level) or unigram to train one on this corpus, or an existing one by folder or Hub name"""
    vocab_size: int = 30522
    """size of a trained vocabulary, special tokens included"""
    lowercase: bool = True
    """a trained tokenizer lower-cases the text"""
    strip_accents: bool | None = None
    """a trained tokenizer removes accents; the default is what lowercase is"""
    min_frequency: int = 2
    """a trained vocabulary takes pieces that occur at least this often"""
    tokenizer_sample_mb: int = 100
    """a tokenizer is trained on at most this much text in MB, documents chosen by hash; bounds memory too"""
    document_boundary: Literal["auto", "blank-line", "line", "file", "record"] = "auto"
    """where a document of a txt or md file ends; auto: blank-line for txt, file for md. A row of jsonl, csv, tsv, parquet and data sets is always a
    document"""
    text_column: str = "text"
    """the key or column that holds the text"""
    dataset_split: str = "train"
    """the split of a `hub:` data set"""
    encoding_errors: Literal["strict", "replace", "skip"] = "strict"
    """text that is not UTF-8: strict stops and says where, replace puts U+FFFD, skip drops the document; both count"""
    deduplicate: bool = True
    """drop documents whose text occurred before (128-bit hashes, 16 bytes of memory a document, 48 while they are merged)"""
    valid_fraction: float = 0.01
    """share of documents set aside for validation, chosen by the hash of the text, so independent of order"""
    max_documents: int | None = None
    """stop after this many documents"""
    shard_mb: int = 256
    """size of a token file at most, in MB of 2**20 bytes"""
    workers: int | None = None
    """processes that tokenise; default: the number of cores, or of a joined Ray cluster all CPUs. Does not change the result"""
    engine: Literal["local", "ray"] = "local"
    """where is tokenised: in processes of this host, or on a Ray cluster (that of RAY_ADDRESS; without it one is started on this host and ended
    after the work). This process alone reads the corpus and writes output_dir, so hosts need no shared storage, only the same versions of
    electrify and its packages. Does not change the result"""

    @property
    def accents_stripped(self) -> bool:
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @property
    def trains_tokenizer(self) -> bool:
        return self.tokenizer in TRAINED

    def check(self) -> None:
        """Raises UserError for a value that cannot work."""
        if not self.inputs:
            raise UserError("nothing to prepare: name at least one file, folder, glob, `pydocs` or `hub:NAME`")
        if not self.output_dir:
            raise UserError("output_dir is empty: name the folder of the prepared corpus")
        if not 0 <= self.valid_fraction < 1:
            raise UserError(f"valid_fraction must be at least 0 and below 1, not {self.valid_fraction}")
        for name, least, most in (
            ("vocab_size", 32, MAX_VOCABULARY),
            ("min_frequency", 0, 1 << 31),
            ("tokenizer_sample_mb", 1, 1 << 20),
            ("shard_mb", 1, 1 << 20),
            ("max_documents", 1, 1 << 48),
            ("workers", 1, 1 << 10),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(f"{name} must be at {f'least {least}' if value < least else f'most {most}'}, not {value}")
