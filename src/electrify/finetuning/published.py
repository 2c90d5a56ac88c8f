"""`--protocol published`: fine-tuning as the public code of ELECTRA does it
(google-research/electra: model/optimization.py, run_finetuning.py, finetune/). It gives scores; its
models are not saved.

| | electrify | published |
|---|---|---|
| head | the library's class | one linear layer, Glorot; ELECTRA's own for questions |
| optimizer | AdamW | Adam without bias correction |
| schedule | warm-up, then decay | the decay already runs during warm-up; update 1 is at rate 0 |
| loss | mean of a minibatch | sum, so that nearly every gradient is clipped |
| layer-wise decay | the top layer at decay^1 | at decay^2 |
| a word | mean of its tokens | its first token |
| regression | standardised values | values from 0 to 1 |
| pairs of MRPC and STS-B | as they are | in both orders |
| minibatches | of similar length | random |
| dropout | the model's | 0.1; before tags and answers 0 |

The lower half of the table is in loop.PROTOCOLS and one_run.py.

Shape suffixes: B windows, L tokens, D width, H hidden units, J starts of the beam, C classes, W
windows of a context, T its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import encoding, loop
from .encoding import NEVER, Answers, Places, Spans
from .loop import Answered, Batch
from .model import Reader
from .problems import Answering, Texts, class_tokens
from .tasks import Example, Kind

ENCODER_DROPOUT = 0.1
BEAM = 20
HIDDEN = 512
"""The width of the hidden layers of ELECTRA's head for questions, whatever the encoder's width."""
ANSWERABLE_WEIGHT = 0.5


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer with Glorot's uniform weights (tf.layers.dense) and a bias of 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def published_head(
    reader: Reader, kind: Kind, labels: tuple[str, ...], *, dropout: float | None = None
) -> nn.Module:
    """The head of the public code, in place of the library's class. dropout: None is 0.1 for texts
    and 0 for words and answers."""
    usual = 0.0 if kind in ("tagging", "answering") else 0.1
    p = usual if dropout is None else dropout
    if kind == "answering":
        return ElectraHead(reader, dropout=p).to(reader.device)
    head = LinearHead(reader, len(labels) or 1, dropout=p, of_words=kind == "tagging")
    return head.to(reader.device)


class LinearHead(nn.Module):
    """An encoder with dropout and one linear layer: logits [B, C] of the class token's states, or,
    if of_words, [B, L, C] of all."""

    def __init__(self, reader: Reader, outputs: int, *, dropout: float, of_words: bool) -> None:
        super().__init__()
        self.encoder: Any = reader.encoder
        self.dropout = nn.Dropout(dropout)
        self.out = linear(reader.width, outputs)
        self.last = reader.last
        self.of_words = of_words

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        states = self.encoder(**inputs).last_hidden_state.float()
        if not self.of_words:
            lengths_B = inputs["attention_mask"].sum(1)
            states = at(states, lengths_B - 1 if self.last else torch.zeros_like(lengths_B))
        return self.out(self.dropout(states))


@dataclass
class PublishedTexts(Texts):
    """value_range: the least and the largest possible value of a regression."""

    head: Callable[..., Any] = field(default=published_head, kw_only=True)
    value_range: tuple[float, float] | None = field(default=None, kw_only=True)

    def fit(self, examples: Sequence[Example]) -> None:
        if self.kind == "regression":
            known: list[Any] = [e.label for e in examples]
            least, most = self.value_range or (min(known), max(known))
            self.center, self.scale = least, (most - least) or 1.0


class ElectraHead(nn.Module):
    """ELECTRA's own head for questions (finetune/qa/qa_tasks.py): the start, the end given the
    start, and whether the question has an answer at all.

    - start: linear, D -> 1;
    - end: linear, 2 D -> 512, gelu, linear, 512 -> 1, on the start's state and the token's;
    - none: the same shape, on the class token's state and the mean state under the probabilities of
      starts.
    """

    def __init__(self, reader: Reader, *, dropout: float) -> None:
        super().__init__()
        self.encoder: Any = reader.encoder
        self.dropout = nn.Dropout(dropout)
        self.last = reader.last
        self.start = linear(reader.width, 1)
        self.hidden = linear(2 * reader.width, HIDDEN)
        self.end = linear(HIDDEN, 1)
        self.none = nn.Sequential(linear(2 * reader.width, HIDDEN), nn.GELU(), linear(HIDDEN, 1))

    def states(self, batch: Batch) -> Tensor:
        """[B, L, D]."""
        return self.dropout(self.encoder(**batch.inputs).last_hidden_state.float())

    def starts(self, states_BLD: Tensor, allowed_BL: Tensor) -> Tensor:
        return self.start(states_BLD)[..., 0].masked_fill(~allowed_BL, NEVER)

    def of_tokens(self, states_BLD: Tensor) -> Tensor:
        """The contribution of the tokens' states to the hidden layer, which is the same for every
        start: [B, L, H]."""
        return F.linear(states_BLD, self.hidden.weight[:, states_BLD.shape[-1] :], self.hidden.bias)

    def ends(self, hidden_BLH: Tensor, given_BD: Tensor, allowed_BL: Tensor) -> Tensor:
        from_start_BH = F.linear(given_BD, self.hidden.weight[:, : given_BD.shape[-1]])
        logits_BL = self.end(F.gelu(hidden_BLH + from_start_BH[:, None]))[..., 0]
        return logits_BL.masked_fill(~allowed_BL, NEVER)

    def answerless(self, states_BLD: Tensor, start_BL: Tensor, batch: Batch) -> Tensor:
        mean_BD = torch.einsum("bl,bld->bd", start_BL.softmax(-1), states_BLD)
        class_BD = at(states_BLD, class_tokens(batch, last=self.last))
        return self.none(torch.cat([class_BD, mean_BD], -1))[:, 0]


def at(states_BLD: Tensor, at_B: Tensor) -> Tensor:
    """The state at one place of each row, [B, D]."""
    return states_BLD[torch.arange(len(at_B), device=at_B.device), at_B]


@dataclass
class ElectraQuestions(Answering):
    """Questions as the public code reads and scores them. The class token may be start and end: a
    window without the answer is trained to point at it, also for SQuAD 1.1. A token counts in the
    window that shows most of its surroundings."""

    head: Callable[..., Any] = field(default=published_head, kw_only=True)
    published = True

    def loss(self, net: Any, batch: Batch) -> Tensor:
        """(cross-entropy of the start + that of the end given the true start) / 2 + 0.5 * binary
        cross-entropy of `none`."""
        states_BLD = net.states(batch)
        start_B, end_B, none_B = batch.targets.long().unbind(1)
        start_BL = net.starts(states_BLD, batch.places_BL)
        end_BL = net.ends(net.of_tokens(states_BLD), at(states_BLD, start_B), batch.places_BL)
        spans = (F.cross_entropy(start_BL, start_B) + F.cross_entropy(end_BL, end_B)) / 2
        return spans + ANSWERABLE_WEIGHT * F.binary_cross_entropy_with_logits(
            net.answerless(states_BLD, start_BL, batch), none_B.float()
        )

    def beam(self, net: Any, batch: Batch) -> list[Tensor]:
        """The BEAM likeliest starts, each with its BEAM likeliest ends, whatever they are: scores
        (log-probabilities), starts, ends [B, BEAM^2], and no answer [B]."""
        states_BLD = net.states(batch)
        start_BL = net.starts(states_BLD, batch.places_BL)
        start_BJ, at_BJ = best(start_BL.log_softmax(-1), BEAM)
        hidden_BLH = net.of_tokens(states_BLD)
        scores, ends = list[Tensor](), list[Tensor]()
        # One start after the other: all at once would be BEAM * L * 512 numbers a row.
        for j in range(BEAM):
            end_BL = net.ends(hidden_BLH, at(states_BLD, at_BJ[:, j]), batch.places_BL)
            end_BJ, to_BJ = best(end_BL.log_softmax(-1), BEAM)
            scores.append(start_BJ[:, j, None] + end_BJ)
            ends.append(to_BJ)
        starts = at_BJ.repeat_interleave(BEAM, dim=1)
        none_B = net.answerless(states_BLD, start_BL, batch)
        return [torch.cat(scores, 1), starts, torch.cat(ends, 1), none_B]

    def answers(self, net: Any, held: Answered) -> list[Answers]:
        parts, owns = held.rows.spots, list[tuple[int, int]]()
        for _, its in groupby(parts, key=lambda part: part.question):
            owns += owned([(part.begin, part.end) for part in its])

        def fitting(k: int, scores_K: Any, starts_K: Any, ends_K: Any, none: Any) -> Spans:
            """Of the spans of a window those of its context, no longer than allowed, that begin
            where this window has the most context (finetune/qa/qa_metrics.py)."""
            (first, last), far_K = owns[k], ends_K - starts_K
            shift = parts[k].start - parts[k].begin
            fits_K = (first <= starts_K - shift) & (starts_K - shift < last)
            fits_K &= (ends_K < parts[k].stop) & (far_K >= 0) & (far_K < encoding.LONGEST_ANSWER)
            at_K = np.flatnonzero(fits_K)
            at_K = at_K[np.argsort(-scores_K[at_K], kind="stable")[: encoding.N_BEST]]
            return scores_K[at_K], starts_K[at_K], ends_K[at_K], float(none)

        spans = loop.answers(net, held.rows, partial(self.beam, net), fitting)
        return encoding.best_answers(held.examples, parts, spans, alone=True)


def best(scores_BN: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The `keep` largest values and their positions, padded with impossible ones if there are
    fewer."""
    found = scores_BN.topk(min(keep, scores_BN.shape[1]), dim=1)
    short = keep - found.values.shape[1]
    return F.pad(found.values, (0, short), value=NEVER), F.pad(found.indices, (0, short))


def owned(windows: Places) -> list[tuple[int, int]]:
    """For each window over a context the tokens [first, last) that it holds with more context than
    any other window does. Context is the smaller of the numbers of tokens before and after it in
    the window, plus a hundredth of the window's length; of equal windows, the earlier one has the
    token (BERT's and ELECTRA's max-context rule, 2003.10555's public code). These tokens are
    contiguous: the advantage of a later window over an earlier one never falls from token to
    token."""
    begin_W1, end_W1 = np.array(windows)[:, :, None].transpose(1, 0, 2)
    token_T = np.arange(windows[-1][1])
    context_WT = np.minimum(token_T - begin_W1, end_W1 - 1 - token_T)
    held_WT = np.where(context_WT >= 0, context_WT + 0.01 * (end_W1 - begin_W1), -1.0)
    counts_W = np.bincount(held_WT.argmax(0), minlength=len(windows))
    ends_W = counts_W.cumsum()
    return list(zip((ends_W - counts_W).tolist(), ends_W.tolist(), strict=True))
