"""The byte layout of a prepared corpus: writer, reader, manifest with hashes.

    DATA/manifest.json                       what is here, from what, with which options; sizes and sha256 of every file
    DATA/tokens-<split>-00000.bin            token ids, little-endian uint16 (vocabulary up to 65 536) or uint32, documents end to end, no specials
    DATA/documents-<split>-00000.npy         int64 [documents + 1], offsets of the documents in that shard: 0, ..., tokens of the shard
    DATA/unigram.npy                         int64 [vocabulary], how often each id occurs in the train split
    DATA/tokenizer/                          a Hugging Face tokenizer folder

Splits are `train` and `valid`. A document never crosses a shard. The manifest is written last:
without it the folder is unfinished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from ..console import brief
from ..errors import UserError
from ..files.reading import FileError, MissingError, must_be_regular, read_object, sha256_of
from ..files.schema import Count, FileName, Rule, SchemaError, Sha256, check, is_count
from ..files.seals import SEAL, seal_of, unsealed
from ..files.seals import text_of as manifest_text
from ..files.whole import write_atomically
from ..special import SpecialIds
from .mapped import MappedFiles, Named
from .splits import SPLITS as SPLITS
from .splits import Split as Split

FORMAT = 1
MANIFEST = "manifest.json"
AGAIN = "prepare the corpus again"
Dtype = Literal["uint16", "uint32", "<u2", "<u4"]  # of the token ids in a shard


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
    """What a prepared corpus holds."""

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
    """The options of `prepare` that decide the bytes."""
    sources: list[SourceRow]
    """One row an input: name (no absolute path), bytes, sha256."""
    counts: dict[str, float]
    """documents, words, characters, bytes, tokens, unk_tokens, duplicates, dropped ...: what
    `prepare` printed."""
    tokenizer_files: dict[FileName, Sha256] = field(default_factory=dict)
    """Hashes of every file in tokenizer/; empty in folders that were made before they were written
    down."""

    @property
    def fingerprint(self) -> str:
        """Identity of the data: a hash of the contents of every shard and of the tokenizer."""
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
    """Written last and in one rename, so a folder with a manifest is complete."""
    fields = asdict(manifest)
    write_atomically(folder / MANIFEST, manifest_text(fields | {SEAL: seal_of(fields)}))


def read_manifest(folder: Path) -> Manifest:
    """Raises UserError where the folder is no prepared corpus, or an unfinished or foreign one."""
    path = folder / MANIFEST
    try:
        raw = read_object(path, within=folder)
        if raw.get("format") != FORMAT:
            raise UserError(
                f"{path} has format {brief(raw.get('format'))}, this version reads {FORMAT}; "
                f"{AGAIN}"
            )
        raw = unsealed(
            raw, path, must=False, advice=AGAIN
        )  # folders of the first versions have none
        manifest = check(Manifest, raw, str(path))
    except MissingError as e:
        raise UserError(
            f"{folder} is not a prepared corpus: it has no {MANIFEST}; make one with `electrify "
            f"prepare CORPUS --output-dir {folder}`"
        ) from e
    except FileError as e:
        raise e if e.advice else UserError(f"{path} is damaged: it {e.why}; {AGAIN}") from e
    except SchemaError as e:
        raise UserError(f"{path} is damaged: {e.what}; {AGAIN}") from e
    if wrong := list(islice(wrong_in(manifest), 3)):
        raise UserError(f"{path} is damaged ({', '.join(wrong)}); {AGAIN}")
    return manifest


def wrong_in(m: Manifest) -> Iterator[str]:
    """What no writer of ours writes, beyond the kinds of the values. Nothing behind `read_manifest`
    looks at them again."""
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


def _npy(path: Path) -> np.ndarray:
    """The array of a file. Mapped first, for a header may claim any size and the map compares it
    with the file's; no pickles."""
    must_be_regular(path, within=path.parent)
    try:
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except (
        TypeError,
        SyntaxError,
        MemoryError,
        OverflowError,
    ) as e:  # what numpy makes of odd headers
        raise ValueError(f"{type(e).__name__}: {e}") from e


