"""The letters of a prepared corpus, as its tokenizer counted them, and whether a vocabulary of
another size would know them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .alphabet import capacity
from .manifest import TOKENIZER, Manifest
from .options import TRAINED
from .splitting import steps
from .tokenizer_files import read_tokenizer
from .trainable import SPECIALS
from .unknown import WARNING, share_of

# A letter that is left out makes its whole word [UNK].
WORD = 10


@dataclass(frozen=True)
class Letters:
    """The letters of a text for which a vocabulary is to be trained."""

    kind: str
    """of its tokenizer"""
    ranked: list[tuple[str, int]]
    """letter and number, the most frequent first"""
    joining: frozenset[str]
    """those that need a second piece of WordPiece, for they continue words"""
    unknown: float
    """the share of the characters that no size will make known"""

    def are_known(self, vocab_size: int) -> bool:
        """Whether `prepare` with a vocabulary of this size would neither refuse the text nor warn
        of [UNK]."""
        if self.kind == "wordpiece":
            kept = capacity(self.ranked, vocab_size, joins=self.joining.__contains__)
        else:
            # Unigram takes all or none, and the entries of `character` are the letters themselves.
            fit = len(self.ranked) + len(SPECIALS) <= vocab_size
            kept = len(self.ranked) if fit else 0
        numbers = [n for _, n in self.ranked]
        lost = sum(numbers[kept:]) / max(sum(numbers), 1)
        return self.unknown + WORD * lost <= WARNING


def letters_of(manifest: Manifest, unigram_V: np.ndarray, folder: Path) -> Letters | None:
    """The letters of the corpus in `folder`. None if its tokenizer reads bytes, whose vocabularies
    know every letter at any size, or if its file says nothing.

    unigram_V: how often each id occurs.
    """
    try:
        described = read_tokenizer(folder / TOKENIZER)
    except UserError:
        return None
    parts = [*steps(described.get("pre_tokenizer")), *steps(described.get("normalizer"))]
    if any(step.get("type") == "ByteLevel" for step in parts):
        return None
    prefix = described["model"].get("continuing_subword_prefix") or ""
    pieces = _pieces(described["model"]["vocab"])
    special = manifest.special_ids.never_chosen
    counts: Counter[str] = Counter()
    for piece, i in pieces.items():
        if i not in special and 0 <= i < len(unigram_V):
            for letter in piece.removeprefix(prefix):
                counts[letter] += int(unigram_V[i])
    here = manifest.options.get("tokenizer") in TRAINED
    # Of a given tokenizer that is not WordPiece it is not known which letters continue words.
    joining = (c for c in counts if prefix + c in pieces) if prefix else () if here else counts
    return Letters(
        kind=manifest.options["tokenizer"] if here else "wordpiece",
        ranked=sorted(counts.items(), key=lambda item: (-item[1], item[0])),
        joining=frozenset(joining),
        unknown=share_of(manifest.counts) if here else 0.0,
    )


def _pieces(vocab: Any) -> dict[str, int]:
    """piece -> id; a list is Unigram's, [piece, score] each."""
    if isinstance(vocab, dict):
        return vocab
    return {row[0]: i for i, row in enumerate(vocab) if isinstance(row, list) and row}
