"""Text in which hardly any word occurs twice: a part of it is enough to learn a vocabulary from,
and all of it would take minutes."""

from __future__ import annotations

from ..progress import say
from .feeding import in_megabytes

# Unigram training passes about 70 times over all distinct words (two rounds of expectation and one
# of pruning, each of which drops a quarter of the pieces), at 2 us per character. This does not
# matter in a language with spaces, where words repeat, but it takes 100 s for .7 MB of molecules,
# where no word does. With 128 characters per piece, each piece is seen a few dozen times. The first
# million characters decide; in English, 16 % of them are distinct.
CHARACTERS = 128
UNREPEATED = 0.75
_JUDGED = 1_000_000


def enough(texts: list[str], vocab_size: int) -> list[str]:
    """If hardly any word occurs twice: the first texts that suffice for this many pieces (see
    CHARACTERS), and of the others only those with a new character. Otherwise all texts.
    """
    most = max(CHARACTERS * vocab_size, 1 << 16)
    size = sum(map(len, texts))
    if size <= most or not _unrepeated(texts):
        return texts
    kept: list[str] = []
    seen: set[str] = set()
    for text in texts:
        if most > 0 or not seen.issuperset(text):
            kept.append(text)
            seen.update(text)
            most -= len(text)
    say(
        f"hardly a word of this text occurs twice: {in_megabytes(kept):.2g} MB of it weigh the "
        f"pieces of a vocabulary of {vocab_size}"
    )
    return kept


def _unrepeated(texts: list[str]) -> bool:
    words: set[str] = set()
    read = 0
    for text in texts:
        found = text.split()
        read += sum(map(len, found))
        words.update(found)
        if read > _JUDGED:
            break
    return sum(map(len, words)) > UNREPEATED * read
