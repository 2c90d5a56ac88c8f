"""A task made ready for an encoder: `Texts`, alone or in pairs, with a class, several classes or a
value (GLUE's kind of task), `Tagging` of words, and `Answering` of questions by a piece of a
context. encoding.py makes their rows.

Tagging: the mean of the logits of a word's tokens decides, and each word is scored once, however
long the sentence. The layer is linear, so this is the logit of the mean state. A sentence that does
not fit is read through windows that overlap by half; a word is tagged in the window where it is
farther from an edge.

Answering: in training a window without the answer says that there is none where the task has
unanswerable questions (SQuAD 2.0), and is left out if the task has none (1.1). "No answer" is the
class token as start and end, as in BERT: its score is its sum of logits minus that of the best
span.

Shape suffixes: N examples or rows, B examples of a batch, L tokens, C classes, W words, P tokens of
words, K spans kept.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import need
from . import encoding, loop, metrics
from .encoding import NEVER, Answers, TextRows
from .loop import Answered, Batch, Rows, as_tensor
from .metrics import answer_scores, score_answers, silenced, threshold_of
from .model import Reader, probabilities_of, with_fresh_head
from .tasks import TASKS, Example, Kind, Question, Sentence, TaskData

NO_WORD = -100
"""The target of a token with which no word begins, as in the library."""


@dataclass
class Problem:
    """A kind of task made ready for an encoder: examples -> rows -> loss, answers -> scores, files.
    A subclass also has loss(net, batch) and weight(batch), answers(net, held), score(task, held)
    and files(name, task, held).

    weights: of the classes in the loss, see `class_weights`. head: makes the network. A regression
    learns (value - center) / scale.
    """

    reader: Reader
    kind: Kind
    labels: tuple[str, ...]
    max_seq_length: int = field(kw_only=True)
    weights: Tensor | None = field(default=None, kw_only=True)
    head: Callable[..., Any] = field(default=with_fresh_head, kw_only=True)
    center: float = field(default=0.0, init=False)
    scale: float = field(default=1.0, init=False)

    def net(self, *, dropout: float | None) -> Any:
        return self.head(self.reader, self.kind, self.labels, dropout=dropout)

    def fit(self, examples: Sequence[Any]) -> None:
        """Takes from the training examples what the rows depend on."""

    def training(self, examples: Sequence[Any]) -> Any:
        self.fit(examples)
        return self.rows(examples)

    def rows(self, examples: Sequence[Any]) -> Any:
        raise NotImplementedError

    def outputs(self, net: Any, rows: Any, each: Callable[[Any, Any], Any]) -> list[Any]:
        """What `each` makes of the spot of a row (see `Rows`) and its logits."""
        spots, outputs = rows.spots or [None] * len(rows.lengths_N), lambda b: [net(b.inputs)]
        return loop.answers(net, rows, outputs, lambda k, logits: each(spots[k], logits))

    def note(self) -> str:
        """What a reader of the scores must know of the rows so far."""
        return ""

    def reading(self, task: TaskData, held: Answered) -> dict[str, Any]:
        """What a saved model must know to read as here. held: the validation set."""
        first, found = task.train[0], {"max_seq_length": self.max_seq_length}
        return found | ({"pairs": first.pair is not None} if isinstance(first, Example) else {})


@dataclass
class Texts(Problem):
    """A regression's center and scale are the mean and the deviation of the training values: with
    values of 0 to 5, the bias would first have to move there. The published protocol learns values
    from 0 to 1."""

    def fit(self, examples: Sequence[Example]) -> None:
        """Takes the scale of the values."""
        if self.kind != "regression":
            return
        values_N = torch.tensor([e.label for e in examples], dtype=torch.float64)
        self.center = float(values_N.mean())
        self.scale = float(values_N.std(correction=0)) or 1.0

    def rows(self, examples: Sequence[Example]) -> Any:
        return Rows.of(self.reader, *self.text_rows(examples), self.targets(examples))

    @cached_property
    def text_rows(self) -> TextRows:
        return TextRows(self.reader, self.max_seq_length)

    def note(self) -> str:
        return self.text_rows.note()

    def targets(self, examples: Sequence[Example]) -> Tensor:
        """[N], or [N, C] of several labels each: 1, 0, and NaN where it is not known."""
        if self.kind == "multilabel":
            known_NC = torch.from_numpy(metrics.several(examples, classes=len(self.labels))).float()
            return known_NC.masked_fill_(known_NC == metrics.UNKNOWN, math.nan)
        values_N = torch.tensor([e.label for e in examples], dtype=torch.float64)
        return ((values_N - self.center) / self.scale).float()

    def loss(self, net: Any, batch: Batch) -> Tensor:
        """The mean loss over what is known."""
        logits_BC, targets = net(batch.inputs), batch.targets
        if self.kind == "regression":
            return F.mse_loss(logits_BC[:, 0], targets)
        if self.kind == "classification":
            return grade_classes(logits_BC, targets, self.weights)
        known_BC = ~targets.isnan()
        weights_BC = None
        if self.weights is not None:
            no_C, yes_C = self.weights.to(targets.device).unbind(-1)
            weights_BC = torch.where(targets > 0, yes_C, no_C)[known_BC]
        return F.binary_cross_entropy_with_logits(
            logits_BC[known_BC], targets[known_BC], weights_BC
        )

    def weight(self, batch: Batch) -> Tensor:
        """The number of examples over which the loss is the mean; one with several labels counts by
        the share of them that is known."""
        known = ~batch.targets.isnan()
        return known.float().reshape(len(known), -1).mean(1).sum()

    def answers(self, net: Any, held: Answered) -> Tensor:
        """The logits, [N, C]."""
        return torch.from_numpy(
            np.stack(self.outputs(net, held.rows, lambda _, logits_C: logits_C))
        )

    def chosen(self, logits_NC: Tensor) -> Tensor:
        """The class [N], whether each label is more probable than not [N, C], or the value before
        scaling [N]."""
        if self.kind == "multilabel":
            return (logits_NC > 0).int()
        return logits_NC[:, 0] if self.kind == "regression" else logits_NC.argmax(-1)

    def values(self, logits_NC: Tensor) -> list[float]:
        """The values that a regression predicts, on their original scale."""
        return [v * self.scale + self.center for v in logits_NC[:, 0].tolist()]

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        chosen, sure = self.chosen(held.answers), probabilities_of(self.kind, held.answers)
        return metrics.scores_of(task, held.examples, chosen.numpy(), sure.numpy())

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.tsv of a test set, as GLUE's server wants it, or NAME-validation.csv: every example
        with its label, the prediction and the probabilities of the classes. Only examples of your
        own are repeated."""
        examples, chosen = held.examples, self.chosen(held.answers).tolist()
        if self.kind == "regression":
            chosen = self.values(held.answers)
        elif self.kind == "multilabel":
            chosen = [tuple(k for k, applies in enumerate(row) if applies) for row in chosen]
        if name in dict(task.test):
            shown = (self.written(label, value="{:.3f}") for label in chosen)
            lines = "".join(f"{k}\t{answer}\n" for k, answer in enumerate(shown))
            return {f"{name}.tsv": f"index\tprediction\n{lines}"}
        columns: dict[str, Any] = {"row": range(len(examples))}
        own = ("text", "pair") if examples[0].pair is not None else ("text",)
        for column in own if task.name not in TASKS else ():
            columns[column] = [getattr(e, column) for e in examples]
        columns["label"] = [self.written(e.label, e.unknown) for e in examples]
        columns["prediction"] = list(map(self.written, chosen))
        sure_CN = probabilities_of(self.kind, held.answers).T.tolist()
        for label, sure_N in zip(self.labels, sure_CN, strict=False):  # a value has none
            columns[f"probability of {label}"] = [f"{p:.9g}" for p in sure_N]
        table = io.StringIO()
        csv.writer(table).writerows([list(columns), *zip(*columns.values(), strict=True)])
        return {f"{name}-validation.csv": table.getvalue()}

    def written(self, label: Any, unknown: Sequence[int] = (), *, value: str = "{!r}") -> str:
        """A label as the task's files write it: several with a bar between, or a value."""
        if isinstance(label, tuple):
            names = [self.labels[k] for k in label] + [f"?{self.labels[k]}" for k in unknown]
            return "|".join(names)
        return value.format(float(label)) if self.kind == "regression" else self.labels[int(label)]


