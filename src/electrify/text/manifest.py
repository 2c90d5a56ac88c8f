"""The manifest of a prepared corpus: what the corpus holds, with the hash of every file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import numpy as np

from ..console import brief
from ..errors import UserError
from ..oldfiles.reading import FileError, MissingError, read_object
from ..oldfiles.schema import Count, FileName, Rule, SchemaError, Sha256, check, is_count
from ..oldfiles.seals import SEAL, seal_of, unsealed
from ..oldfiles.seals import text_of as manifest_text
from ..oldfiles.whole import write_atomically
from ..special import SpecialIds
from .splits import SPLITS

FORMAT = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"  # the folder beside it
AGAIN = "prepare the corpus again"
# The dtype of the token ids in a shard.
Dtype = Annotated[str, Rule("uint16 or uint32", lambda x: x in ("uint16", "uint32", "<u2", "<u4"))]
SplitName = Annotated[str, Rule("train or valid", lambda x: x in SPLITS)]
VocabularySize = Annotated[
    int, Rule("a size from 1 to 2^32", lambda n: is_count(n) and 0 < n <= 1 << 32)
]
SourceRow = Annotated[
    dict[str, Any],
    Rule(
        "an object with a name",
        lambda row: isinstance(row, dict) and isinstance(row.get("name"), str),
    ),
]


@dataclass(frozen=True)
class Shard:
    """One pair of files. Names are relative to the folder of the manifest."""

    tokens_file: FileName
    documents_file: FileName
    tokens: Count
    documents: Count
    tokens_sha256: Sha256
    documents_sha256: Sha256


@dataclass(frozen=True)
class Manifest:
    """The content of a prepared corpus."""

    format: int
    dtype: Dtype
    vocab_size: VocabularySize
    special_ids: SpecialIds
    tokenizer_sha256: str
    """Hash of tokenizer/tokenizer.json: the identity of the vocabulary, stored in checkpoints too.
    """
    unigram_sha256: str
    splits: dict[SplitName, list[Shard]]
    options: dict[str, Any]
    """The options of `prepare` that affect the bytes."""
    sources: list[SourceRow]
    """One row for each input: name (not an absolute path), bytes, sha256."""
    counts: dict[str, float]
    """documents, words, characters, bytes, tokens, unk_tokens, duplicates, dropped ...: the numbers
    that `prepare` printed. unk_characters and unk_documents are missing in folders made before
    these were counted."""
    tokenizer_files: dict[FileName, Sha256] = field(default_factory=dict)
    """Hashes of every file in tokenizer/; empty in folders made before these were recorded."""

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
    write_atomically(folder / MANIFEST, manifest_text(fields | {SEAL: seal_of(fields)}))


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest. Raises UserError if the folder is not a prepared corpus, or is an
    unfinished or foreign one."""
    path = folder / MANIFEST
    try:
        raw = read_object(path, within=folder)
        if raw.get("format") != FORMAT:
            raise UserError(
                f"{path} has format {brief(raw.get('format'))}, this version reads {FORMAT}",
                AGAIN,
            )
        # Folders of the first versions have no seal.
        raw = unsealed(raw, path, must=False, advice=AGAIN)
        manifest = check(Manifest, raw, str(path))
    except MissingError as e:
        raise UserError(
            f"{folder} is not a prepared corpus: it has no {MANIFEST}; make one with `electrify "
            f"prepare CORPUS --output-dir {quote(str(folder))}`"
        ) from e
    except FileError as e:
        raise e if e.advice else UserError(f"{path} is damaged: it {e.why}", AGAIN) from e
    except SchemaError as e:
        raise UserError(f"{path} is damaged: {e.what}", AGAIN) from e
    if wrong := list(islice(wrong_in(manifest), 3)):
        raise UserError(f"{path} is damaged ({', '.join(wrong)})", AGAIN)
    return manifest


def wrong_in(m: Manifest) -> Iterator[str]:
    """What none of our writers would write, apart from the types of the values. Nothing after
    `read_manifest` looks at them again."""
    yield from _wrong_files(m)
    roles = {name: getattr(m.special_ids, name) for name in ("pad", "unk", "cls", "sep", "mask")}
    for name, value in roles.items():
        if not 0 <= value < m.vocab_size and not (name == "unk" and value == -1):
            yield f"the special id {name} is {value!r} of a vocabulary of {m.vocab_size:,}"
    if not all(0 <= i < m.vocab_size for i in m.special_ids.others):
        yield f"other special ids are {brief(m.special_ids.others)}"
    if m.special_ids.leave_nothing_of(m.vocab_size):
        yield f"every one of its {m.vocab_size:,} tokens is special"
    if len(set(roles.values())) < len(roles):
        yield f"special ids {roles} are not all different"


def _wrong_files(m: Manifest) -> Iterator[str]:
    """Files that two shards name, and text that is in both splits, as no document ever is."""
    shards = [shard for found in m.splits.values() for shard in found]
    names = Counter(name for s in shards for name in (s.tokens_file, s.documents_file))
    yield from (f"{name} is named {n} times" for name, n in names.items() if n > 1)
    texts = [{s.tokens_sha256 for s in found if s.tokens} for found in m.splits.values()]
    if texts and set.intersection(*texts) and len(texts) > 1:
        yield "a shard is both in train and in valid"
