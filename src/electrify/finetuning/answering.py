"""Questions whose answer is a piece of a context: contexts longer than a sequence are read through
windows, and answers go back to its characters.

A window begins `doc_stride` tokens after the one before it (BERT's meaning of the word). In
training a window without the answer says that there is none where the task has unanswerable
questions (SQuAD 2.0), and is left out if the task has none (1.1). "No answer" is the class token as
start and end, as in BERT: its score is its sum of logits minus that of the best span.

Shape suffixes: N windows, B windows of a batch, L tokens, K spans kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ..exporting.loading import quiet
from .metrics import answer_scores, score_answers, silenced, threshold_of
from .model import Net, Reader, Reading, with_fresh_head
from .rows import Batch, rows_of
from .tasks import Answer, Question, TaskData
from .texts import Outputs

# ELECTRA's values for SQuAD (google-research/electra, configure_finetuning.py).
DOC_STRIDE = 128
N_BEST = 20
LONGEST_ANSWER = 30
# Longer questions are truncated (BERT's max_query_length), and to half of a short sequence.
QUESTION_TOKENS = 64
NEVER = -1e30
"""A logit that vanishes in a softmax, but gives no NaN if all logits are equal to it."""
Places = list[tuple[int, int]]


@dataclass(frozen=True)
class Guess:
    """A piece of a context that may be the answer. score: a logit or a log-probability, the higher
    the better."""

    text: str
    score: float


@dataclass(frozen=True)
class Window:
    """Tokens [begin, end) of a question's context; the first of them stands at `start` in the row.
    offsets: characters of the context's tokens. own: [first, last) of the tokens that may begin an
    answer here."""

    question: int
    begin: int
    end: int
    start: int
    offsets: Sequence[tuple[int, int]]
    own: tuple[int, int]

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the context the tokens at these places of the row are."""
        shift = self.begin - self.start
        return self.offsets[first + shift][0], self.offsets[last + shift][1]