def grade_classes(logits_BC: Tensor, targets_B: Tensor, weights_C: Tensor | None) -> Tensor:
    """weights_C: how much each class counts, 1 on average over the examples."""
    targets_B = targets_B.long()
    if weights_C is None:
        return F.cross_entropy(logits_BC, targets_B)
    losses_B = F.cross_entropy(logits_BC, targets_B, reduction="none")
    return (losses_B * weights_C.to(losses_B.device)[targets_B]).mean()


def class_weights(task: TaskData) -> Tensor:
    """The weights by the training examples with which rare classes count as much as frequent ones:
    a class with n of N examples counts N / (classes * n), so that they are 1 on average over the
    examples (King and Zeng 2001; scikit-learn's `balanced`). [C], or, if an example may have
    several classes, [C, 2], for a class that does not apply and for one that does."""
    examples: Any = task.train
    if task.kind == "multilabel":
        known_NC = torch.from_numpy(metrics.several(examples, classes=len(task.labels)))
        counts = torch.stack([(known_NC == 0).sum(0), (known_NC == 1).sum(0)], -1)
    else:
        numbers = [int(e.label) for e in examples] if task.kind == "classification" else []
        if task.kind == "tagging":
            places = {tag: k for k, tag in enumerate(task.labels)}
            numbers = [places[tag] for sentence in examples for tag in sentence.tags]
        counts = torch.tensor(numbers).bincount(minlength=len(task.labels))
    # Even what never occurs has a weight, which nothing uses.
    counts = counts.float().clamp(min=1)
    return counts.sum(-1, keepdim=True) / (counts.shape[-1] * counts)


