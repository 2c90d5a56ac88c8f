"""The word-substitution test: in held-out sentences one word is replaced by a word of another one.
Does a discriminator notice the word; does a language model prefer the sentence as it was?

For discriminators (`plant`, `judge`) a single sentence shows what detection is, and how often the
replaced word is the most suspected one shows how good it is. Minimal pairs (`planted_pairs`) need
no data set: they are spans of a corpus's own held-out text, in every language whose words the
tokenizer tells apart, and of code and logs as well. There the replacing word has as many tokens and
the same case as the one it replaces, so that neither length nor spelling tells which text is the
right one; chance is one half.
"""

from __future__ import annotations

import random
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import category

from ..errors import need
from .blimp import Pair, Paradigm

# Only plain words, because in code and numbers a planted word is not surprising.
SENTENCE = re.compile(r"[A-Z][a-z]*(?:,? [a-z]+){5,19}\.")
WORD = re.compile(r"\b[a-z]{4,}\b")
# The tokens of a span, and the words that it must hold for the others to show what fits.
SPAN = 24
WORDS = 6
FEWEST = 50
COUNT = 500


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
    found = (SENTENCE.match(" ".join(text.split())) for text in texts)
    return list(dict.fromkeys(m.group() for m in found if m))


def plant(sentences: list[str], *, count: int, seed: int = 0) -> list[Planted]:
    """At most `count` of the sentences, each with one word of four letters or more replaced by such
    a word of another sentence."""
    rng = random.Random(seed)
    planted: list[Planted] = []
    for sentence in rng.sample(sentences, len(sentences)):
        words = list(WORD.finditer(sentence))
        foreign = [w for w in WORD.findall(rng.choice(sentences)) if w not in sentence]
        if len(planted) < count and words and foreign:
            word = rng.choice(words)
            new = rng.choice(foreign)
            start, end = word.span()
            text = sentence[:start] + new + sentence[end:]
            planted.append(Planted(text, start, start + len(new), word.group()))
    return planted


def judge(discriminator: str, planted: list[Planted]) -> list[Verdict]:
    """The verdict of the discriminator (folder or Hub id) on each sentence. A word's probability is
    the highest of its pieces."""
    from .detect import detect, load_detector

    verdicts = []
    detector = load_detector(discriminator)
    for p, found in zip(planted, detect(detector, [p.text for p in planted]), strict=True):
        here: list[float] = []
        others: list[float] = []
        for word in found.words:
            inside = word.start < p.end and word.end > p.start
            (here if inside else others).append(word.probability)
        verdicts.append(Verdict(p, max(here), tuple(others)))
    return verdicts


def summary(verdicts: list[Verdict]) -> str:
    """How often the substituted word is suspected most, and what guessing would give."""
    caught = sum(v.caught for v in verdicts)
    chance = sum(1 / (1 + len(v.others)) for v in verdicts)
    wrong = statistics.median(v.wrong for v in verdicts)
    other = statistics.median(x for v in verdicts for x in v.others)
    return (
        f"the substituted word is the most suspected one in {caught} of {len(verdicts)} sentences "
        f"(guessing: {chance:.0f}); "
        f"median probability {wrong:.1%} for substituted words, {other:.1%} for the others"
    )


# ------------------------------------------------------------------ minimal pairs


@dataclass(frozen=True)
class Word:
    """A word of a span, at text[start:end]."""

    start: int
    end: int
    text: str
    kind: tuple[int, bool]
    """How many tokens it has, and whether it begins with a capital letter."""


Span = tuple[str, list[Word]]


def planted_pairs(folder: Path, *, count: int = COUNT, seed: int = 0) -> Paradigm:
    """At most `count` pairs from the held-out part of a prepared corpus, the same for the same
    corpus and seed. Raises UserError if there are fewer than 50."""
    spans = list(_spans(folder, 2 * count, random.Random(seed)))
    pairs = list(_pairs(spans, random.Random(seed)))[:count]
    need(
        len(pairs) >= min(FEWEST, count),
        f"{folder}: its held-out part gives only {len(pairs)} spans in which one of {WORDS} words "
        f"can be replaced, and {FEWEST} are needed. Leave the task planted out, or prepare the "
        "corpus with a larger --valid-fraction",
    )
    return Paradigm("planted", "planted", "-", "planted", tuple(pairs))


def _spans(folder: Path, most: int, rng: random.Random) -> Iterator[Span]:
    """Spans of documents that hold enough words, in random order, at most `most`."""
    from ..text.corpus import TOKENIZER, Corpus
    from ..text.tokenizer import load_tokenizer, reading_text

    corpus = Corpus(folder, "valid")
    tokenizer = reading_text(load_tokenizer(folder / TOKENIZER))
    known = set(tokenizer.all_special_tokens)
    places = [
        (shard, int(start), int(end), at)
        for shard, offsets in enumerate(corpus.documents)
        for start, end in pairwise(offsets)
        for at in range(int(start), int(end) - WORDS + 1, SPAN)
    ]
    rng.shuffle(places)
    made = 0
    for shard, start, end, at in places:
        if made == most:
            return
        ids = corpus.tokens[shard][at : min(end, at + SPAN)]
        text = tokenizer.decode(ids.tolist(), clean_up_tokenization_spaces=False)
        if at > start:
            text = text.partition(" ")[2]  # the first word may be a part of one
        words = [] if any(token in text for token in known) else _words(tokenizer, text)
        if len(words) >= WORDS:
            made += 1
            yield text, words


def _words(tokenizer: Any, text: str) -> list[Word]:
    """The words of letters. The last one is left out, because the span may have cut it."""
    from ..text.tokenizer import tokenised

    found = tokenised(tokenizer, text)
    places: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, (start, end) in zip(found.word_ids(), found["offset_mapping"], strict=True):
        if number is not None and end > start:
            places[number].append((start, end))
    words = []
    for pieces in list(places.values())[:-1]:
        start, end = pieces[0][0], pieces[-1][1]
        start += len(text[start:end]) - len(text[start:end].lstrip())
        word = text[start:end]
        if len(word) > 1 and _is_of_letters(word):
            words.append(Word(start, end, word, (len(pieces), word[0].isupper())))
    return words


def _is_of_letters(word: str) -> bool:
    """Letters, and the marks on them: Indian scripts write most vowels as marks."""
    return any(map(str.isalpha, word)) and all(category(c)[0] in "LM" for c in word)


def _pairs(spans: list[Span], rng: random.Random) -> Iterator[Pair]:
    """A pair for each span in which a word can be replaced by a word of its kind from elsewhere."""
    of_kind: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for _, words in spans:
        for word in words:
            of_kind[word.kind].append(word.text)
    for text, words in spans:
        word = rng.choice(words)
        own = {w.text.lower() for w in words}
        foreign = rng.choice(of_kind[word.kind])
        if foreign.lower() not in own:
            yield Pair(text, text[: word.start] + foreign + text[word.end :])
