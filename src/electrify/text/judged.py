"""Judges a corpus that was prepared: what its statistics show only afterwards, and what one would
choose differently. `prepare` says it as advice, `doctor` as findings, with the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .letters import Letters, letters_of
from .manifest import Manifest
from .options import TRAINED, PrepareConfig

# An entry needs some dozens of occurrences before its embedding is more than its initial value.
RARE = 20
# A number of documents; fewer say little. Where this many are expected, there is at least one with
# a probability of 99 %.
WANTED = 5
ANEW = "into another folder, or remove this corpus first"


def advice(manifest: Manifest, unigram_V: np.ndarray, folder: Path) -> Iterator[str]:
    """What `prepare` says after its work, a line each. unigram_V: how often each id occurs in the
    train split; folder: that of the corpus."""
    # Who asks for no validation, or brings a tokenizer, has reasons.
    held_out = sum(s.documents for s in manifest.splits.get("valid", []))
    if manifest.options.get("valid_fraction") and not held_out:
        yield (
            "nothing is set aside for validation, so a run can warn neither of a dead generator "
            f"nor of overfitting: {more_validation(manifest)}"
        )
    used = use_of(manifest, unigram_V)
    if used.is_too_large and trained_here(manifest):
        cure = smaller(manifest, used.rare, letters_of(manifest, unigram_V, folder))
        yield f"{used.fact}, and their embeddings hardly move: {cure}"


def more_validation(manifest: Manifest) -> str:
    """Advice on how to get validation documents. They are chosen by the hash of their text, so from
    a small corpus there may be none."""
    share = manifest.options.get("valid_fraction")
    documents = sum(s.documents for s in manifest.splits.get("train", []))
    default = PrepareConfig.__dataclass_fields__["valid_fraction"].default
    if not share and documents * default >= WANTED:
        return f"prepare with --valid-fraction {default}, {ANEW}"
    if documents >= 2 * WANTED:
        needed = max(-(-100 * WANTED // documents) / 100, round(2 * (share or 0), 2))
        return (
            f"of {documents:,} documents a share of {default if share is None else share:g} is too "
            f"small; prepare with --valid-fraction {min(needed, 0.5)}, {ANEW}"
        )
    return (
        f"{documents:,} documents are too few to set some aside; add more, or cut them at another "
        f"--document-boundary (blank-line, line), {ANEW}"
    )


class Use(NamedTuple):
    """How a text uses a vocabulary: its entries, those that never occur, and those that occur
    fewer than RARE times. Special tokens have no occurrences to count."""

    entries: int
    unused: int
    rare: int

    @property
    def is_too_large(self) -> bool:
        return self.rare > self.entries / 2

    @property
    def fact(self) -> str:
        v = self.entries
        return (
            f"of {v:,} entries of the vocabulary {self.unused:,} ({self.unused / v:.1%}) never "
            f"occur and {self.rare:,} ({self.rare / v:.1%}) fewer than {RARE} times"
        )


def use_of(manifest: Manifest, unigram_V: np.ndarray) -> Use:
    v = manifest.vocab_size
    if manifest.options.get("tokenizer") == "byte":
        return Use(v, 0, 0)  # every byte has an entry, whether the text has it or not
    own = np.delete(unigram_V, [i for i in manifest.special_ids.never_chosen if i < v])
    return Use(v, int((own == 0).sum()), int((own < RARE).sum()))


def trained_here(manifest: Manifest) -> bool:
    """Whether the tokenizer was trained on this text, rather than an existing one."""
    return manifest.options.get("tokenizer") in TRAINED


def smaller(manifest: Manifest, rare: int, letters: Letters | None) -> str:
    """Advice for getting a vocabulary that this text can fill, and that knows its letters."""
    v = manifest.vocab_size
    size = max(smallest(manifest), 1 << max(0, (v - rare).bit_length() - 1))
    if size >= v:
        return "the text is too short for any vocabulary: add text"
    while letters is not None and size < v and not letters.are_known(size):
        size *= 2
    if size >= v:
        return "a smaller vocabulary would not know some letters of this text: add text"
    if trained_here(manifest):
        own = "a vocabulary for this text is smaller"
    else:
        own = "train one on this text (leave --tokenizer out)"
    return f"{own}, --vocab-size {size} or so"


def smallest(manifest: Manifest) -> int:
    """The smallest vocabulary to advise: a smaller one has hardly more than the letters."""
    # A vocabulary of bpe has all 256 bytes before its first piece.
    return 512 if manifest.options.get("tokenizer") == "bpe" else 256
