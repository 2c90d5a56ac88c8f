"""Texts and words as token ids between special tokens, and how long texts are cut. Nothing here
imports torch. A `reader` has tokenizer and segments, see model.Reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from ..errors import need
from .tasks import Example, Sentence

Piece = tuple[int, int]
"""A token and its token type."""
Lists = Sequence[Sequence[int]]
T = TypeVar("T")
OVERLAP = 4
"""Windows share this part of their tokens with the next one: a quarter."""


@dataclass(frozen=True)
class Frame:
    """Special tokens before, between and after one text or two, with their token types, so that
    windows of long texts get the same ones as whole texts. types: the token types of the texts.

    | tokenizer | one text       | two texts              | whole text is read off |
    |-----------|----------------|------------------------|------------------------|
    | BERT      | [CLS] a [SEP]  | [CLS] a [SEP] b [SEP]  | the first token        |
    | RoBERTa   | <s> a </s>     | <s> a </s> </s> b </s> | the first token        |
    | GPT-2     | a              | a b                    | the last token         |
    | OPT       | </s> a         | </s> a </s> b          | the last token         |

    For a left-to-right model, the last token's state is used whatever precedes the text, because
    only that token has seen all of it.
    """

    before: Sequence[Piece]
    between: Sequence[Piece]
    after: Sequence[Piece]
    types: Sequence[int]

    @classmethod
    def of(cls, tokenizer: Any, *texts: str) -> Frame:
        """That of as many texts, each of them a word."""
        found = tokenizer(*texts, return_special_tokens_mask=True, return_token_type_ids=True)
        special, types = found["special_tokens_mask"], found["token_type_ids"]
        pieces = list(zip(found["input_ids"], types, strict=True))
        spans = [(0, 0)]
        for text in texts:
            begin = special.index(0, spans[-1][1])
            length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
            spans.append((begin, begin + length))
        (first, end), (second, last) = spans[1], spans[-1]
        between = pieces[end:second] if len(texts) == 2 else []
        return cls(pieces[:first], between, pieces[last:], [types[k] for k, _ in spans[1:]])

    @property
    def room(self) -> int:
        """The number of tokens that the frame takes in a sequence."""
        return len(self.before) + len(self.between) + len(self.after)

    def around(self, *texts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Token ids and token types of a sequence, and where each text starts in it."""
        ids = [i for i, _ in self.before]
        types = [t for _, t in self.before]
        starts = list[int]()
        for k, text in enumerate(texts):
            starts.append(len(ids))
            special = self.between if k + 1 < len(texts) else self.after
            ids += [*text, *(i for i, _ in special)]
            types += [self.types[k]] * len(text) + [t for _, t in special]
        return ids, types, starts


def fitting(name: str, positions: int, wanted: int | None, default: int) -> int:
    """The tokens of a sequence for a model that reads this many. Raises UserError if more are
    wanted."""
    fact = f"{name} reads at most {positions} tokens. Give --max-seq-length {positions}"
    need((wanted or 0) <= positions, fact)
    return wanted or min(default, positions)


# ------------------------------------------------------------------ whole texts


def encoded(reader: Any, examples: Sequence[Example], **options: Any) -> Any:
    """Token ids and types of texts or pairs."""
    texts = [e.text for e in examples]
    pairs = [e.pair or "" for e in examples] if examples[0].pair is not None else None
    options |= {"padding": False, "return_attention_mask": False}
    options["return_token_type_ids"] = reader.segments
    # The library warns of texts that are too long.
    return reader.tokenizer(texts, pairs, verbose=False, **options)


def rows_of_texts(reader: Any, examples: Sequence[Example], length: int) -> tuple[Lists, Lists]:
    """Token ids and, if the model has segments, token types. Texts beyond `length` are truncated,
    the longer of a pair first."""
    found = encoded(reader, examples, truncation=True, max_length=length)
    pad = reader.tokenizer.pad_token_id
    # A model without special tokens reads an empty text as padding.
    ids = [row or [pad] for row in found["input_ids"]]
    return ids, [row or [0] for row in found["token_type_ids"]] if reader.segments else ()


class Truncation:
    """Counts the texts that were truncated to `length` tokens for a model."""

    def __init__(self, reader: Any, length: int) -> None:
        self.reader, self.length = reader, length
        self.texts = self.truncated = self.longest = 0

    def add(self, examples: Sequence[Example], lengths: Sequence[int]) -> None:
        """Counts texts whose rows have these lengths. Only those of full length are tokenised
        again."""
        self.texts += len(examples)
        full = [e for e, n in zip(examples, lengths, strict=True) if n >= self.length]
        if full:
            wanted = [len(ids) for ids in encoded(self.reader, full)["input_ids"]]
            self.truncated += sum(n > self.length for n in wanted)
            self.longest = max(self.longest, *wanted)

    def text(self) -> str:
        """One sentence and what to do; empty if nothing was truncated."""
        if not self.truncated:
            return ""
        share = f"{self.truncated / self.texts:.1%}"
        fact = f"{share} of the texts ({self.truncated:,} of {self.texts:,}) were truncated to "
        advice = "Raise --max-seq-length, or split such texts"
        return f"{fact}{self.length} tokens. The longest has {self.longest:,}. {advice}"


