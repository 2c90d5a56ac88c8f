"""The common parts of all vocabularies trained here: the special tokens, and the normalizer of BPE
and Unigram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .splitting import Splitting

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a vocabulary is to be. min_frequency: how often a piece must occur at least;
    splitting: where pieces may not cross."""

    vocab_size: int
    lowercase: bool
    strip_accents: bool
    min_frequency: int
    splitting: Splitting

    @property
    def least(self) -> int:
        """How often a character must occur to be kept."""
        return max(self.min_frequency, 1)


def normalizer_of(wanted: Wanted, *, compose: Any, extra: tuple[Any, ...] = ()) -> Any:
    """The normalizer of a tokenizer: it composes characters first, and then does what was asked
    for. What is not an accent is composed again afterwards: syllables of Hangul, and vowel signs of
    Bengali, Tamil and a few other scripts."""
    from tokenizers import normalizers

    steps = [compose()]
    if wanted.strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if wanted.lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *extra])
