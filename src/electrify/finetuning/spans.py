"""Questions as rows, and the pieces of a context that answer them: contexts longer than a sequence
are read through windows, and answers go back to its characters. Nothing here imports torch.

A window begins `doc_stride` tokens after the one before it (BERT's meaning of the word).

Shape suffixes: B windows, L tokens, W spans that begin with a token, K spans kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..onnx_models import Array
from .encoding import Frame
from .tasks import Answer, Question

# ELECTRA's values for SQuAD (google-research/electra, configure_finetuning.py).
DOC_STRIDE = 128
N_BEST = 20
LONGEST_ANSWER = 30
# Longer questions are truncated (BERT's max_query_length), and to half of a short sequence.
QUESTION_TOKENS = 64
NEVER = -1e30
"""A logit that vanishes in a softmax, but gives no NaN if all logits are equal to it."""
Places = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Guess:
    """A piece of a context that may be the answer. score: a logit or a log-probability, the higher
    the better."""

    text: str
    score: float


@dataclass(frozen=True)
class Window:
    """Tokens [begin, end) of a question's context; the first of them stands at `start` in the row.
    offsets: characters of the context's tokens."""

    question: int
    begin: int
    end: int
    start: int
    offsets: Places

    @property
    def stop(self) -> int:
        """The place in the row behind the last of them."""
        return self.start + self.end - self.begin

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the context the tokens at these places of the row are."""
        shift = self.begin - self.start
        return self.offsets[first + shift][0], self.offsets[last + shift][1]


class RowOfQuestion(NamedTuple):
    """A question and a window over its context, with their special tokens."""

    ids: list[int]
    types: list[int]
    window: Window


class Spans(NamedTuple):
    """Of each window the best spans, [B, K] each."""

    scores_BK: Array
    starts_BK: Array
    ends_BK: Array


# ------------------------------------------------------------------ rows


def rows_of_questions(
    tokenizer: Any,
    frame: Frame,
    questions: Sequence[Question],
    length: int,
    *,
    stride: int = DOC_STRIDE,
) -> Iterator[RowOfQuestion]:
    """The windows of all questions, in order. frame: of two texts. length: the most tokens of a
    row."""
    texts = list({text: None for q in questions for text in (q.context, q.question)})
    # The library warns of contexts longer than a sequence, which are what windows are for.
    how = {"add_special_tokens": False, "padding": False, "verbose": False}
    found = tokenizer(texts, return_offsets_mapping=True, **how)
    both = zip(found["input_ids"], found["offset_mapping"], strict=True)
    tokens = dict(zip(texts, both, strict=True))
    for number, question in enumerate(questions):
        asked = tokens[question.question][0][: min(QUESTION_TOKENS, length // 2)]
        context, offsets = tokens[question.context]
        room = length - frame.room - len(asked)
        for begin, end in windows_over(len(context), room, stride):
            ids, types, (_, start) = frame.around(asked, context[begin:end])
            yield RowOfQuestion(ids, types, Window(number, begin, end, start, offsets))


def windows_over(length: int, room: int, stride: int) -> list[tuple[int, int]]:
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


# ------------------------------------------------------------------ answers


def best_spans(start_BL: Array, end_BL: Array, *, longest: int, keep: int) -> Spans:
    """The `keep` spans of at most `longest` tokens with the highest sums of logits, the best first.
    Logits of tokens that no span may begin or end with are NEVER."""
    behind_BL = np.pad(end_BL, ((0, 0), (0, longest - 1)), constant_values=NEVER)
    scores_BLW = start_BL[..., None] + np.lib.stride_tricks.sliding_window_view(
        behind_BL, longest, axis=1
    )
    scores_BN = scores_BLW.reshape(len(start_BL), -1)
    lacking = max(0, keep - scores_BN.shape[1])
    scores_BN = np.pad(scores_BN, ((0, 0), (0, lacking)), constant_values=NEVER)
    at_BK = np.argsort(-scores_BN, axis=1, kind="stable")[:, :keep]
    starts_BK = at_BK // longest
    scores_BK = np.take_along_axis(scores_BN, at_BK, axis=1)
    return Spans(scores_BK, starts_BK, starts_BK + at_BK % longest)


def guesses_of(
    questions: Sequence[Question], windows: Sequence[Window], spans: Spans, *, n_best: int = N_BEST
) -> list[list[Guess]]:
    """The `n_best` best different answers to each question over all of its windows, best first."""
    found: list[dict[str, float]] = [{} for _ in questions]
    columns = (column.tolist() for column in spans)
    for window, *its in zip(windows, *columns, strict=True):
        context = questions[window.question].context
        mine = found[window.question]
        for score, first, last in zip(*its, strict=True):
            if score > NEVER / 10 and window.begin < window.end:
                begin, end = window.characters(first, last)
                text = context[begin:end].strip()
                if text:  # tokens of nothing but blanks are not an answer
                    mine[text] = max(score, mine.get(text, score))
    ranked = (sorted(its.items(), key=lambda item: -item[1]) for its in found)
    return [[Guess(*item) for item in its[:n_best]] for its in ranked]


def answerless(
    guesses: Sequence[Sequence[Guess]],
    windows: Sequence[Window],
    null_B: Sequence[float],
    *,
    alone: bool = False,
) -> list[float]:
    """How much speaks for no answer to each question: the less, the better the answer. null_B: the
    score of the class token in each window. alone: this score by itself, instead of its distance
    from the best guess's."""
    least = [math.inf] * len(guesses)
    for window, value in zip(windows, null_B, strict=True):
        least[window.question] = min(value, least[window.question])
    if alone:
        return least
    return [x - (its[0].score if its else 0.0) for x, its in zip(least, guesses, strict=True)]


def firsts(guesses: Sequence[Sequence[Guess]]) -> list[str]:
    """The best guess for each question, "" if there is none."""
    return [found[0].text if found else "" for found in guesses]