class Answering:
    """answerless: whether some questions of the task have no answer."""

    def __init__(
        self,
        reader: Reader,
        *,
        max_seq_length: int,
        device: torch.device,
        answerless: bool,
        doc_stride: int | None = None,
        n_best: int | None = None,
        longest_answer: int | None = None,
    ) -> None:
        if not reader.tokenizer.is_fast:
            raise UserError(
                f"{reader.name}: question answering needs a tokenizer.json, which tells where "
                "tokens are in the text"
            )
        self.reader = reader
        self.max_seq_length = max_seq_length
        self.device = device
        self.answerless = answerless
        self.doc_stride = doc_stride or DOC_STRIDE
        self.n_best = n_best or N_BEST
        self.longest_answer = longest_answer or LONGEST_ANSWER

    def net(self, *, dropout: float | None) -> Any:
        return with_fresh_head(self.reader, "answering", (), dropout=dropout)

    # -------------------------------------------------------------- rows

    def training(self, examples: Sequence[Question]) -> Any:
        """Only the windows that something can be learnt from."""
        return self._rows(examples, learning=True)

    def rows(self, examples: Sequence[Question]) -> Any:
        """spots: the Window of each row."""
        return self._rows(examples, learning=False)

    def _rows(self, questions: Sequence[Question], *, learning: bool) -> Any:
        texts = list({t: None for q in questions for t in (q.context, q.question)})
        with quiet():  # contexts longer than a sequence are what windows are for
            found = self.reader.tokenizer(
                texts, add_special_tokens=False, return_offsets_mapping=True, padding=False
            )
        tokens = {
            text: (list(ids), [tuple(pair) for pair in offsets])
            for text, ids, offsets in zip(
                texts, found["input_ids"], found["offset_mapping"], strict=True
            )
        }
        read = [
            row
            for number, question in enumerate(questions)
            for row in self._windows(number, question, tokens, learning=learning)
        ]
        if not read:
            raise UserError(
                f"no training answer fits into {self.max_seq_length} tokens. Raise --max-seq-length"
            )
        return rows_of(
            [row.ids for row in read],
            [row.types for row in read] if self.reader.segments else None,
            torch.tensor([row.targets for row in read], dtype=torch.int32),
            pad=self.reader.tokenizer.pad_token_id,
            device=self.device,
            places=[row.places for row in read],
            spots=[row.window for row in read],
        )

    def _windows(
        self, number: int, question: Question, tokens: dict[str, Any], *, learning: bool
    ) -> Iterator[_Row]:
        frame = self.reader.pair
        asked = tokens[question.question][0][: min(QUESTION_TOKENS, self.max_seq_length // 2)]
        context, offsets = tokens[question.context]
        room = self.max_seq_length - frame.room - len(asked)
        true = None
        if learning and question.answers:
            true = tokens_of(question.answers[0], question.context, offsets)
        if not self._can_teach(question, true, learning):
            return
        windows, owns = self._places(len(context), room)
        for (begin, end), own in zip(windows, owns, strict=True):
            held = true is not None and begin <= true[0] and true[1] < end
            if learning and not held and not self._teaches_nothing():
                continue
            ids, types, starts = frame.around(asked, context[begin:end])
            at = starts[1] - begin
            places = [int(at + begin <= k < self._last(at + end, ids)) for k in range(len(ids))]
            targets = self._nothing(ids, question)
            if true is not None and held:
                targets = [at + true[0], at + true[1], 0]
            window = Window(number, begin, end, starts[1], offsets, own)
            yield _Row(ids, types, places, targets, window)

    # What the head of the public code does in another way (published.py):

    def _can_teach(self, question: Question, true: tuple[int, int] | None, learning: bool) -> bool:
        return True

    def _teaches_nothing(self) -> bool:
        """Whether a window without the answer is trained on."""
        return self.answerless

    def _places(self, length: int, room: int) -> tuple[Places, Places]:
        """The windows, and the tokens of each that may begin an answer there."""
        windows = windows_over(length, room, self.doc_stride)
        return windows, windows

    def _last(self, end: int, ids: list[int]) -> int:
        """The place behind the last one that may be chosen."""
        return end

    def _nothing(self, ids: list[int], question: Question) -> list[int]:
        """The targets of a window without the answer."""
        null = len(ids) - 1 if self.reader.last else 0
        return [null, null, 1]

    # -------------------------------------------------------------- loss and outputs

    def _logits(self, net: Net, batch: Batch) -> tuple[Tensor, Tensor]:
        """Start and end logits [B, L] at the places and the class token; elsewhere NEVER."""
        logits_BL2 = net(batch.inputs)
        allowed_BL = with_class_token(batch, last=self.reader.last)
        start_BL, end_BL = logits_BL2.masked_fill(~allowed_BL[..., None], NEVER).unbind(-1)
        return start_BL, end_BL

    def loss(self, net: Net, batch: Batch) -> Tensor:
        start_BL, end_BL = self._logits(net, batch)
        start_B, end_B, _ = batch.targets.long().unbind(1)
        return (F.cross_entropy(start_BL, start_B) + F.cross_entropy(end_BL, end_B)) / 2

    def weight(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch.lengths_B))

    def outputs(self, net: Net, batch: Batch) -> Outputs:
        """The n_best spans of each window: scores, starts, ends [B, K], null [B]."""
        start_BL, end_BL = self._logits(net, batch)
        at_B1 = class_tokens(batch, last=self.reader.last)[:, None]
        null_B = (start_BL.gather(1, at_B1) + end_BL.gather(1, at_B1))[:, 0]
        assert batch.places_BL is not None
        start_BL, end_BL = (x.masked_fill(~batch.places_BL, NEVER) for x in (start_BL, end_BL))
        length = start_BL.shape[1]
        at_L = torch.arange(length, device=start_BL.device)
        far_LL = at_L[None, :] - at_L[:, None]
        may_LL = (far_LL >= 0) & (far_LL < self.longest_answer)
        scores_BLL = (start_BL[:, :, None] + end_BL[:, None, :]).masked_fill(~may_LL, NEVER)
        scores_BK, at_BK = best(scores_BLL.flatten(1), self.n_best)
        return {
            "scores": scores_BK,
            "starts": at_BK // length,
            "ends": at_BK % length,
            "null": null_B,
        }

    # -------------------------------------------------------------- answers

    def guesses(
        self, questions: Sequence[Question], rows: Any, outputs: Outputs
    ) -> list[list[Guess]]:
        """The `n_best` best different answers to each question over all of its windows, best
        first."""
        found: list[dict[str, float]] = [{} for _ in questions]
        columns = (outputs["scores"].tolist(), outputs["starts"].tolist(), outputs["ends"].tolist())
        for window, scores, starts, ends in zip(rows.spots, *columns, strict=True):
            context = questions[window.question].context
            mine = found[window.question]
            for score, first, last in zip(scores, starts, ends, strict=True):
                if score > NEVER / 10 and window.begin < window.end:
                    begin, end = window.characters(first, last)
                    text = context[begin:end].strip()
                    if text:  # tokens of nothing but blanks are not an answer
                        mine[text] = max(score, mine.get(text, score))
        return [
            [Guess(*item) for item in sorted(g.items(), key=lambda item: -item[1])[: self.n_best]]
            for g in found
        ]

    def best(
        self, questions: Sequence[Question], rows: Any, outputs: Outputs
    ) -> tuple[list[list[Guess]], list[float]]:
        """The guesses for each question, and how much speaks for no answer: the less, the better
        the answer."""
        guesses = self.guesses(questions, rows, outputs)
        null: dict[int, float] = {}
        for window, value in zip(rows.spots, outputs["null"].tolist(), strict=True):
            null[window.question] = min(float(value), null.get(window.question, float(value)))
        return guesses, [self._against(null[k], guesses[k]) for k in range(len(questions))]

    def _against(self, null: float, guesses: list[Guess]) -> float:
        return null - (guesses[0].score if guesses else 0.0)

    def _best_by_id(
        self, questions: Sequence[Question], rows: Any, outputs: Outputs
    ) -> tuple[list[list[Guess]], dict[str, str], dict[str, float]]:
        guesses, null = self.best(questions, rows, outputs)
        ids = [q.id for q in questions]
        texts = [found[0].text if found else "" for found in guesses]
        return guesses, dict(zip(ids, texts, strict=True)), dict(zip(ids, null, strict=True))

    def score(
        self, task: TaskData, examples: Sequence[Question], rows: Any, outputs: Outputs
    ) -> dict[str, float]:
        _, texts, none = self._best_by_id(examples, rows, outputs)
        if not self.answerless:
            return score_answers(examples, texts, None)
        found = answer_scores(examples, texts, none)  # not all, if a kind of question is missing
        return {name: found.pop(name, math.nan) for name in task.metrics} | found

    def files(
        self, name: str, task: TaskData, examples: Sequence[Question], rows: Any, outputs: Outputs
    ) -> dict[str, str]:
        """NAME.predictions.json, the official file (question id to answer), and NAME.nbest.json;
        with unanswerable questions NAME.null_odds.json too, and the predictions are empty above
        the threshold of the best F1."""
        guesses, texts, none = self._best_by_id(examples, rows, outputs)
        nbest = {
            question.id: [{"text": g.text, "score": round(g.score, 5)} for g in found]
            for question, found in zip(examples, guesses, strict=True)
        }
        files = {f"{name}.nbest.json": _json(nbest)}
        if self.answerless:
            files[f"{name}.null_odds.json"] = _json(none)
            texts = silenced(texts, none, threshold_of(examples, texts, none))
        return {f"{name}.predictions.json": _json(texts), **files}

    def truncated_questions(self, questions: Sequence[Question]) -> list[int]:
        """The lengths in tokens of the questions that were truncated."""
        longest = min(QUESTION_TOKENS, self.max_seq_length // 2)
        texts = [q.question for q in questions]
        found = self.reader.tokenizer(texts, add_special_tokens=False, padding=False)["input_ids"]
        return [len(ids) for ids in found if len(ids) > longest]

    def reading(self, task: TaskData, rows: Any, outputs: Outputs) -> Reading:
        """rows, outputs: of the validation questions, for the threshold of "no answer"."""
        threshold = None
        if self.answerless:
            questions: Any = task.validation
            _, texts, none = self._best_by_id(questions, rows, outputs)
            threshold = max(threshold_of(questions, texts, none), NEVER)
        return Reading(
            max_seq_length=self.max_seq_length,
            doc_stride=self.doc_stride,
            max_answer_length=self.longest_answer,
            no_answer_threshold=threshold,
        )


@dataclass(frozen=True)
class _Row:
    """One window as the encoder reads it. places: 1 where an answer may begin or end. targets:
    start, end, and whether there is no answer."""

    ids: list[int]
    types: list[int]
    places: list[int]
    targets: list[int]
    window: Window


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


def windows_over(length: int, room: int, stride: int) -> Places:
    """[begin, end) of each window: one every `stride` tokens, until the end is reached."""
    found = [(0, min(room, length))]
    while found[-1][1] < length:
        begin = found[-1][0] + min(stride, room)
        found.append((begin, min(begin + room, length)))
    return found


def class_tokens(batch: Batch, *, last: bool) -> Tensor:
    """The position of the class token in each row, [B]."""
    lengths_B = batch.lengths_B.long()
    return lengths_B - 1 if last else torch.zeros_like(lengths_B)


def with_class_token(batch: Batch, *, last: bool) -> Tensor:
    """[B, L]: the places of the batch and the class token."""
    assert batch.places_BL is not None
    return batch.places_BL.scatter(1, class_tokens(batch, last=last)[:, None], True)


def best(scores_BN: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The `keep` largest values and their positions, padded with impossible ones if there are
    fewer."""
    found = scores_BN.topk(min(keep, scores_BN.shape[1]), dim=1)
    short = keep - found.values.shape[1]
    return F.pad(found.values, (0, short), value=NEVER), F.pad(found.indices, (0, short))


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
