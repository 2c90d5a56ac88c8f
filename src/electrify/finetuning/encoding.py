"""Texts, words and questions as token ids between special tokens, how long texts are cut, and the
pieces of a context that answer a question. Nothing here imports torch. A `reader` has name,
tokenizer, segments and positions, see model.Reader and onnx_models.

Shape suffixes: B windows, L tokens, W spans that begin with a token, K spans kept.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ..errors import need
from ..onnx_models import Array
from .tasks import Answer, Example, Question, Sentence

Piece = tuple[int, int]
"""A token and its token type."""
Lists = Sequence[Sequence[int]]
Places = Sequence[tuple[int, int]]
# ELECTRA's values for SQuAD (google-research/electra, configure_finetuning.py). A window begins
# DOC_STRIDE tokens after the one before it (BERT's meaning of the word).
DOC_STRIDE = 128
N_BEST = 20
LONGEST_ANSWER = 30
# Longer questions are truncated (BERT's max_query_length), and to half of a short sequence.
QUESTION_TOKENS = 64
NEVER = -1e30
"""A logit that vanishes in a softmax, but gives no NaN if all logits are equal to it."""


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
        (first, end), (second, last) = spans[1], spans[-1]  # of a single text twice its span
        between = pieces[end:second] if len(texts) == 2 else []
        return cls(pieces[:first], between, pieces[last:], [types[k] for k, _ in spans[1:]])

    @property
    def size(self) -> int:
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


def fitting(reader: Any, wanted: int | None, default: int) -> int:
    """The tokens of a sequence. Raises UserError if more are wanted than the model reads."""
    most = reader.positions
    fact = f"{reader.name} reads at most {most} tokens. Give --max-seq-length {most}"
    need((wanted or 0) <= most, fact)
    return wanted or min(default, most)


# ------------------------------------------------------------------ whole texts


class TextRows:
    """Makes texts, or pairs of them, to rows of at most `length` tokens, and counts those that were
    truncated."""

    def __init__(self, reader: Any, length: int) -> None:
        self.reader, self.length = reader, length
        self.reset()

    def reset(self) -> None:
        """Counts from 0: the next note is not about texts so far."""
        self.texts = self.truncated = self.longest = 0

    def __call__(self, examples: Sequence[Example]) -> tuple[Lists, Lists]:
        """Token ids and, if the model has segments, token types. Texts beyond `length` are
        truncated, the longer of a pair first."""
        found = self._encoded(examples, truncation=True, max_length=self.length)
        pad = self.reader.tokenizer.pad_token_id
        # A model without special tokens reads an empty text as padding.
        ids = [row or [pad] for row in found["input_ids"]]
        self.count(examples, list(map(len, ids)))
        return ids, [row or [0] for row in found["token_type_ids"]] if self.reader.segments else ()

    def _encoded(self, examples: Sequence[Example], **options: Any) -> Any:
        texts = [e.text for e in examples]
        pairs = [e.pair or "" for e in examples] if examples[0].pair is not None else None
        options |= {"padding": False, "return_attention_mask": False}
        options["return_token_type_ids"] = self.reader.segments
        # The library warns of texts that are too long.
        return self.reader.tokenizer(texts, pairs, verbose=False, **options)

    def count(self, examples: Sequence[Example], lengths: Sequence[int]) -> None:
        """Counts texts whose rows have these lengths. Only those of full length are tokenised
        again."""
        self.texts += len(examples)
        full = [e for e, n in zip(examples, lengths, strict=True) if n >= self.length]
        if full:
            wanted = [len(ids) for ids in self._encoded(full)["input_ids"]]
            self.truncated += sum(n > self.length for n in wanted)
            self.longest = max(self.longest, *wanted)

    def note(self) -> str:
        """One sentence and what to do; empty if nothing was truncated."""
        if not self.truncated:
            return ""
        share = f"{self.truncated / self.texts:.1%}"
        fact = f"{share} of the texts ({self.truncated:,} of {self.texts:,}) were truncated to "
        advice = "Raise --max-seq-length, or split such texts"
        return f"{fact}{self.length} tokens. The longest has {self.longest:,}. {advice}"


# ------------------------------------------------------------------ words


Word = tuple[int, int, int, int]
"""A word that is tagged in a row: the number of its sentence, its number there, and its tokens in
the row from start to stop."""


def rows_of_words(
    reader: Any, sentences: Sequence[Sentence], length: int
) -> Iterator[tuple[list[int], list[int], list[Word]]]:
    """The rows of all sentences, in order: token ids and types of a sentence, or of a window of
    one, and the words that are tagged there. Each word is in one row. length: the most tokens of a
    row."""
    frame = Frame.of(reader.tokenizer, "a")
    room = length - frame.size
    pieces_of = _pieces(reader.tokenizer, sentences)
    for number, sentence in enumerate(sentences):
        pieces = [pieces_of[word][:room] for word in sentence.words]
        for window in windows_of_words(list(map(len, pieces)), room):
            inside = pieces[window.begin : window.end]
            ids, types, (at,) = frame.around([i for word in inside for i in word])
            words = []
            for k, word in enumerate(inside, window.begin):
                if window.first <= k < window.last:
                    words.append((number, k, at, at + len(word)))
                at += len(word)
            yield ids, types, words


def classes_of(words: Sequence[Word], logits_LC: Array) -> list[int]:
    """The class of each word of a row, by the mean of the logits of its tokens."""
    return [int(logits_LC[start:stop].mean(0).argmax()) for _, _, start, stop in words]


def tags_of(
    sentences: Sequence[Sentence], classes: Sequence[list[int]], labels: Sequence[str]
) -> list[tuple[str, ...]]:
    """The tags of each sentence, from the classes of the words of all rows."""
    names = (labels[k] for row in classes for k in row)
    return [tuple(next(names) for _ in sentence.words) for sentence in sentences]


def _pieces(tokenizer: Any, sentences: Sequence[Sentence]) -> dict[str, list[int]]:
    """The pieces of every word, tokenised by itself after a blank, as within a text. A word that
    the tokenizer drops is its unknown token."""
    words = list({word: None for sentence in sentences for word in sentence.words})
    unknown = tokenizer.unk_token_id
    dropped = [tokenizer.pad_token_id if unknown is None else unknown]
    found = tokenizer([f" {w}" for w in words], add_special_tokens=False, padding=False)
    return {w: list(ids) or dropped for w, ids in zip(words, found["input_ids"], strict=True)}


class WordWindow(NamedTuple):
    """Words [begin, end) of a sentence, of which [first, last) are tagged here."""

    begin: int
    end: int
    first: int
    last: int


def windows_of_words(pieces: Sequence[int], room: int) -> list[WordWindow]:
    """Windows over words with these numbers of pieces (none above `room`): every word is in the
    tagged part of exactly one."""
    total = [0, *accumulate(pieces)]
    spans, begin, end = list[tuple[int, int]](), 0, 0
    while not spans or end < len(pieces):
        end = bisect_right(total, total[begin] + room) - 1
        spans.append((begin, end))
        if end < len(pieces):  # the next word must fit after what is repeated
            repeated = max(total[end] - room // 2, total[end + 1] - room)
            begin = max(begin + 1, bisect_left(total, repeated))
    middles = ((spans[k + 1][0] + spans[k][1] + 1) // 2 for k in range(len(spans) - 1))
    cuts = [0, *middles, len(pieces)]
    return [WordWindow(begin, end, cuts[k], cuts[k + 1]) for k, (begin, end) in enumerate(spans)]


# ------------------------------------------------------------------ questions


class Guess(NamedTuple):
    """A piece of a context that may be the answer. score: a logit or a log-probability, the higher
    the better."""

    text: str
    score: float


class Answers(NamedTuple):
    """The best answers to a question, best first, and how much speaks for none: the less, the
    better the answer."""

    guesses: list[Guess]
    none: float

    @property
    def text(self) -> str:
        """The best answer, "" if there is none."""
        return self.guesses[0].text if self.guesses else ""


Spans = tuple[Array, Array, Array, float]
"""Of a window the best spans: scores, starts and ends, [K] each, and the score of no answer."""


@dataclass(frozen=True)
class Part:
    """A window over the context of a question: its tokens [begin, end), of which the first stands
    at `start` in the row. none: the place of the class token. offsets: characters of the context's
    tokens."""

    question: int
    begin: int
    end: int
    start: int
    none: int
    offsets: Places

    @property
    def stop(self) -> int:
        """The place in the row behind the last of them."""
        return self.start + self.end - self.begin

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the context the tokens at these places of the row are."""
        shift = self.begin - self.start
        return self.offsets[first + shift][0], self.offsets[last + shift][1]