class Corpus:
    """One split of a prepared corpus, memory-mapped. Opening checks that every file is there with
    its size; `verify` checks hashes."""

    def __init__(self, folder: Path, split: Split) -> None:
        self.folder = folder
        self.split = split
        self.manifest = read_manifest(folder)
        self.shards = self.manifest.splits.get(split, [])
        itemsize = np.dtype(self.manifest.dtype).itemsize
        for shard in self.shards:
            for name, size in (
                (shard.tokens_file, shard.tokens * itemsize),
                (shard.documents_file, None),
            ):
                path = folder / name
                try:
                    must_be_regular(path, within=folder)
                except MissingError:
                    raise UserError(
                        f"{folder}: the file {name} named by the manifest is missing; prepare the "
                        "corpus again"
                    ) from None
                if size is not None and path.stat().st_size != size:
                    raise UserError(
                        f"{path} has {path.stat().st_size} bytes where the manifest says {size}: "
                        "it is truncated; prepare the corpus again"
                    )

    @property
    def num_tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @property
    def num_documents(self) -> int:
        return sum(s.documents for s in self.shards)

    @property
    def tokens(self) -> list[np.ndarray]:
        """One read-only array of ids a shard. Read by `mapped.read`, which survives that a file is
        cut."""
        return self.mapped.arrays

    @cached_property
    def mapped(self) -> MappedFiles:
        return MappedFiles(
            [Named(self.folder / s.tokens_file, s.tokens, s.tokens_sha256) for s in self.shards],
            np.dtype(self.manifest.dtype),
        )

    @cached_property
    def documents(self) -> list[np.ndarray]:
        """One int64 array of documents + 1 offsets a shard."""
        arrays = []
        for s in self.shards:
            path = self.folder / s.documents_file
            try:
                offsets = _npy(path)
            except (ValueError, EOFError) as e:
                raise UserError(
                    f"{path} is damaged: it holds no array of offsets; prepare the corpus again"
                ) from e
            whole = offsets.shape == (s.documents + 1,) and offsets.dtype == np.int64
            if (
                not whole
                or offsets[0] != 0
                or offsets[-1] != s.tokens
                or (np.diff(offsets) < 0).any()
            ):
                raise UserError(
                    f"{path} does not agree with the manifest; prepare the corpus again"
                )
            arrays.append(offsets)
        return arrays

    def sound(self, ids: np.ndarray) -> np.ndarray:
        """The ids that were read. Raises UserError where one is beyond the vocabulary: asked of
        each piece, for a corpus is not read as a whole."""
        if ids.max(initial=0) >= self.manifest.vocab_size:
            raise UserError(
                f"{self.folder} holds the token {ids.max()}, beyond its vocabulary of "
                f"{self.manifest.vocab_size}: it is damaged; prepare it again"
            )
        return ids

    def unigram(self) -> np.ndarray:
        """int64 [vocabulary]: how often each id occurs in the train split."""
        path = self.folder / "unigram.npy"
        try:
            counts = _npy(path)
        except (ValueError, EOFError, OSError) as e:
            raise UserError(f"{path} is missing or damaged ({e}); prepare the corpus again") from e
        if (
            counts.shape != (self.manifest.vocab_size,)
            or counts.dtype != np.int64
            or counts.min() < 0
        ):
            raise UserError(f"{path} does not agree with the manifest; prepare the corpus again")
        return counts

    def verify(self) -> None:
        """Reads every byte; raises UserError naming the first file whose hash differs from the
        manifest."""
        self.verify_documents()
        self.verify_tokens()

    def verify_documents(self) -> None:
        """What decides where documents lie; raises as `verify`."""
        for s in self.shards:
            must_have(self.folder, s.documents_file, s.documents_sha256)

    def verify_tokens(self, *, max_bytes: int = 1 << 62, key: int = 0) -> int:
        """Shards of up to `max_bytes`, others for another key; raises as `verify`. Returns the
        bytes that were read."""
        read = 0
        for k in np.random.default_rng(key).permutation(len(self.shards)):
            s = self.shards[k]
            size = s.tokens * np.dtype(self.manifest.dtype).itemsize
            if read + size <= max_bytes:
                must_have(self.folder, s.tokens_file, s.tokens_sha256)
                read += size
        return read


def verify_common(folder: Path, manifest: Manifest) -> None:
    """What both splits need, counts and tokenizer; raises UserError naming the first file whose
    hash differs from the manifest."""
    must_have(folder, "unigram.npy", manifest.unigram_sha256)
    for name, sha256 in sorted(
        (manifest.tokenizer_files | {"tokenizer.json": manifest.tokenizer_sha256}).items()
    ):
        must_have(folder, f"tokenizer/{name}", sha256)


def verify_sample(folder: Path, *, max_bytes: int, key: int) -> None:
    """Reads what decides where tokens are and what they mean (documents, counts, tokenizer), and
    token shards of up to `max_bytes`, of the small validation split first, others for another key.
    Raises as `Corpus.verify`, which finds what this misses."""
    valid = Corpus(folder, "valid")
    train = Corpus(folder, "train")
    verify_common(folder, train.manifest)
    for corpus in (valid, train):
        corpus.verify_documents()
    train.verify_tokens(
        max_bytes=max_bytes - valid.verify_tokens(max_bytes=max_bytes, key=key), key=key
    )


def must_have(folder: Path, name: str, sha256: str) -> None:
    path = folder / name
    try:
        found = sha256_of(path, within=folder)
    except MissingError:
        found = ""
    if found != sha256:
        raise UserError(
            f"{path} does not have the hash in the manifest: it was changed; prepare the corpus "
            "again"
        )
