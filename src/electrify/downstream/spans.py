"""Chunks of tagged sentences, and scores for finding them, as defined by the CoNLL shared tasks
(their script conlleval).

How the chunks of each set of letters compare to those of conlleval (CoNLL-2000):

- O, B, I (IOB1 and IOB2): the same chunks, whatever the order of the tags.
- E too: the same, except for E-X B-X, which the script leaves as one chunk.
- S too (IOBES, BILOU): the script knows no S and makes one chunk of S-X S-X; here the scheme's own
  definition holds, as in seqeval.

Every scheme is scored, and written for conlleval, as IOB2 (read/conll.py), where the script and
this file agree.

A chunk begins at B- and S-, after E-, S- and O, and where the type changes, whatever the letter
there: an I- in the wrong place begins a chunk too. It goes on until the next one begins or a word
is outside. BILOU's L- and U- count as E- and S-. The type is everything after the first hyphen. One
of these letters without a hyphen is a chunk of type "". Any other tag without a hyphen ("NOUN") is
outside, as O is, and one with a hyphen ("NP-SBJ") counts as if its letter were I, both as conlleval
has it after O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Span = tuple[str, int, int]
OPENING = frozenset("BSU")
CLOSING = frozenset("ESLU")
LETTERS = OPENING | CLOSING | {"I"}


def chunk_of(tag: str) -> tuple[str, str] | None:
    """(letter, type) of a tag; None if it is outside every chunk."""
    letter, hyphen, kind = tag.partition("-")
    return None if letter == "O" or not (hyphen or letter in LETTERS) else (letter, kind)


def spans(tags: Sequence[str]) -> list[Span]:
    """The chunks of a sentence in order: type, first word, word after the last."""
    found: list[Span] = []
    before: tuple[str, str] | None = None
    for i, tag in enumerate(tags):
        here = chunk_of(tag)
        if here is not None:
            goes_on = (
                before is not None
                and before[1] == here[1]
                and before[0] not in CLOSING
                and here[0] not in OPENING
            )
            found.append((here[1], found.pop()[1] if goes_on else i, i + 1))
        before = here
    return found


def span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """f1, precision and recall of chunks (type and both ends right) over all sentences, and
    accuracy of tags: fractions, 0 where undefined.

    gold, predicted: the tags of each sentence. Raises ValueError if their lengths differ. Source:
    conlleval of CoNLL-2000, for O, B and I.
    """
    right, there, called = _counts(gold, predicted)
    pairs = [
        a == b for g, p in zip(gold, predicted, strict=True) for a, b in zip(g, p, strict=True)
    ]
    return _fractions(right.total(), there.total(), called.total()) | {
        "accuracy": sum(pairs) / max(1, len(pairs))
    }


def _counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Chunks by type: on both sides, in gold, in predicted."""
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(gold)} sentences of gold tags and {len(predicted)} of predicted ones"
        )
    right = Counter[str]()
    there = Counter[str]()
    called = Counter[str]()
    for number, (g, p) in enumerate(zip(gold, predicted, strict=True)):
        if len(g) != len(p):
            raise ValueError(
                f"sentence {number} (counted from 0) has {len(g)} gold tags and {len(p)} predicted "
                "ones"
            )
        a = spans(g)
        b = spans(p)
        there.update(kind for kind, _, _ in a)
        called.update(kind for kind, _, _ in b)
        right.update(kind for kind, _, _ in set(a) & set(b))
    return right, there, called


def _fractions(right: int, there: int, called: int) -> dict[str, float]:
    return {
        "f1": 2 * right / max(1, there + called),
        "precision": right / max(1, called),
        "recall": right / max(1, there),
    }