def rows_of_questions(
    reader: Any, questions: Sequence[Question], length: int
) -> Iterator[tuple[list[int], list[int], Part]]:
    """The windows of all questions, in order: token ids, types, and which part of the context.
    length: the most tokens of a row."""
    frame = Frame.of(reader.tokenizer, "a", "b")
    texts = list({text: None for q in questions for text in (q.context, q.question)})
    # The library warns of contexts longer than a sequence, which are what windows are for.
    how = {"add_special_tokens": False, "padding": False, "verbose": False}
    found = reader.tokenizer(texts, return_offsets_mapping=True, **how)
    both = zip(found["input_ids"], found["offset_mapping"], strict=True)
    tokens = dict(zip(texts, both, strict=True))
    for number, question in enumerate(questions):
        asked = tokens[question.question][0][: min(QUESTION_TOKENS, length // 2)]
        context, offsets = tokens[question.context]
        room = length - frame.size - len(asked)
        for begin, end in windows_of_context(len(context), room, DOC_STRIDE):
            ids, types, (_, start) = frame.around(asked, context[begin:end])
            none = len(ids) - 1 if getattr(reader, "last", False) else 0
            yield ids, types, Part(number, begin, end, start, none, offsets)


def windows_of_context(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """[begin, end) of each window: one every `stride` tokens, until the end is reached."""
    found = [(0, min(room, length))]
    while found[-1][1] < length:
        begin = found[-1][0] + min(stride, room)
        found.append((begin, min(begin + room, length)))
    return found


def tokens_of(answer: Answer, context: str, offsets: Places) -> tuple[int, int] | None:
    """The first and the last token that contain a character of the answer, if any do. The blank
    with which some tokenizers begin a word does not count: an answer that ends in a blank would
    hold the next word."""
    end = answer.start + len(answer.text.rstrip())
    start = end - len(answer.text.strip())
    inside = []
    for k, (a, b) in enumerate(offsets):
        a += len(context[a:b]) - len(context[a:b].lstrip())
        if a < end and start < b:
            inside.append(k)
    return (inside[0], inside[-1]) if inside else None


def spans_of(part: Part, logits_L2: Array) -> Spans:
    """The N_BEST spans of a window, at most LONGEST_ANSWER tokens long, with the largest sums of
    logits, best first; and the class token's sum."""
    logits_2L = np.full((2, len(logits_L2)), NEVER, np.float32)
    logits_2L[:, part.start : part.stop] = logits_L2[part.start : part.stop].T
    start_L, end_L = logits_2L
    behind_L = np.pad(end_L, (0, LONGEST_ANSWER - 1), constant_values=NEVER)
    ends_LW = np.lib.stride_tricks.sliding_window_view(behind_L, LONGEST_ANSWER)
    scores_LW = start_L[:, None] + ends_LW
    at_K = np.argsort(-scores_LW, axis=None, kind="stable")[:N_BEST]
    starts_K, further_K = np.divmod(at_K, LONGEST_ANSWER)
    none = float(logits_L2[part.none].sum())
    return scores_LW.ravel()[at_K], starts_K, starts_K + further_K, none


def best_answers(
    questions: Sequence[Question], parts: Sequence[Part], spans: Sequence[Spans], *, alone: bool
) -> list[Answers]:
    """Of each question the N_BEST best different answers over all of its windows, best first, and
    how much speaks for no answer. alone: this is the class token's score by itself, instead of its
    distance from the best answer's."""
    found: list[dict[str, float]] = [{} for _ in questions]
    null = [math.inf] * len(questions)
    for part, (*columns, none) in zip(parts, spans, strict=True):
        context, mine = questions[part.question].context, found[part.question]
        null[part.question] = min(none, null[part.question])
        for score, first, last in zip(*(column.tolist() for column in columns), strict=True):
            if score > NEVER / 10 and part.begin < part.end:
                begin, end = part.characters(first, last)
                text = context[begin:end].strip()
                if text:  # tokens of nothing but blanks are not an answer
                    mine[text] = max(score, mine.get(text, score))
    ranked = (sorted(its.items(), key=lambda item: -item[1])[:N_BEST] for its in found)
    guesses = [[Guess(*item) for item in its] for its in ranked]
    best = [0.0 if alone or not its else its[0].score for its in guesses]
    return [Answers(*each) for each in zip(guesses, np.subtract(null, best).tolist(), strict=True)]
