"""Heads, which learn a task from an encoder's states. Each head knows its loss, and which of its
outputs to keep.

- `TextHead` reads the state of the whole text. Loss: cross-entropy, squared error, or that of each
  class. Answers: logits [B, C].
- `TagHead` reads the states of words: the mean of their marked tokens. Loss: cross-entropy.
  Answers: classes [B, L] where a word begins, 0 elsewhere; L is that of all rows, so that batches
  can be put together.
- `SpanHead` (answer_heads.py) reads every state. Loss: start and end, each a choice of a token.
  Answers: scores, starts, ends [B, K], null [B].
- `JointHead` (answer_heads.py) reads every state. Loss: the start, the end given the start, and
  whether there is one. Answers: the same.
- `ElectraHead` (electra_head.py) is the same, pointing at the class token where there is none.
  Answers: beam^2 of each.

A head computes in float32, whatever the encoder computed in. Shape suffixes: B examples, L tokens,
D width, C classes, K spans kept, P marked tokens, W words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NO_WORD = -100
"""The target of a token with which no word begins, as in the library."""


@dataclass(frozen=True)
class Batch:
    """Padded rows. places_BL: tokens that the head may look at or choose. targets: class numbers
    [B], values [B], classes that apply [B, C], tags [B, L] where a word begins and NO_WORD
    elsewhere, or start, end and whether there is no answer [B, 3]."""

    inputs: dict[str, Tensor]
    lengths_B: Tensor
    places_BL: Tensor | None
    targets: Tensor


Loss = Callable[[Tensor, Tensor], Tensor]


def grade_class(logits_BC: Tensor, targets_B: Tensor, weights_C: Tensor | None = None) -> Tensor:
    """weights_C: how much each class counts, 1 on average over the examples."""
    targets_B = targets_B.long()
    if weights_C is None:
        return F.cross_entropy(logits_BC, targets_B)
    losses_B = F.cross_entropy(logits_BC, targets_B, reduction="none")
    return (losses_B * weights_C.to(losses_B.device)[targets_B]).mean()


def grade_value(logits_BC: Tensor, targets_B: Tensor) -> Tensor:
    return F.mse_loss(logits_BC[:, 0], targets_B)


def grade_each(logits_BC: Tensor, targets_BC: Tensor, weights_C2: Tensor | None = None) -> Tensor:
    """targets_BC: 1, 0, and NaN where it is not known. weights_C2: how much it counts when a class
    does not apply, and when it does."""
    known_BC = ~targets_BC.isnan()
    weights_BC = None
    if weights_C2 is not None:
        no_C, yes_C = weights_C2.to(targets_BC.device).unbind(-1)
        weights_BC = torch.where(targets_BC > 0, yes_C, no_C)
    return F.binary_cross_entropy_with_logits(
        logits_BC[known_BC],
        targets_BC[known_BC],
        None if weights_BC is None else weights_BC[known_BC],
    )


def rows_known(targets: Tensor) -> Tensor:
    """The number of examples over which a loss is the mean: a scalar. targets: [B]; with several
    classes [B, C], where an example counts by the share of them that is known."""
    if targets.ndim == 1:
        return torch.tensor(len(targets), device=targets.device)
    return (~targets.isnan()).float().mean(1).sum()


class TextHead(nn.Module):
    """Dropout and one linear layer on the first token's state, or the last one's (ELECTRA's own
    fine-tuning head)."""

    def __init__(
        self,
        width: int,
        num_outputs: int,
        *,
        dropout: float,
        std: float | None,
        last: bool,
        grade: Loss,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = linear(width, num_outputs, std)
        self.last = last
        self.grade = grade

    def forward(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        """Logits [B, C]."""
        text_BD = (
            states_BLD[torch.arange(len(states_BLD), device=states_BLD.device), batch.lengths_B - 1]
            if self.last
            else states_BLD[:, 0]
        )
        return self.out(self.dropout(text_BD.float()))

    def loss(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        return self.grade(self(states_BLD, batch), batch.targets)

    def weight(self, batch: Batch) -> Tensor:
        return rows_known(batch.targets)

    def answers(self, states_BLD: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"logits": self(states_BLD, batch)}


class TagHead(nn.Module):
    """Dropout and one linear layer on the mean of the marked states of each word; as the layer is
    linear, this is the mean of the logits of these tokens."""

    def __init__(
        self,
        width: int,
        num_outputs: int,
        *,
        dropout: float,
        std: float | None,
        grade: Loss,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = linear(width, num_outputs, std)
        self.grade = grade

    def loss(self, states_BLD: Tensor, batch: Batch) -> Tensor:
        logits_WC = self.out(self.dropout(states_of_words(states_BLD, batch)))
        return self.grade(logits_WC, batch.targets[batch.targets != NO_WORD])

    def weight(self, batch: Batch) -> Tensor:
        return (batch.targets != NO_WORD).sum()

    def answers(self, states_BLD: Tensor, batch: Batch) -> dict[str, Tensor]:
        found_BL = torch.zeros_like(batch.targets, dtype=torch.int32)
        classes_W = self.out(states_of_words(states_BLD, batch)).argmax(-1)
        found_BL[batch.targets != NO_WORD] = classes_W.int()
        return {"classes": found_BL}


def states_of_words(states_BLD: Tensor, batch: Batch) -> Tensor:
    """[W, D] in float32: the mean of the marked states of each word, in the order of the words."""
    assert batch.places_BL is not None
    places_BL = batch.places_BL
    begins_P = (batch.targets != NO_WORD)[:, : places_BL.shape[1]][places_BL]
    return means(states_BLD[places_BL].float(), begins_P.cumsum(0) - 1)


def means(states_PD: Tensor, word_P: Tensor) -> Tensor:
    """[W, D]: the mean of the states of each word. word_P: the word of each state, in order."""
    counts_W = word_P.bincount()
    sums_WD = states_PD.new_zeros(len(counts_W), states_PD.shape[1])
    return sums_WD.index_add(0, word_P, states_PD) / counts_W[:, None]


class Finetuned(nn.Module):
    """An encoder and a head."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.head: Any = head

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch, a scalar."""
        return self._of(self.head.loss, batch)

    def weight(self, batch: Batch) -> Tensor:
        """The number of rows (see rows_known), or of marked tokens in them, over which the loss is
        the mean; a scalar."""
        return (
            self.head.weight(batch)
            if isinstance(self.head, TagHead | TextHead)
            else torch.tensor(len(batch.lengths_B))
        )

    def answers(self, batch: Batch) -> dict[str, Tensor]:
        """The outputs that the head keeps, by name; the first dimension is the batch."""
        return self._of(self.head.answers, batch)

    def _of(self, call: Callable[[Tensor, Batch], Any], batch: Batch) -> Any:
        states_BLD = self.encoder(**batch.inputs).last_hidden_state
        with torch.autocast(states_BLD.device.type, enabled=False):
            return call(states_BLD, batch)


def linear(inputs: int, outputs: int, std: float | None) -> nn.Linear:
    """A linear layer whose bias starts at 0. Its weights are normal or, if std is None, Glorot
    uniform (as in tf.layers.dense)."""
    layer = nn.Linear(inputs, outputs)
    if std is None:
        nn.init.xavier_uniform_(layer.weight)
    else:
        nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer
