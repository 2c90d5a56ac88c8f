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
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ..exporting.loading import quiet
from .loop import Batch, Outputs, Rows, rows_of
from .metrics import answer_scores, score_answers, silenced, threshold_of
from .saved import Reading
from .tasks import Answer, Question, TaskData
from .texts import Problem

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

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """Where in the context the tokens at these places of the row are."""
        shift = self.begin - self.start
        return self.offsets[first + shift][0], self.offsets[last + shift][1]


@dataclass
class Answering(Problem):
    """answerless: whether some questions of the task have no answer. The published protocol learns
    from every window, also of SQuAD 1.1, may choose the separator behind the context, and scores
    "no answer" by itself."""

    answerless: bool = field(default=False, kw_only=True)
    doc_stride: int = field(default=DOC_STRIDE, kw_only=True)
    n_best: int = field(default=N_BEST, kw_only=True)
    longest_answer: int = field(default=LONGEST_ANSWER, kw_only=True)
    published = False

    def __post_init__(self) -> None:
        if not self.reader.tokenizer.is_fast:
            raise UserError(
                f"{self.reader.name}: question answering needs a tokenizer.json, which tells where "
                "tokens are in the text"
            )

    # -------------------------------------------------------------- rows

    def training(self, examples: Sequence[Question]) -> Any:
        """Only the windows that something can be learnt from."""
        return self.rows(examples, learning=True)

    def rows(self, examples: Sequence[Question], *, learning: bool = False) -> Any:
        """targets: start, end, and whether the question has no answer. spots: the Window of each
        row. places: the tokens that an answer may begin or end with."""
        texts = list({text: None for q in examples for text in (q.context, q.question)})
        with quiet():  # contexts longer than a sequence are what windows are for
            found = self.reader.tokenizer(
                texts, add_special_tokens=False, return_offsets_mapping=True, padding=False
            )
        both = zip(found["input_ids"], found["offset_mapping"], strict=True)
        tokens = dict(zip(texts, both, strict=True))
        rows = [
            row
            for number, question in enumerate(examples)
            for row in self._windows(number, question, tokens, learning=learning)
        ]
        if not rows:
            raise UserError(
                f"no training answer fits into {self.max_seq_length} tokens. Raise --max-seq-length"
            )
        ids, types, places, targets, spots = zip(*rows, strict=True)
        return rows_of(
            ids,
            types if self.reader.segments else None,
            torch.tensor(targets, dtype=torch.int32),
            pad=self.reader.tokenizer.pad_token_id,
            device=self.device,
            places=places,
            spots=spots,
        )

    def _windows(
        self, number: int, question: Question, tokens: dict[str, Any], *, learning: bool
    ) -> Iterator[tuple[list[int], list[int], list[int], list[int], Window]]:
        """Ids, types, places, targets and Window of every row of a question."""
        frame = self.reader.pair
        asked = self._asked(tokens[question.question][0])
        context, offsets = tokens[question.context]
        true = None
        if learning and question.answers:
            true = tokens_of(question.answers[0], question.context, offsets)
            if true is None:  # characters that are in no token: nothing to point at
                return
        room = self.max_seq_length - frame.room - len(asked)
        for begin, end in windows_over(len(context), room, self.doc_stride):
            held = true is not None and begin <= true[0] and true[1] < end
            if learning and not (held or self.answerless or self.published):
                continue
            ids, types, (_, start) = frame.around(asked, context[begin:end])
            last = len(ids) if self.published else start + end - begin
            places = [int(start <= k < last) for k in range(len(ids))]
            null = len(ids) - 1 if self.reader.last else 0
            first, final = (start - begin + k for k in true) if true and held else (null, null)
            targets = [first, final, int(not question.answers)]
            yield ids, types, places, targets, Window(number, begin, end, start, offsets)

    def _asked(self, ids: list[int]) -> list[int]:
        return ids[: min(QUESTION_TOKENS, self.max_seq_length // 2)]

    # -------------------------------------------------------------- loss and outputs

    def _logits(self, net: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Start and end logits [B, L] at the places and the class token; elsewhere NEVER."""
        allowed_BL = with_class_token(batch, last=self.reader.last)
        start_BL, end_BL = net(batch.inputs).masked_fill(~allowed_BL[..., None], NEVER).unbind(-1)
        return start_BL, end_BL

    def loss(self, net: Any, batch: Batch) -> Tensor:
        start_BL, end_BL = self._logits(net, batch)
        start_B, end_B, _ = batch.targets.long().unbind(1)
        return (F.cross_entropy(start_BL, start_B) + F.cross_entropy(end_BL, end_B)) / 2

    def weight(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch.lengths_B))

    def outputs(self, net: Any, batch: Batch) -> Outputs:
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
        starts_BK, ends_BK = at_BK // length, at_BK % length
        return {"scores": scores_BK, "starts": starts_BK, "ends": ends_BK, "null": null_B}

    # -------------------------------------------------------------- answers

    def guesses(
        self, questions: Sequence[Question], rows: Rows, outputs: Outputs
    ) -> list[list[Guess]]:
        """The `n_best` best different answers to each question over all of its windows, best
        first."""
        found: list[dict[str, float]] = [{} for _ in questions]
        columns = (outputs[name].tolist() for name in ("scores", "starts", "ends"))
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
        self, questions: Sequence[Question], rows: Rows, outputs: Outputs
    ) -> tuple[list[list[Guess]], list[float]]:
        """The guesses for each question, and how much speaks for no answer: the less, the better
        the answer."""
        guesses = self.guesses(questions, rows, outputs)
        null = [math.inf] * len(questions)
        for window, value in zip(rows.spots, outputs["null"].tolist(), strict=True):
            null[window.question] = min(value, null[window.question])
        if not self.published:
            null = [x - (g[0].score if g else 0.0) for x, g in zip(null, guesses, strict=True)]
        return guesses, null

    def _by_id(
        self, questions: Sequence[Question], rows: Rows, outputs: Outputs
    ) -> tuple[list[list[Guess]], dict[str, str], dict[str, float]]:
        """The guesses, and by the question's id the best one and what speaks for none."""
        guesses, null = self.best(questions, rows, outputs)
        texts = {
            q.id: found[0].text if found else ""
            for q, found in zip(questions, guesses, strict=True)
        }
        return guesses, texts, {q.id: x for q, x in zip(questions, null, strict=True)}

    def score(
        self, task: TaskData, examples: Sequence[Question], rows: Any, outputs: Outputs
    ) -> dict[str, float]:
        _, texts, none = self._by_id(examples, rows, outputs)
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
        guesses, texts, none = self._by_id(examples, rows, outputs)
        nbest = {
            question.id: [{"text": g.text, "score": round(g.score, 5)} for g in found]
            for question, found in zip(examples, guesses, strict=True)
        }
        files: dict[str, Any] = {"nbest": nbest}
        if self.answerless:
            files["null_odds"] = none
            texts = silenced(texts, none, threshold_of(examples, texts, none))
        return {
            f"{name}.{which}.json": json.dumps(content, ensure_ascii=False, indent=1) + "\n"
            for which, content in (files | {"predictions": texts}).items()
        }

    def truncated_questions(self, questions: Sequence[Question]) -> list[int]:
        """The lengths in tokens of the questions that were truncated."""
        texts = [q.question for q in questions]
        found = self.reader.tokenizer(texts, add_special_tokens=False, padding=False)["input_ids"]
        return [len(ids) for ids in found if len(ids) > len(self._asked(ids))]

    def reading(self, task: TaskData, rows: Any, outputs: Outputs) -> Reading:
        """rows, outputs: of the validation questions, for the threshold of "no answer"."""
        threshold = None
        if self.answerless:
            questions: Any = task.validation
            _, texts, none = self._by_id(questions, rows, outputs)
            threshold = max(threshold_of(questions, texts, none), NEVER)
        return replace(
            super().reading(task, rows, outputs),
            doc_stride=self.doc_stride,
            max_answer_length=self.longest_answer,
            no_answer_threshold=threshold,
        )


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


def windows_over(length: int, room: int, stride: int) -> list[tuple[int, int]]:
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
