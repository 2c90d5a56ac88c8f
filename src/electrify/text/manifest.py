"""The manifest of a prepared corpus: what the corpus holds, with the hash of every file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt, Le

from ..errors import UserError, need
from ..files import json_text, read_json, write
from ..special import SpecialIds
from ..values import Natural
from .splits import Split

MANIFEST = "manifest.json"
Dtype = Literal["uint16", "uint32"]
TOKENIZER = "tokenizer"  # the folder beside it
AGAIN = "prepare the corpus again"


@dataclass(frozen=True)
class Shard:
    """One pair of files. Names are relative to the folder of the manifest."""

    tokens_file: str
    documents_file: str
    tokens: Natural
    documents: Natural
    tokens_sha256: str
    documents_sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a prepared corpus."""

    format: Literal[1]
    dtype: Dtype
    """Of the token ids in a shard."""
    vocab_size: Annotated[int, Gt(0), Le(1 << 32)]
    special_ids: SpecialIds
    tokenizer_sha256: str
    """Hash of tokenizer/tokenizer.json: the identity of the vocabulary, stored in checkpoints too.
    """
    unigram_sha256: str
    splits: dict[Split, list[Shard]]
    options: dict[str, Any]
    """The options of `prepare` that affect the bytes."""
    sources: list[dict[str, Any]]
    """One row for each input: name (not an absolute path), bytes, sha256."""
    counts: dict[str, int]
    """documents, words, characters, bytes, tokens, unk_tokens, duplicates, dropped ...: the numbers
    that `prepare` printed."""
    tokenizer_files: dict[str, str]
    """Hashes of every file in tokenizer/."""

    @property
    def fingerprint(self) -> str:
        """The identity of the data: a hash over the contents of every shard and of the
        tokenizer."""
        rows = {
            split: [(s.tokens_sha256, s.documents_sha256) for s in shards]
            for split, shards in self.splits.items()
        }
        return hashlib.sha256(
            json.dumps([self.dtype, self.tokenizer_sha256, rows], sort_keys=True).encode()
        ).hexdigest()


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest last and with one rename, so a folder with a manifest is complete."""
    fields = asdict(manifest)
    write(folder / MANIFEST, json_text({**fields, "sha256": _hash_of(fields)}, indent=1) + "\n")


def _hash_of(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json_text(fields).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest. Raises UserError if the folder is not a prepared corpus, or is an
    unfinished or foreign one."""
    path = folder / MANIFEST
    need(
        path.exists(),
        f"{folder} is not a prepared corpus: it has no {MANIFEST}",
        f"make one with `electrify prepare CORPUS --output-dir {quote(str(folder))}`",
    )
    from pydantic import TypeAdapter, ValidationError

    fields = read_json(path)
    if fields.pop("sha256", None) != _hash_of(fields):
        raise UserError(f"{path} is damaged or was edited: its checksum differs", AGAIN)
    try:
        return TypeAdapter(Manifest).validate_python(fields)
    except ValidationError as e:
        wrong = e.errors(include_url=False)[0]
        where = ".".join(map(str, wrong["loc"]))
        raise UserError(f"{path} is damaged: {where}: {wrong['msg']}", AGAIN) from e
