"""How often each character occurs, and how many of them a vocabulary takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UserError
from ..progress import Progress
from .feeding import batches, in_megabytes
from .trainable import SPECIALS

# BERT's vocabulary has a thousand characters. A small vocabulary has fewer, so that at most one
# eighth of it is single characters (c and ##c) ...
MAX_ALPHABET = 1000
ALPHABET_SHARE = 16
# ... but only where the characters left out are rare, all together: in prose they are the odd sign
# of a foreign script. In molecules or proteins they would be letters of the language itself.
RARE = 1e-4
# Where the characters do not all fit, the share of them that is left out for the sake of pieces.
TOLERATED = 0.01


class Characters:
    """How often each character occurs."""

    def __init__(self) -> None:
        self._counts = np.zeros(0x110000, np.int64)

    def add(self, text: str) -> None:
        """Adds a text. A call costs as much as a million characters do, so join texts before."""
        self._counts += np.bincount(
            np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=0x110000
        )

    def items(self) -> list[tuple[str, int]]:
        return [(chr(c), int(self._counts[c])) for c in np.flatnonzero(self._counts)]


def ranked(
    normalizer: Any, texts: list[str], *, least: int, spaces: bool = False
) -> list[tuple[str, int]]:
    """(character, number) of the characters that occur at least `least` times after normalisation,
    the most frequent first; white space too if `spaces`. Raises UserError if none is left.

    Exact for normalizers that treat one character at a time, as BERT's does: then the whole text
    need not be normalised.
    """
    raw = Characters()
    with Progress(in_megabytes(texts), title="counting characters", unit="MB") as bar:
        for batch in batches(texts):
            joined = "".join(batch)
            raw.add(joined)
            bar.advance(len(joined) / 1e6)
    counts: dict[str, int] = {}
    for character, n in raw.items():
        for c in normalizer.normalize_str(character):
            counts[c] = counts.get(c, 0) + n
    return often(counts, least=least, spaces=spaces)


def often(counts: dict[str, int], *, least: int, spaces: bool) -> list[tuple[str, int]]:
    """The characters that occur at least `least` times, the most frequent first. Raises UserError
    if `least` leaves none of them."""
    shown = {c: n for c, n in counts.items() if spaces or not c.isspace()}
    letters = sorted((-n, c) for c, n in shown.items() if n >= least)
    if shown and not letters and least > 1:
        top = max(shown.values())
        times = "once" if top == 1 else f"{top} times"
        raise UserError(
            f"min_frequency {least} leaves nothing of the text: its most frequent character occurs "
            f"{times}, and equal documents count as one; choose a lower one"
        )
    return [(c, -n) for n, c in letters]


def capacity(
    letters: list[tuple[str, int]], vocab_size: int, *, joins: Callable[[str], bool]
) -> int:
    """How many of the most frequent characters a vocabulary takes: a sixteenth of its size; but all
    of them, or all but rare ones, if those left out would not be rare and the pieces fit; and if
    they do not fit, as many as leave out no more than TOLERATED.

    joins: whether a character may continue a word, which takes a second piece.
    """
    usual = max(1, min(MAX_ALPHABET, vocab_size // ALPHABET_SHARE))
    numbers = np.array([n for _, n in letters])
    rare = RARE * numbers.sum()
    if numbers[usual:].sum() <= rare:
        return usual
    fit = fitting(letters, vocab_size - len(SPECIALS), joins=joins)
    if numbers[fit:].sum() <= rare:
        return fit
    known = (1 - TOLERATED) * numbers.sum()
    return max(usual, min(fit, int(np.searchsorted(np.cumsum(numbers), known)) + 1))


def fitting(letters: list[tuple[str, int]], places: int, *, joins: Callable[[str], bool]) -> int:
    """How many of the first characters have pieces that fit into so many places."""
    pieces = np.cumsum([1 + joins(c) for c, _ in letters])
    return int(np.searchsorted(pieces, places, side="right"))
