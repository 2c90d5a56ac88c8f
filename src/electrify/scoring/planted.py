"""Planted words: in sentences that a discriminator has not read, one word is replaced by a word of
another sentence; does the discriminator notice?

A single sentence shows what detection is. How often the planted word is the most suspected one,
over many sentences, shows how good it is.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .detect import detect

# Only plain words, because in code and numbers a planted word is not surprising.
_SENTENCE = re.compile(r"[A-Z][a-z]*(?:,? [a-z]+){5,19}\.")
_WORD = re.compile(r"\b[a-z]{4,}\b")


@dataclass(frozen=True)
class Planted:
    """A sentence with a wrong word at text[start:end], and the original word."""

    text: str
    start: int
    end: int
    right: str

    @property
    def wrong(self) -> str:
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class Verdict:
    """Probabilities of having been replaced: of the planted word, and of each other word of its
    sentence."""

    planted: Planted
    wrong: float
    others: tuple[float, ...]

    @property
    def caught(self) -> bool:
        """True if no other word is suspected as much."""
        return self.wrong > max(self.others)


def first_sentences(texts: Iterable[str]) -> list[str]:
    """The first sentence of each text that begins with one of 6 to 20 plain words, without
    repetitions, in their order."""
    found = (_SENTENCE.match(" ".join(text.split())) for text in texts)
    return list(dict.fromkeys(m.group() for m in found if m))


def plant(sentences: list[str], *, count: int, seed: int = 0) -> list[Planted]:
    """At most `count` of the sentences, each with one word of four letters or more replaced by such
    a word of another sentence."""
    rng = random.Random(seed)
    planted: list[Planted] = []
    for sentence in rng.sample(sentences, len(sentences)):
        words = list(_WORD.finditer(sentence))
        foreign = _WORD.findall(rng.choice(sentences))
        foreign = [w for w in foreign if w not in sentence]
        if len(planted) < count and words and foreign:
            word = rng.choice(words)
            new = rng.choice(foreign)
            start, end = word.span()
            planted.append(
                Planted(
                    sentence[:start] + new + sentence[end:], start, start + len(new), word.group()
                )
            )
    return planted


def judge(discriminator: str, planted: list[Planted]) -> list[Verdict]:
    """The verdict of the discriminator (folder or Hub id) on each sentence. A word's probability is
    the highest of its pieces."""
    verdicts = []
    for p, found in zip(planted, detect(discriminator, [p.text for p in planted]), strict=True):
        here = [w.probability for w in found.words if w.start < p.end and w.end > p.start]
        others = [w.probability for w in found.words if not (w.start < p.end and w.end > p.start)]
        verdicts.append(Verdict(p, max(here), tuple(others)))
    return verdicts


def summary(verdicts: list[Verdict]) -> str:
    """How often the planted word is suspected most, and what guessing would give."""
    caught = sum(v.caught for v in verdicts)
    chance = sum(1 / (1 + len(v.others)) for v in verdicts)
    wrong = statistics.median(v.wrong for v in verdicts)
    other = statistics.median(x for v in verdicts for x in v.others)
    return (
        f"the planted word is the most suspected one in {caught} of {len(verdicts)} sentences "
        f"(guessing: {chance:.0f}); "
        f"median probability {wrong:.1%} for planted words, {other:.1%} for the others"
    )
