"""The word-substitution test: in spans of held-out text one word is replaced by a word of another
span. Does a language model prefer the span as it was (`substitution_pairs`); does a discriminator
suspect the word more than all others (`judge`)?

It needs no data set, and works in every language whose words the tokenizer tells apart, and for
code and logs as well. The replacing word has as many tokens and the same case as the one that it
replaces, so that neither length nor spelling tells which text is the right one.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from unicodedata import category

from ..errors import need
from ..text.corpus import TOKENIZER, Corpus
from ..text.tokenizer import load_tokenizer, reading_text, tokenised
from .blimp import Pair, Paradigm
from .detect import Piece, detect, load_detector

# The tokens of a span, and the words that it must hold for the others to show what fits.
SPAN = 24
WORDS = 6
FEWEST = 50
COUNT = 500


@dataclass(frozen=True)
class Word:
    """A word of a span, at text[start:end]."""

    start: int
    end: int
    text: str
    kind: tuple[int, bool]
    """How many tokens it has, and whether it begins with a capital letter."""


Span = tuple[str, list[Word]]


def substitution_pairs(folder: Path, *, count: int = COUNT, seed: int = 0) -> Paradigm:
    """At most `count` pairs from the held-out part of a prepared corpus, the same for the same
    corpus and seed. Raises UserError if there are fewer than 50."""
    spans = list(islice(_spans(folder, random.Random(seed)), 2 * count))
    pairs = list(_pairs(spans, random.Random(seed)))[:count]
    need(
        len(pairs) >= min(FEWEST, count),
        f"{folder}: its held-out part gives only {len(pairs)} spans in which one of {WORDS} words "
        f"can be replaced, and {FEWEST} are needed. Name other tasks than substitution, or prepare "
        "the corpus with a larger --valid-fraction",
    )
    return Paradigm("substitution", "substitution", "-", "substitution", tuple(pairs))


def _spans(folder: Path, rng: random.Random) -> Iterator[Span]:
    """Spans of documents that hold enough words, in random order."""
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
    for shard, start, end, at in places:
        ids = corpus.tokens[shard][at : min(end, at + SPAN)]
        text = tokenizer.decode(ids.tolist(), clean_up_tokenization_spaces=False)
        if at > start:
            text = text.partition(" ")[2]  # the first word may be a part of one
        words = [] if any(token in text for token in known) else _words(tokenizer, text)
        if len(words) >= WORDS:
            yield text, words


def _words(tokenizer: Any, text: str) -> list[Word]:
    """The words of letters. The last one is left out, because the span may have cut it."""
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
            yield Pair(text, text[: word.start] + foreign + text[word.end :], word.start)


# ------------------------------------------------------------------ discriminators


@dataclass(frozen=True)
class Verdict:
    """What a discriminator says of the wrong text of a pair: the word that was put there, and the
    other words."""

    text: str
    wrong: Piece
    others: tuple[float, ...]
    """Their probabilities of having been replaced."""

    @property
    def caught(self) -> bool:
        """True if no other word is suspected as much."""
        return self.wrong.probability > max(self.others)


def judge(discriminator: str, pairs: Sequence[Pair]) -> list[Verdict]:
    """The verdict of the discriminator (folder or Hub id) on each pair. A word's probability is the
    highest of its tokens."""
    verdicts = []
    every = detect(load_detector(discriminator), [pair.bad for pair in pairs])
    for pair, found in zip(pairs, every, strict=True):
        wrong = next(word for word in found.words if word.end > pair.at)
        others = tuple(word.probability for word in found.words if word is not wrong)
        verdicts.append(Verdict(pair.bad, wrong, others))
    return verdicts


def summary(verdicts: Sequence[Verdict]) -> str:
    """How often the substituted word is suspected most, and what guessing would give."""
    caught = sum(v.caught for v in verdicts)
    chance = sum(1 / (1 + len(v.others)) for v in verdicts)
    wrong = statistics.median(v.wrong.probability for v in verdicts)
    other = statistics.median(x for v in verdicts for x in v.others)
    return (
        f"the substituted word is the most suspected one in {caught} of {len(verdicts)} texts "
        f"(guessing: {chance:.0f}); "
        f"median probability {wrong:.1%} for substituted words, {other:.1%} for the others"
    )
