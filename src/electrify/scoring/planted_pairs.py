"""Minimal pairs without a data set: spans of a corpus's own held-out text, and the same spans with
one word replaced by a word of another span. Works in every language whose words the tokenizer tells
apart, and for code and logs as well.

The replacing word has as many tokens and the same case as the one it replaces, so that neither
length nor spelling tells which text is the right one; chance is one half.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import category

from ..errors import UserError
from ..text.corpus import TOKENIZER, Corpus
from ..text.tokenizer import load_tokenizer, reading_text
from .blimp import Pair, Paradigm

# The tokens of a span, and the words that it must hold for the others to show what fits.
SPAN = 24
WORDS = 6
FEWEST = 50
# A corpus in which fewer of the spans than this share hold enough words is not made of words.
FEW = 0.01
COUNT = 500


@dataclass(frozen=True)
class _Word:
    start: int
    end: int
    text: str
    kind: tuple[int, bool]
    """How many tokens it has, and whether it begins with a capital letter."""


@dataclass(frozen=True)
class _Span:
    text: str
    words: list[_Word]


def planted_pairs(folder: Path, *, count: int = COUNT, seed: int = 0) -> Paradigm:
    """At most `count` pairs from the held-out part of a prepared corpus, the same for the same
    corpus and seed. Raises UserError if there are fewer than 50."""
    corpus = Corpus(folder, "valid")
    tokenizer = reading_text(load_tokenizer(folder / TOKENIZER))
    tried = list(_spans(corpus, tokenizer, 2 * count, random.Random(seed)))
    spans = [span for span in tried if span is not None]
    pairs = list(_pairs(spans, random.Random(seed)))[:count]
    if len(pairs) < min(FEWEST, count):
        if len(tried) >= FEWEST and len(spans) < FEW * len(tried):
            raise UserError(
                f"{folder}: of {len(tried):,} spans of {SPAN} tokens from its held-out part, only "
                f"{len(spans)} hold {WORDS} words between spaces, so this corpus has too few words "
                "that could be replaced; leave the task planted out"
            )
        raise UserError(
            f"{folder}: its held-out part gives only {len(pairs)} spans in which a word can be "
            f"replaced, and {FEWEST} are needed; leave the task planted out, or prepare the "
            "corpus with a larger --valid-fraction"
        )
    return Paradigm("planted", "planted", "-", "planted", tuple(pairs))


def _spans(corpus: Corpus, tokenizer: Any, most: int, rng: random.Random) -> Iterator[_Span | None]:
    """Spans of documents, in random order, until `most` of them hold enough words; None for one
    that does not."""
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
        ids = corpus.sound(corpus.tokens[shard][at : min(end, at + SPAN)])
        text = tokenizer.decode(ids.tolist(), clean_up_tokenization_spaces=False)
        if at > start:
            text = text.partition(" ")[2]  # the first word may be a part of one
        words = [] if any(token in text for token in known) else _words(tokenizer, text)
        enough = len(words) >= WORDS
        made += enough
        yield _Span(text, words) if enough else None


def _words(tokenizer: Any, text: str) -> list[_Word]:
    """The words of letters. The last one is left out, because the span may have cut it."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
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
            words.append(_Word(start, end, word, (len(pieces), word[0].isupper())))
    return words


def _is_of_letters(word: str) -> bool:
    """Letters, and the marks on them: Indian scripts write most vowels as marks."""
    return any(map(str.isalpha, word)) and all(category(c)[0] in "LM" for c in word)


def _pairs(spans: list[_Span], rng: random.Random) -> Iterator[Pair]:
    """A pair for each span in which a word can be replaced by a word of its kind from elsewhere."""
    of_kind: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for span in spans:
        for word in span.words:
            of_kind[word.kind].append(word.text)
    for span in spans:
        word = rng.choice(span.words)
        own = {w.text.lower() for w in span.words}
        foreign = rng.choice(of_kind[word.kind])
        if foreign.lower() not in own:
            yield Pair(span.text, span.text[: word.start] + foreign + span.text[word.end :])
