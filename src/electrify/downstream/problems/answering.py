"""Questions whose answer is a piece of a context: contexts longer than a sequence are read through
windows, and answers go back to its characters.

A window begins `doc_stride` tokens after the one before it (BERT's meaning of the word). In
training a window without the answer says that there is none where the task has unanswerable
questions (SQuAD 2.0), and is left out if the task has none (1.1). ELECTRA's own head (`electra`)
learns from all of them: a window without the answer points at the class token, in SQuAD 1.1 too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import UserError
from ...export.quiet import quiet
from ..answer_heads import NEVER, JointHead, SpanHead
from ..answers import score_answers
from ..electra_head import ElectraHead
from ..encoder import Loaded
from ..examples import Question
from ..heads import Finetuned
from ..rows import Rows, rows_of
from ..tasks import TaskData
from .no_answer import scores_of, silenced, threshold_of
from .problem import Answers, HeldOut
from .windows import Window, owned, tokens_of, windows_over

# Longer ones are cut (BERT's max_query_length), and to half of a short sequence.
QUESTION_TOKENS = 64


@dataclass(frozen=True)
class Guess:
    """A piece of a context that may be the answer. score: a logit or a log-probability, the higher
    the better."""

    text: str
    score: float


@dataclass(frozen=True)
class _Row:
    """One window as the encoder reads it. places: 1 where an answer may begin or end."""

    ids: list[int]
    types: list[int]
    places: list[int]
    targets: list[int]
    window: Window


class Answering:
    """See problem.Problem."""

    def __init__(
        self,
        task: TaskData,
        loaded: Loaded,
        *,
        max_seq_length: int,
        device: torch.device,
        doc_stride: int,
        head: str,
        n_best: int,
        beam: int,
        longest_answer: int,
    ) -> None:
        if not loaded.tokenizer.is_fast:
            kind = type(loaded.tokenizer).__name__
            raise UserError(
                f"task {task.name!r}: {kind} does not tell where its tokens are in the text; "
                "question answering needs a tokenizer.json"
            )
        self.task = task
        self.loaded = loaded
        self.max_seq_length = max_seq_length
        self.device = device
        self.doc_stride = doc_stride
        self.head = head
        self.n_best = n_best
        self.beam = beam
        self.longest_answer = longest_answer
        self.answerless = not all(
            isinstance(q, Question) and q.answers for q in (*task.train, *task.validation)
        )
        self._tokens: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}

    def model(self, *, dropout: float, std: float | None) -> Finetuned:
        if self.head == "electra":
            return Finetuned(
                self.loaded.encoder,
                ElectraHead(
                    self.loaded.width,
                    dropout=dropout,
                    std=std,
                    last=self.loaded.last,
                    beam=self.beam,
                ),
            )
        common: dict[str, Any] = {
            "dropout": dropout,
            "std": std,
            "last": self.loaded.last,
            "keep": self.n_best,
            "longest_answer": self.longest_answer,
        }
        if self.head == "joint":
            return Finetuned(
                self.loaded.encoder,
                JointHead(self.loaded.width, **common, beam=self.beam, answerable=self.answerless),
            )
        return Finetuned(self.loaded.encoder, SpanHead(self.loaded.width, **common))

    def training(self, examples: Sequence[Question]) -> Rows:
        return self._rows(examples, learning=True)[0]

    def held_out(self, examples: Sequence[Question]) -> HeldOut:
        rows, spots = self._rows(examples, learning=False)
        return HeldOut(examples, rows, spots)

    def score(self, held: HeldOut, answers: Answers) -> dict[str, float]:
        best, none = self.predictions(held, answers, self.guesses(held, answers))
        if not self.answerless:
            return score_answers(held.examples, best, None)
        found = scores_of(held.examples, best, none)  # not all, if a kind of question is missing
        return {name: found.pop(name, math.nan) for name in self.task.metrics} | found

    def files(self, held: HeldOut, answers: Answers, name: str) -> dict[str, str]:
        """NAME.predictions.json, the official file (question id to answer), and NAME.nbest.json;
        with unanswerable questions NAME.null_odds.json too, and the predictions are empty above
        the threshold of the best F1."""
        guesses = self.guesses(held, answers)
        best, none = self.predictions(held, answers, guesses)
        nbest = {
            held.examples[k].id: [{"text": g.text, "score": round(g.score, 5)} for g in found]
            for k, found in enumerate(guesses)
        }
        files = {f"{name}.nbest.json": _json(nbest)}
        if self.answerless:
            files[f"{name}.null_odds.json"] = _json(none)
            best = silenced(best, none, threshold_of(held.examples, best, none))
        return {f"{name}.predictions.json": _json(best), **files}

    def threshold(self, held: HeldOut, answers: Answers) -> float | None:
        """The score for "no answer" above which no answer is best on these examples; None where
        every question has one."""
        if not self.answerless:
            return None
        return threshold_of(
            held.examples, *self.predictions(held, answers, self.guesses(held, answers))
        )

    def cut_questions(self, held: HeldOut) -> list[int]:
        """The lengths in tokens of the questions that were cut."""
        longest = min(QUESTION_TOKENS, self.max_seq_length // 2)
        lengths = (len(self._tokens[q.question][0]) for q in held.examples)
        return [length for length in lengths if length > longest]

    def guesses(self, held: HeldOut, answers: Answers) -> list[list[Guess]]:
        """The `n_best` best different answers to each question over all of its windows, best
        first."""
        answers = self._spans(held, answers) if self.head == "electra" else answers
        found: list[dict[str, float]] = [{} for _ in held.examples]
        columns = (answers["scores"].tolist(), answers["starts"].tolist(), answers["ends"].tolist())
        for window, scores, starts, ends in zip(held.spots, *columns, strict=True):
            context = held.examples[window.question].context
            mine = found[window.question]
            for score, first, last in zip(scores, starts, ends, strict=True):
                if score > -1e29 and window.begin < window.end:  # not one of the impossible ones
                    begin, end = window.characters(first, last)
                    text = context[begin:end].strip()
                    if text:  # tokens of nothing but blanks are not an answer
                        mine[text] = max(score, mine.get(text, score))
        return [
            [
                Guess(text, score)
                for text, score in sorted(g.items(), key=lambda item: -item[1])[: self.n_best]
            ]
            for g in found
        ]

    def _spans(self, held: HeldOut, answers: Answers) -> Answers:
        """The `n_best` best answers of each window that are spans of its context, no longer than
        allowed, and begin where this window has the most context (ELECTRA's public code,
        finetune/qa/qa_metrics.py)."""
        at = [(w.start - w.begin, *w.own, w.end) for w in held.spots]
        shift_N1, first_N1, last_N1, end_N1 = torch.tensor(at).unsqueeze(-1).unbind(1)
        starts_NK = answers["starts"] - shift_N1
        ends_NK = answers["ends"] - shift_N1
        far_NK = ends_NK - starts_NK
        fits_NK = (
            (starts_NK >= first_N1)
            & (starts_NK < last_N1)
            & (ends_NK < end_N1)
            & (far_NK >= 0)
            & (far_NK < self.longest_answer)
        )
        scores_NK = answers["scores"].masked_fill(~fits_NK, NEVER)
        top = scores_NK.topk(min(self.n_best, scores_NK.shape[1]), dim=1)
        return {"scores": top.values} | {
            name: answers[name].gather(1, top.indices) for name in ("starts", "ends")
        }

    def predictions(
        self, held: HeldOut, answers: Answers, guesses: list[list[Guess]]
    ) -> tuple[dict[str, str], dict[str, float]]:
        """The best answer to each question, and how much speaks for no answer: the less, the better
        the answer."""
        best = {
            question.id: (found[0].text if found else "")
            for question, found in zip(held.examples, guesses, strict=True)
        }
        null: dict[int, float] = {}
        for window, value in zip(held.spots, answers["null"].tolist(), strict=True):
            null[window.question] = min(float(value), null.get(window.question, float(value)))
        if self.head == "plain":  # logits of no answer and of the best one
            null = {
                k: value - (guesses[k][0].score if guesses[k] else 0.0) for k, value in null.items()
            }
        return best, {question.id: null[k] for k, question in enumerate(held.examples)}

    def _rows(self, questions: Sequence[Question], *, learning: bool) -> tuple[Rows, list[Window]]:
        self._read([q.context for q in questions] + [q.question for q in questions])
        read = [
            row
            for number, question in enumerate(questions)
            for row in self._windows(number, question, learning=learning)
        ]
        if not read:
            raise UserError(
                f"task {self.task.name!r}: no training answer fits into {self.max_seq_length} "
                "tokens; raise --max-seq-length"
            )
        rows = rows_of(
            [row.ids for row in read],
            [row.types for row in read] if self.loaded.segments else None,
            torch.tensor([row.targets for row in read], dtype=torch.int32),
            pad=self.loaded.tokenizer.pad_token_id,
            device=self.device,
            places=[row.places for row in read],
        )
        return rows, [row.window for row in read]

    def _windows(self, number: int, question: Question, *, learning: bool) -> Iterator[_Row]:
        """The rows of a question, one for each window over its context. learning: only the windows
        that something can be learned from."""
        electra = self.head == "electra"
        frame = self.loaded.pair
        longest_question = min(QUESTION_TOKENS, self.max_seq_length // 2)
        asked = self._tokens[question.question][0][:longest_question]
        tokens, offsets = self._tokens[question.context]
        over = (len(tokens), self.max_seq_length - frame.room - len(asked), self.doc_stride)
        true = tokens_of(question.answers[0], offsets) if learning and question.answers else None
        if electra and learning and question.answers and true is None:
            return  # an answer of characters that are in no token: nothing to point at
        windows, owns = owned(*over) if electra else (windows_over(*over),) * 2
        for (begin, end), own in zip(windows, owns, strict=True):
            held = true is not None and begin <= true[0] and true[1] < end
            if learning and not held and not (electra or self.answerless):
                continue
            ids, types, starts = frame.around(asked, tokens[begin:end])
            at = starts[1] - begin
            # ELECTRA's public code lets the separator after the context be chosen.
            behind = len(ids) if electra else at + end
            places = [int(at + begin <= k < behind) for k in range(len(ids))]
            targets = self._nothing(ids, question, starts[1])
            if true is not None and held:
                targets = [at + true[0], at + true[1], 0]
            window = Window(number, begin, end, starts[1], offsets, own)
            yield _Row(ids, types, places, targets, window)

    def _nothing(self, row: Sequence[int], question: Question, start: int) -> list[int]:
        """The targets of a window without the answer."""
        if self.head != "electra":
            return [start, start, 1]
        null = len(row) - 1 if self.loaded.last else 0
        return [null, null, int(not question.answers)]

    def _read(self, texts: Sequence[str]) -> None:
        """Tokens and their characters, computed once for each text."""
        new = list({text: None for text in texts if text not in self._tokens})
        if new:
            with quiet():  # contexts longer than a sequence are what windows are for
                found = self.loaded.tokenizer(
                    new, add_special_tokens=False, return_offsets_mapping=True, padding=False
                )
            for text, ids, offsets in zip(
                new, found["input_ids"], found["offset_mapping"], strict=True
            ):
                self._tokens[text] = list(ids), [tuple(pair) for pair in offsets]


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