@dataclass
class Tagging(Problem):
    """Sentences may carry tags that training never showed: they count as mistakes. first_piece:
    whether the first piece alone stands for a word (BERT's and ELECTRA's public code)."""

    first_piece: bool = False

    def rows(self, examples: Sequence[Sentence]) -> Any:
        """targets: the tag where a word begins, in the order of the sentences, each word once, and
        NO_WORD elsewhere. places: the pieces that stand for them. spots: the words of each row."""
        numbers = {tag: k for k, tag in enumerate(self.labels)}
        found = list[Any]()
        for ids, types, words in encoding.rows_of_words(self.reader, examples, self.max_seq_length):
            if self.first_piece:
                words = [(*word, start, start + 1) for *word, start, _ in words]
            target, place = [NO_WORD] * len(ids), [0] * len(ids)
            for number, k, start, stop in words:
                target[start] = numbers.get(examples[number].tags[k], 0)
                place[start:stop] = [1] * (stop - start)
            found.append((ids, types, target, place, words))
        ids, types, targets, places, spots = zip(*found, strict=True)
        targets = as_tensor(targets, NO_WORD, torch.int32)
        return Rows.of(self.reader, ids, types, targets, places=places, spots=spots)

    def loss(self, net: Any, batch: Batch) -> Tensor:
        logits_WC = of_words(net(batch.inputs), batch)
        return grade_classes(logits_WC, batch.targets[batch.targets != NO_WORD], self.weights)

    def weight(self, batch: Batch) -> Tensor:
        return (batch.targets != NO_WORD).sum()

    def answers(self, net: Any, held: Answered) -> list[tuple[str, ...]]:
        """The tags of each sentence."""
        classes = self.outputs(net, held.rows, encoding.classes_of)
        return encoding.tags_of(held.examples, classes, self.labels)

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        return metrics.scores_of(task, held.examples, held.answers)

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.txt as conlleval reads it: word, true tag, predicted tag, a blank line after each
        sentence."""
        blocks = []
        for sentence, tags in zip(held.examples, held.answers, strict=True):
            cells = zip(sentence.words, sentence.tags, tags, strict=True)
            blocks.append("".join(f"{' '.join(row)}\n" for row in cells))
        return {f"{name}.txt": "\n".join(blocks) + "\n"}


def of_words(x_BLD: Tensor, batch: Batch) -> Tensor:
    """[W, D]: the mean over the tokens of each word, in the order of the words."""
    places_BL = batch.places_BL
    x_PD = x_BLD[places_BL].float()
    word_P = (batch.targets != NO_WORD)[:, : places_BL.shape[1]][places_BL].cumsum(0) - 1
    counts_W = word_P.bincount()
    sums_WD = x_PD.new_zeros(len(counts_W), x_PD.shape[1])
    return sums_WD.index_add(0, word_P, x_PD) / counts_W[:, None]


@dataclass
class Answering(Problem):
    """answerless: whether some questions of the task have no answer. The published protocol learns
    from every window, also of SQuAD 1.1, may choose the separator behind the context, and scores
    "no answer" by itself."""

    answerless: bool = field(default=False, kw_only=True)
    published = False

    def training(self, examples: Sequence[Question]) -> Any:
        """Only the windows that something can be learnt from."""
        return self.rows(examples, learning=True)

    def rows(self, examples: Sequence[Question], *, learning: bool = False) -> Any:
        """targets: start, end, and whether the question has no answer. spots: the Part of each
        row. places: the tokens that an answer may begin or end with, and the class token."""
        found = list[Any]()
        windows = encoding.rows_of_questions(self.reader, examples, self.max_seq_length)
        for ids, types, window in windows:
            question, true = examples[window.question], None
            target = [window.none, window.none]
            if learning and question.answers:
                true = encoding.tokens_of(question.answers[0], question.context, window.offsets)
                if true is None:  # characters that are in no token: nothing to point at
                    continue
            if true and window.begin <= true[0] and true[1] < window.end:
                target = [window.start - window.begin + k for k in true]
            elif learning and not (self.answerless or self.published):
                continue
            stop = len(ids) if self.published else window.stop
            places = [int(window.start <= k < stop) for k in range(len(ids))]
            places[window.none] = 1
            found.append((ids, types, [*target, int(not question.answers)], places, window))
        need(bool(found), f"{self.max_seq_length} tokens hold no answer. Raise --max-seq-length")
        ids, types, targets, places, spots = zip(*found, strict=True)
        targets = torch.tensor(targets, dtype=torch.int32)
        return Rows.of(self.reader, ids, types, targets, places=places, spots=spots)

    def loss(self, net: Any, batch: Batch) -> Tensor:
        logits_BL2 = net(batch.inputs).masked_fill(~batch.places_BL[..., None], NEVER)
        start_BL, end_BL = logits_BL2.unbind(-1)
        start_B, end_B, _ = batch.targets.long().unbind(1)
        return (F.cross_entropy(start_BL, start_B) + F.cross_entropy(end_BL, end_B)) / 2

    def weight(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch.lengths_B))

    def answers(self, net: Any, held: Answered) -> list[Answers]:
        spans = self.outputs(net, held.rows, encoding.spans_of)
        return encoding.best_answers(held.examples, held.rows.spots, spans, alone=False)

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        texts, none = said(held)
        if not self.answerless:
            return score_answers(held.examples, texts)
        found = answer_scores(held.examples, texts, none)
        # Not all of them, if a kind of question is missing.
        return {name: found.pop(name, math.nan) for name in task.metrics} | found

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.predictions.json, the official file (question id to answer), and NAME.nbest.json;
        with unanswerable questions NAME.null_odds.json too, and the predictions are empty above
        the threshold of the best F1."""
        texts, none = said(held)
        files: dict[str, Sequence[Any]] = {
            "nbest": [
                [{"text": g.text, "score": round(g.score, 5)} for g in one.guesses]
                for one in held.answers
            ]
        }
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

    def reading(self, task: TaskData, held: Answered) -> dict[str, Any]:
        """With the threshold of "no answer" that is best on the validation questions."""
        found = super().reading(task, held)
        if self.answerless:
            threshold = threshold_of(held.examples, *said(held))
            found["no_answer_threshold"] = max(threshold, NEVER)
        return found


def said(held: Answered) -> tuple[list[str], list[float]]:
    """The best answer to each question, and how much speaks for none."""
    return [one.text for one in held.answers], [one.none for one in held.answers]


def class_tokens(batch: Batch, *, last: bool) -> Tensor:
    """The position of the class token in each row, [B]."""
    lengths_B = batch.lengths_B.long()
    return lengths_B - 1 if last else torch.zeros_like(lengths_B)
