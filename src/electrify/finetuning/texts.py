"""Texts and words: a whole text, or two, with a class, several classes or a value (GLUE's kind of
task), and sentences whose words have tags.

Tagging: the mean of the logits of a word's tokens decides, and each word is scored once, however
long the sentence. The layer is linear, so this is the logit of the mean state. A sentence that does
not fit is read through windows that overlap by half; a word is tagged in the window where it is
farther from an edge.

Shape suffixes: N examples or rows, B examples of a batch, L tokens, C classes, W words, P tokens of
words.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from . import metrics
from .encoding import Lists, Truncation, rows_of_texts, rows_of_words
from .loop import Answered, Batch, Outputs, Rows, padded
from .metrics import span_scores
from .model import Reader, Reading, with_fresh_head
from .tasks import TASKS, Example, Kind, Sentence, TaskData

NO_WORD = -100
"""The target of a token with which no word begins, as in the library."""
MOST_COLUMNS = 100
"""Classes whose probabilities are written."""


@dataclass
class Problem:
    """A kind of task made ready for an encoder: examples -> rows -> loss, outputs -> scores, files.
    weights: of the classes in the loss, see `class_weights`. head: makes the network."""

    reader: Reader
    kind: Kind
    labels: tuple[str, ...]
    max_seq_length: int = field(kw_only=True)
    device: torch.device = field(kw_only=True)
    weights: Tensor | None = field(default=None, kw_only=True)
    head: Callable[..., Any] = field(default=with_fresh_head, kw_only=True)

    def net(self, *, dropout: float | None) -> Any:
        return self.head(self.reader, self.kind, self.labels, dropout=dropout)

    def fit(self, examples: Sequence[Any]) -> None:
        """Takes from the training examples what the rows depend on."""

    def training(self, examples: Sequence[Any]) -> Any:
        self.fit(examples)
        return self.rows(examples)

    def rows(self, examples: Sequence[Any]) -> Any:
        raise NotImplementedError

    def as_rows(
        self, ids: Lists, types: Lists, targets: Tensor, *, places: Any = None, spots: Any = None
    ) -> Rows:
        """Token ids, token types, and places (1 for tokens that the head may look at, else 0) of
        each row, as tensors on the device."""
        reader, device = self.reader, self.device
        return Rows(
            padded(ids, reader.tokenizer.pad_token_id, torch.int32).to(device),
            padded(types, 0, torch.uint8).to(device) if reader.segments else None,
            torch.tensor([len(row) for row in ids]),
            targets.to(device),
            None if places is None else padded(places, 0, torch.uint8).bool().to(device),
            spots,
        )

    def notes(self, examples: Sequence[Any], rows: Any) -> list[str]:
        """What a reader of the scores must know of the training examples and their rows."""
        return []

    def reading(self, task: TaskData, held: Answered) -> Reading:
        """What a saved model must know to read as here. held: the validation set."""
        first, found = task.train[0], {"max_seq_length": self.max_seq_length}
        return found | ({"pairs": first.pair is not None} if isinstance(first, Example) else {})


@dataclass
class Texts(Problem):
    """Regression learns (value - center) / scale, with the mean and the deviation of the training
    values: with values of 0 to 5, the bias would first have to move there. The published protocol
    learns values from 0 to 1."""

    center: float = field(default=0.0, init=False)
    scale: float = field(default=1.0, init=False)

    def fit(self, examples: Sequence[Example]) -> None:
        """Takes the scale of the values."""
        if self.kind != "regression":
            return
        values_N = torch.tensor([e.label for e in examples], dtype=torch.float64)
        self.center = float(values_N.mean())
        self.scale = float(values_N.std(correction=0)) or 1.0

    def rows(self, examples: Sequence[Example]) -> Any:
        ids, types = rows_of_texts(self.reader, examples, self.max_seq_length)
        return self.as_rows(ids, types, self.targets(examples))

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
        return (known if known.ndim == 1 else known.float().mean(1)).sum()

    def outputs(self, net: Any, batch: Batch) -> Outputs:
        return {"logits": net(batch.inputs)}

    def probabilities(self, outputs: Outputs) -> Tensor:
        """[N, C]: the probability of each class; with several labels, that each holds."""
        logits_NC = outputs["logits"].float()
        return logits_NC.sigmoid() if self.kind == "multilabel" else logits_NC.softmax(-1)

    def chosen(self, outputs: Outputs, *, threshold: float = 0.5) -> Tensor:
        """The class [N], whether each label is more probable than the threshold [N, C], or the
        value before scaling [N]."""
        logits_NC = outputs["logits"]
        match self.kind:
            case "regression":
                return logits_NC[:, 0]
            case "multilabel":
                return (logits_NC > math.log(threshold / (1 - threshold))).int()
            case _:
                return logits_NC.argmax(-1)

    def values(self, outputs: Outputs) -> list[float]:
        """The values that a regression predicts, on their original scale."""
        return [v * self.scale + self.center for v in outputs["logits"][:, 0].tolist()]

    def notes(self, examples: Sequence[Example], rows: Any) -> list[str]:
        cut = Truncation(self.reader, self.max_seq_length)
        cut.add(examples, rows.lengths_N.tolist())
        return [f"training: {cut.text()}"] if cut.truncated else []

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        wanted = metrics.targets_of(task, held.examples)
        chosen, sure = self.chosen(held.outputs), self.probabilities(held.outputs)
        return metrics.score(task.metrics, wanted, chosen.numpy(), sure.numpy())

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.tsv of a test set, as GLUE's server wants it, or NAME-validation.csv: every example
        with its label, the prediction and the probabilities of the first MOST_COLUMNS classes. Only
        examples of your own are repeated."""
        examples, outputs = held.examples, held.outputs
        if name in dict(task.test):
            shown = self._shown(outputs, values="{:.3f}")
            lines = "".join(f"{k}\t{answer}\n" for k, answer in enumerate(shown))
            return {f"{name}.tsv": f"index\tprediction\n{lines}"}
        columns: dict[str, Any] = {"row": range(len(examples))}
        own = ("text", "pair") if examples[0].pair is not None else ("text",)
        for column in own if task.name not in TASKS else ():
            columns[column] = [getattr(e, column) for e in examples]
        columns["label"] = [self._label(e) for e in examples]
        columns["prediction"] = self._shown(outputs, values="{!r}")
        sure_CN = self.probabilities(outputs).T.tolist()
        for label, sure_N in list(zip(self.labels, sure_CN, strict=False))[:MOST_COLUMNS]:
            columns[f"probability of {label}"] = [f"{p:.9g}" for p in sure_N]
        table = io.StringIO()
        csv.writer(table).writerows([list(columns), *zip(*columns.values(), strict=True)])
        return {f"{name}-validation.csv": table.getvalue()}

    def _shown(self, outputs: Outputs, *, values: str) -> list[str]:
        """Labels as the task's files write them (several with a bar between), or values."""
        if self.kind == "regression":
            return [values.format(value) for value in self.values(outputs)]
        chosen = self.chosen(outputs).tolist()
        if self.kind == "classification":
            return [self.labels[k] for k in chosen]
        return ["|".join(n for n, on in zip(self.labels, row, strict=True) if on) for row in chosen]

    def _label(self, example: Example) -> str:
        if isinstance(example.label, tuple):
            unknown = (f"?{self.labels[k]}" for k in example.unknown)
            return "|".join([*(self.labels[k] for k in example.label), *unknown])
        if self.kind == "regression":
            return repr(float(example.label))
        return self.labels[int(example.label)]


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
        """Words begin where a row's target is not NO_WORD: in the order of the sentences, each
        once. places: the pieces that stand for them."""
        numbers = {tag: k for k, tag in enumerate(self.labels)}
        ids, types, targets, places = (list[list[int]]() for _ in range(4))
        reader, length = self.reader, self.max_seq_length
        for row in rows_of_words(reader.tokenizer, reader.single, examples, length):
            tags = row.sentence.tags or self.labels[:1] * len(row.sentence.words)
            target, place = [NO_WORD] * len(row.ids), [0] * len(row.ids)
            for k, start, stop in row.words:
                stop = start + 1 if self.first_piece else stop
                target[start] = numbers.get(tags[k], 0)
                place[start:stop] = [1] * (stop - start)
            ids.append(row.ids)
            types.append(row.types)
            targets.append(target)
            places.append(place)
        return self.as_rows(ids, types, padded(targets, NO_WORD, torch.int32), places=places)

    def loss(self, net: Any, batch: Batch) -> Tensor:
        logits_WC = of_words(net(batch.inputs), batch)
        return grade_classes(logits_WC, batch.targets[batch.targets != NO_WORD], self.weights)

    def weight(self, batch: Batch) -> Tensor:
        return (batch.targets != NO_WORD).sum()

    def outputs(self, net: Any, batch: Batch) -> Outputs:
        """classes [B, L] where a word begins, 0 elsewhere; L is that of all rows, so that batches
        can be put together."""
        found_BL = torch.zeros_like(batch.targets, dtype=torch.int32)
        found_BL[batch.targets != NO_WORD] = of_words(net(batch.inputs), batch).argmax(-1).int()
        return {"classes": found_BL}

    def tags(self, held: Answered) -> list[tuple[str, ...]]:
        """The predicted tags of each sentence."""
        numbers_W = held.outputs["classes"][held.rows.targets.cpu() != NO_WORD].tolist()
        names = iter([self.labels[k] for k in numbers_W])
        return [tuple(next(names) for _ in sentence.words) for sentence in held.examples]

    def score(self, task: TaskData, held: Answered) -> dict[str, float]:
        found = span_scores([s.tags for s in held.examples], self.tags(held))
        return {name: found[name] for name in task.metrics}

    def files(self, name: str, task: TaskData, held: Answered) -> dict[str, str]:
        """NAME.txt as conlleval reads it: word, true tag, predicted tag, a blank line after each
        sentence."""
        blocks = []
        for sentence, tags in zip(held.examples, self.tags(held), strict=True):
            cells = zip(sentence.words, sentence.tags, tags, strict=True)
            blocks.append("".join(f"{' '.join(row)}\n" for row in cells))
        return {f"{name}.txt": "\n".join(blocks) + "\n"}


def of_words(x_BLD: Tensor, batch: Batch) -> Tensor:
    """[W, D]: the mean over the tokens of each word, in the order of the words."""
    assert batch.places_BL is not None
    places_BL = batch.places_BL
    begins_P = (batch.targets != NO_WORD)[:, : places_BL.shape[1]][places_BL]
    return means(x_BLD[places_BL].float(), begins_P.cumsum(0) - 1)


def means(of_tokens_PD: Tensor, word_P: Tensor) -> Tensor:
    """[W, D]: the mean over the tokens of each word. word_P: the word of each token, in order."""
    counts_W = word_P.bincount()
    sums_WD = of_tokens_PD.new_zeros(len(counts_W), of_tokens_PD.shape[1])
    return sums_WD.index_add(0, word_P, of_tokens_PD) / counts_W[:, None]
