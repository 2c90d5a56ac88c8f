"""Texts and words as token ids between special tokens, and how long texts are cut. Nothing here
imports torch. A `reader` has tokenizer, segments and made_for, see model.Reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .tasks import Example, Question, Sentence

Piece = tuple[int, int]
"""A token and its token type."""


def text_of(example: Any) -> str:
    """All words of an example."""
    match example:
        case Sentence():
            return " ".join(example.words)
        case Question():
            return f"{example.question} {example.context}"
    return f"{example.text} {example.pair or ''}"


@dataclass(frozen=True)
class Frame:
    """Special tokens before, between and after one text or two, with their token types, so that
    windows of long texts get the same ones as whole texts. types: the token types of the texts.

    | tokenizer | one text       | two texts              | whole text is read off |
    |-----------|----------------|------------------------|------------------------|
    | BERT      | [CLS] a [SEP]  | [CLS] a [SEP] b [SEP]  | the first token        |
    | RoBERTa   | <s> a </s>     | <s> a </s> </s> b </s> | the first token        |
    | XLNet     | a <sep> <cls>  | a <sep> b <sep> <cls>  | the last token         |
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


def encoded(reader: Any, examples: Sequence[Example], **options: Any) -> Any:
    """Token ids and types of texts or pairs."""
    return reader.tokenizer(
        [e.text for e in examples],
        [e.pair or "" for e in examples] if examples[0].pair is not None else None,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=reader.segments,
        verbose=False,  # the library warns of texts that are too long
        **options,
    )


def pieces_of(tokenizer: Any, sentences: Sequence[Sentence]) -> dict[str, list[int]]:
    """The pieces of every word, tokenised by itself after a blank, as within a text. A word that
    the tokenizer drops is its unknown token."""
    words = list({word: None for sentence in sentences for word in sentence.words})
    unknown = tokenizer.unk_token_id
    dropped = [tokenizer.pad_token_id if unknown is None else unknown]
    found = tokenizer([f" {w}" for w in words], add_special_tokens=False, padding=False)
    return {w: list(ids) or dropped for w, ids in zip(words, found["input_ids"], strict=True)}


class Truncation:
    """Counts the texts that were truncated to `length` tokens for a model."""

    def __init__(self, reader: Any, length: int) -> None:
        self.reader = reader
        self.length = length
        self.clear()

    def clear(self) -> None:
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

    def facts(self) -> dict[str, Any]:
        return {
            "truncated": self.truncated,
            "max_seq_length": self.length,
            "longest_text_in_tokens": self.longest if self.truncated else None,
        }

    def text(self) -> str:
        """One sentence and what to do; empty if nothing was truncated."""
        if not self.truncated:
            return ""
        share = f"{self.truncated / self.texts:.1%}"
        fact = f"{share} of the texts ({self.truncated:,} of {self.texts:,}) were truncated to "
        most = self.reader.made_for
        if self.longest <= most:
            return f"{fact}{self.length} tokens. --max-seq-length {self.longest} holds all of them"
        limit = "" if self.length == most else f". --max-seq-length {most} is the model's maximum"
        longest = f"The longest has {self.longest:,}: split such texts"
        return f"{fact}{self.length} tokens{limit}. {longest}"


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
