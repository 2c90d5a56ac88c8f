"""Fine-tuning on questions whose answer is a piece of a context, with spans.py's rows and answers.

In training a window without the answer says that there is none where the task has unanswerable
questions (SQuAD 2.0), and is left out if the task has none (1.1). "No answer" is the class token as
start and end, as in BERT: its score is its sum of logits minus that of the best span.

Shape suffixes: N windows, B windows of a batch, L tokens, K spans kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import need
from .loop import Answered, Batch, Outputs
from .metrics import answer_scores, score_answers, silenced, threshold_of
from .model import Reading
from .spans import (
    DOC_STRIDE,
    LONGEST_ANSWER,
    N_BEST,
    NEVER,
    Guess,
    Spans,
    answerless,
    best_spans,
    firsts,
    guesses_of,
    rows_of_questions,
    tokens_of,
)
from .tasks import Question, TaskData
from .texts import Problem

COLUMNS = ("scores", "starts", "ends")
"""Outputs of each window: its best spans, [B, K]. Beside them is null [B]."""


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

    # -------------------------------------------------------------- rows

    def training(self, examples: Sequence[Question]) -> Any:
        """Only the windows that something can be learnt from."""
        return self.rows(examples, learning=True)

    def rows(self, examples: Sequence[Question], *, learning: bool = False) -> Any:
        """targets: start, end, and whether the question has no answer. spots: the Window of each
        row. places: the tokens that an answer may begin or end with."""
        reader = self.reader
        rows = list[Any]()
        for ids, types, window in rows_of_questions(
            reader.tokenizer, reader.pair, examples, self.max_seq_length, stride=self.doc_stride
        ):
            question = examples[window.question]
            target = [len(ids) - 1 if reader.last else 0] * 2  # no answer
            if learning:
                true = None
                if question.answers:
                    true = tokens_of(question.answers[0], question.context, window.offsets)
                    if true is None:  # characters that are in no token: nothing to point at
                        continue
                if true and window.begin <= true[0] and true[1] < window.end:
                    target = [window.start - window.begin + k for k in true]
                elif not (self.answerless or self.published):
                    continue
            stop = len(ids) if self.published else window.stop
            places = [int(window.start <= k < stop) for k in range(len(ids))]
            rows.append((ids, types, places, [*target, int(not question.answers)], window))
        fact = f"no training answer fits into {self.max_seq_length} tokens. Raise --max-seq-length"
        need(bool(rows), fact)
        ids, types, places, targets, spots = zip(*rows, strict=True)
        targets = torch.tensor(targets, dtype=torch.int32)
        return self.as_rows(ids, types, targets, places=places, spots=spots)

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
        logits = (x.masked_fill(~batch.places_BL, NEVER).cpu().numpy() for x in (start_BL, end_BL))
        spans = best_spans(*logits, longest=self.longest_answer, keep=self.n_best)
        columns = map(torch.from_numpy, spans)
        return dict(zip(COLUMNS, columns, strict=True)) | {"null": null_B}

    # -------------------------------------------------------------- answers

    def guesses(self, held: Answered) -> list[list[Guess]]:
        """The `n_best` best different answers to each question, best first."""
        spans = Spans(*(held.outputs[name].numpy() for name in COLUMNS))
        return guesses_of(held.examples, held.rows.spots, spans, n_best=self.n_best)

    def best(self, held: Answered) -> tuple[list[list[Guess]], list[float]]:
        """The guesses for each question, and how much speaks for no answer."""
        guesses, null_B = self.guesses(held), held.outputs["null"].tolist()
        return guesses, answerless(guesses, held.rows.spots, null_B, alone=self.published)

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        guesses, none = self.best(held)
        if not self.answerless:
            return score_answers(held.examples, firsts(guesses))
        found = answer_scores(held.examples, firsts(guesses), none)
        # Not all of them, if a kind of question is missing.
        return {name: found.pop(name, math.nan) for name in task.metrics} | found

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.predictions.json, the official file (question id to answer), and NAME.nbest.json;
        with unanswerable questions NAME.null_odds.json too, and the predictions are empty above
        the threshold of the best F1."""
        guesses, none = self.best(held)
        texts = firsts(guesses)
        each = [[{"text": g.text, "score": round(g.score, 5)} for g in its] for its in guesses]
        files: dict[str, Sequence[Any]] = {"nbest": each}
        if self.answerless:
            files["null_odds"] = none
            texts = silenced(texts, none, threshold_of(held.examples, texts, none))
        files["predictions"] = texts
        ids = [q.id for q in held.examples]
        by_id = {which: dict(zip(ids, its, strict=True)) for which, its in files.items()}
        return {
            f"{name}.{which}.json": f"{json.dumps(content, ensure_ascii=False, indent=1)}\n"
            for which, content in by_id.items()
        }

    def reading(self, task: TaskData, held: Answered) -> Reading:
        """With the threshold of "no answer" that is best on the validation questions."""
        found = super().reading(task, held)
        if not self.answerless:
            return found
        guesses, none = self.best(held)
        threshold = threshold_of(held.examples, firsts(guesses), none)
        return found | {"no_answer_threshold": max(threshold, NEVER)}


def class_tokens(batch: Batch, *, last: bool) -> Tensor:
    """The position of the class token in each row, [B]."""
    lengths_B = batch.lengths_B.long()
    return lengths_B - 1 if last else torch.zeros_like(lengths_B)


def with_class_token(batch: Batch, *, last: bool) -> Tensor:
    """[B, L]: the places of the batch and the class token."""
    assert batch.places_BL is not None
    return batch.places_BL.scatter(1, class_tokens(batch, last=last)[:, None], True)