# ------------------------------------------------------------------ words


class RowOfWords(NamedTuple):
    """A sentence, or a window of one, with its special tokens."""

    sentence: Sentence
    ids: list[int]
    types: list[int]
    words: list[tuple[int, int, int]]
    """Of each word that is tagged here: its number in the sentence, and its tokens from start to
    stop."""


def rows_of_words(
    tokenizer: Any, frame: Frame, sentences: Sequence[Sentence], length: int
) -> Iterator[RowOfWords]:
    """The words of all sentences, in order, each once. length: the most tokens of a row."""
    room = length - frame.room
    pieces_of = _pieces(tokenizer, sentences)
    for sentence in sentences:
        pieces = [pieces_of[word][:room] for word in sentence.words]
        for window in windows(list(map(len, pieces)), room):
            inside = pieces[window.begin : window.end]
            ids, types, (at,) = frame.around([i for word in inside for i in word])
            words = []
            for k, word in enumerate(inside, window.begin):
                if window.first <= k < window.last:
                    words.append((k, at, at + len(word)))
                at += len(word)
            yield RowOfWords(sentence, ids, types, words)


def _pieces(tokenizer: Any, sentences: Sequence[Sentence]) -> dict[str, list[int]]:
    """The pieces of every word, tokenised by itself after a blank, as within a text. A word that
    the tokenizer drops is its unknown token."""
    words = list({word: None for sentence in sentences for word in sentence.words})
    unknown = tokenizer.unk_token_id
    dropped = [tokenizer.pad_token_id if unknown is None else unknown]
    found = tokenizer([f" {w}" for w in words], add_special_tokens=False, padding=False)
    return {w: list(ids) or dropped for w, ids in zip(words, found["input_ids"], strict=True)}


class Window(NamedTuple):
    """Words [begin, end) of a sentence, of which [first, last) are tagged here."""

    begin: int
    end: int
    first: int
    last: int


def windows(pieces: Sequence[int], room: int) -> list[Window]:
    """Windows over words with these numbers of pieces (none above `room`): every word is in the
    tagged part of exactly one."""
    spans = list[tuple[int, int]]()
    begin = 0
    while True:
        end = begin
        used = 0
        while end < len(pieces) and used + pieces[end] <= room:
            used += pieces[end]
            end += 1
        spans.append((begin, end))
        if end == len(pieces):
            break
        following = end
        used = 0
        while following - 1 > begin and used + pieces[following - 1] <= room // 2:
            following -= 1
            used += pieces[following]
        while used + pieces[end] > room:  # the next word must fit after what is repeated
            used -= pieces[following]
            following += 1
        begin = following
    middles = ((spans[k + 1][0] + spans[k][1] + 1) // 2 for k in range(len(spans) - 1))
    cuts = [0, *middles, len(pieces)]
    return [Window(begin, end, cuts[k], cuts[k + 1]) for k, (begin, end) in enumerate(spans)]


# ------------------------------------------------------------------ windows of tokens


def framed(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """A window with its special tokens."""
    return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]


def windows_of(n: int, *, size: int) -> list[tuple[int, int, int, int]]:
    """Windows that cover n tokens: start and stop of each, and the first and the end of the tokens
    that are scored in it. Neighbours share a quarter, of which each scores the half that is farther
    from its edge."""
    if n <= size:
        return [(0, n, 0, n)]
    step = max(1, size - size // OVERLAP)
    starts = [*range(0, n - size, step), n - size]
    middles = [(a + size + b + 1) // 2 for a, b in pairwise(starts)]
    return [
        (start, start + size, first, last)
        for start, first, last in zip(starts, [0, *middles], [*middles, n], strict=True)
    ]


def in_batches(
    rows: Iterable[T], length: Callable[[T], int], *, slots: int, most: int = 1 << 30
) -> Iterator[list[T]]:
    """The rows, the shortest first, in batches of at most `most` rows and `slots` slots, or of a
    single row."""
    ordered = sorted(rows, key=length)
    at = 0
    while at < len(ordered):
        guess = min(most, max(1, slots // length(ordered[at])))
        last = ordered[at : at + guess][-1]  # the longest of these, and of any fewer
        size = min(most, max(1, slots // length(last)))
        yield ordered[at : at + size]
        at += size
