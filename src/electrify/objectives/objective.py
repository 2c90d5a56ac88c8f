"""The interface of every objective, and the losses and metrics that several share.

Shape suffixes: N tokens graded, T flat tokens, M chosen positions, D hidden width, B bins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..architectures.architecture import Architecture
from ..corruption.choosing import Plan
from ..corruption.corruptor import Corrupted
from ..draws import Draws
from ..model.costs import Pass, Period
from ..model.embeddings import Added, Shape, Words
from ..model.encoder import Encoder
from ..model.heads import Head, Network, SelectionHead
from ..terms import Kind, Loss, Term, Terms, term
from ..tokens import Tokens


@dataclass(frozen=True)
class Parts:
    """The parts from which an objective is built."""

    corruptor: Any
    """A Corruptor."""
    encoder: Encoder
    """The discriminator."""
    architecture: Architecture
    losses: Collection[str]
    """Names of the losses that the recipe weighs; optional ones are built only if named."""
    shows_mask: bool
    """Whether the corruptor shows the discriminator [MASK]."""
    dropout: Mapping[str, Any] = field(default_factory=dict)
    """`dropout` and `attention_dropout` of the discriminator."""

    @property
    def shape(self) -> Shape:
        return self.encoder.shape

    def lm_head(self) -> Head:
        """A language model's head over the discriminator's word table."""
        words: Words = self.encoder.embeddings.words
        return self.architecture.lm_head(self.shape, words)

    def masked_lm_head(self) -> Head:
        """The same for a discriminator that reads [MASK] where it predicts."""
        words: Words = self.encoder.embeddings.words
        return self.architecture.masked_lm_head(self.shape, words)

    def rtd_head(self, form: str) -> Head:
        """The head that detects, in this form."""
        return self.architecture.rtd_head(self.shape, form)

    def selection_head(self, candidates: int) -> SelectionHead:
        """A head that scores this many words, by the discriminator's word table."""
        words: Words = self.encoder.embeddings.words
        return self.architecture.selection_head(self.shape, words, candidates)

    def branch(self) -> Encoder:
        """Another encoder that has all of the discriminator but its last block, and a last block of
        its own."""
        shape = self.shape
        return self.architecture.encoder(
            shape,
            self.encoder.embeddings,
            **self.dropout,
            lower=self.encoder,
            tied=shape.num_hidden_layers - 1,
        )

    def energy_head(self) -> Head:
        return self.architecture.energy_head(self.shape)


@dataclass(frozen=True)
class Graded:
    """What a forward pass of an objective leaves. An objective whose watchers ask for more returns
    a subclass."""

    corrupted: Corrupted
    losses: dict[str, Loss]
    states_TD: Tensor
    """Hidden states of the discriminator; only those that its head read, [M, D], where an
    objective has no use for the others."""
    logits: Tensor
    """Logits of its head, for the tokens that it graded."""


class Objective(nn.Module, ABC):
    """Grades corrupted text: a generator's and the discriminator's losses.

    Its class has a class method `build(parts, **options)`, which takes the fields of its row's own
    options (methods.py).

    The loop calls `plan` in the loader's thread and then the objective itself. `watch` computes
    what is only logged, from what the forward pass leaves.
    """

    corruptor: Any
    """A Corruptor; of an objective that grades one kind only, that kind."""
    encoder: Encoder
    head: Head

    @staticmethod
    def group_rows(section: Any) -> int:
        """Consecutive rows that one of its losses compares, by the recipe's section `objective`: a
        split of the batch must not separate them. 1 if all losses are sums over tokens."""
        return 1

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        """Everything that is chosen in a batch on the CPU, and how many tokens each loss divides
        by. fixed: lists have one of a few lengths, for compiled steps and CUDA graphs."""
        plan = self.corruptor.plan(tokens, draws, fixed=fixed)
        return plan.counting(**self.counts(tokens, plan))

    @abstractmethod
    def counts(self, tokens: Tokens, plan: Plan) -> dict[str, Tensor]:
        """How many tokens, or rows that hold text (`tokens.used_R`), of this batch its own losses
        are over."""

    @abstractmethod
    def forward(self, tokens: Tokens, plan: Plan) -> Graded: ...

    def states(self, z: Corrupted) -> Tensor:
        """[T, D] of the discriminator, reading changed text, with the gradient to the
        corruptor where there is one."""
        if z.rows_ME is None:
            return self.encoder(z.tokens)
        return self.encoder(z.tokens, Added(z.at_M, z.rows_ME))

    @abstractmethod
    def watch(self, graded: Any) -> Terms:
        """Metrics to log beside the losses; outside training also those that are too expensive for
        every update."""

    @abstractmethod
    def passes(self) -> list[Pass]:
        """The forward passes that it runs, for counting FLOPs; if the run has several periods,
        those of the last one."""

    def periods(self) -> list[Period]:
        """The parts of the run in which it asks for different things, in order; usually one."""
        return [Period(0.0, self.passes())]

    def networks(self) -> dict[str, Network]:
        """The networks that it can leave beside the discriminator, by the name of their
        folder: those that the rows of the objective and of the corruptor name. The options of a run
        decide which of them it trains to the end, and leaves (methods.py)."""
        return self.corruptor.networks()

    def generator_parts(self) -> list[nn.Module]:
        """Modules whose parameters take the generator's learning rate, unless the discriminator has
        them too."""
        return [self.corruptor] if isinstance(self.corruptor, nn.Module) else []


class Step(nn.Module):
    """An objective as the loop calls it: losses and what is watched, as sums and counts."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, tokens: Tokens, plan: Plan) -> Terms:
        graded = self.objective(tokens, plan)
        terms: dict[str, Term] = {name: loss.term() for name, loss in graded.losses.items()}
        with torch.no_grad():
            watched = self.objective.watch(graded)
        return watched | terms


# ------------------------------------------------------------------ losses


def binary_ce(logits_N: Tensor, target_N: Tensor) -> Tensor:
    """[N] binary cross-entropy in nats, float32."""
    return F.binary_cross_entropy_with_logits(logits_N.float(), target_N.float(), reduction="none")


def copy_log_probability(log_p_T: Tensor, copy_T: Tensor, same_T: Tensor) -> Tensor:
    """[T] log of c * 1[token = input] + (1 - c) * p(token), with c = sigmoid(copy) and same_T true
    where the token asked for is the input."""
    new_T = F.logsigmoid(-copy_T) + log_p_T
    return torch.where(same_T, torch.logaddexp(F.logsigmoid(copy_T), new_T), new_T)


# ------------------------------------------------------------------ metrics beside the losses
#
# Losses by kind of token, histograms of a detector's logits, and what they come to. (Those of a
# language model are in corruption/corruptor.py.) Nothing here is differentiated.


# The bins of the histogram of logits. Equal bins of probability would put a cautious or a confident
# detector into one of them, where AUC is blind.
BINS = 8000
REACH = 20.0  # logits beyond it fall into the outermost bins; a bin is 0.005 wide


def replaced_share(z: Corrupted) -> Terms:
    return {"replaced": term(z.replaced_T.float(), z.tokens.real_T)}


def apart(name: str, loss: Loss, replaced_N: Tensor) -> Terms:
    """A loss separately for replaced and for original tokens (most tokens are original, and
    easy)."""
    where_N = torch.ones_like(replaced_N) if loss.where_N is None else loss.where_N
    return {
        f"{name}_loss_replaced": term(loss.values_N, where_N & replaced_N),
        f"{name}_loss_original": term(loss.values_N, where_N & ~replaced_N),
    }


def chosen_rates(name: str, loss: Loss, right_M: Tensor, z: Corrupted) -> Terms:
    """What an answer at the chosen positions is worth: its loss for replaced and original tokens,
    its accuracy, and that at replaced tokens."""
    replaced_M = z.replaced_T[z.at_M]
    where_M = replaced_M if z.valid_M is None else replaced_M & z.valid_M
    return apart(name, loss, replaced_M) | {
        f"{name}_accuracy": term(right_M, z.valid_M),
        f"{name}_accuracy_replaced": term(right_M, where_M),
    }


def entropy(z: Corrupted) -> Terms:
    """Entropy in nats of a generator's softmax(logits): how certain it is of its draws."""
    if z.logits_MV is None:
        return {}
    log_p_MV = z.logits_MV.float().log_softmax(-1)
    return {"generator_entropy": term(-(log_p_MV.exp() * log_p_MV).sum(-1), z.valid_M)}


def histogram(logits_T: Tensor, label_T: Tensor, where_T: Tensor, kind: Kind = "histogram") -> Term:
    """[2, B] counts of logits by label, for AUC, precision and recall over any number of batches.
    Bin B / 2 begins at logit 0."""
    half = BINS // 2
    bin_T = (
        (logits_T.detach().float().clamp(-REACH, REACH) * (half / REACH)).floor().long() + half
    ).clamp(0, BINS - 1)  # of what is not a number, too
    counts = torch.bincount((label_T.long() * BINS + bin_T)[where_T], minlength=2 * BINS)
    return Term(counts.view(2, BINS).double(), torch.ones((), device=logits_T.device), kind)


def detection_summary(counts_2B: Tensor) -> dict[str, float]:
    """AUC, and precision, recall and share of positives at probability one half, from a histogram.

    Pairs inside a bin count half, so AUC is off by at most half the share of (negative, positive)
    pairs that fall into one bin; the others are exact.
    """
    negative_B, positive_B = counts_2B.double()
    below_B = negative_B.cumsum(0) - negative_B
    pairs = negative_B.sum() * positive_B.sum()
    half = BINS // 2
    hits = positive_B[half:].sum()
    alarms = positive_B[half:].sum() + negative_B[half:].sum()
    total = counts_2B.sum()
    return {
        "auc": float(((below_B + negative_B / 2) * positive_B).sum() / pairs) if pairs > 0 else 0.5,
        "precision": float(hits / alarms) if alarms > 0 else 0.0,
        "recall": float(hits / positive_B.sum()) if positive_B.sum() > 0 else 0.0,
        "replaced": float(positive_B.sum() / total) if total > 0 else 0.0,
    }


def summarise(terms: Terms) -> dict[str, float]:
    """Terms summed over batches and ranks -> one number a name: means, and for histograms the
    detection figures (of a ranking its AUC alone, for zero is not a threshold there)."""
    out: dict[str, float] = {}
    for name, one in terms.items():
        if one.kind == "mean":
            if float(one.count) > 0:
                out[name] = float(one.sum) / float(one.count)
            continue
        figures = detection_summary(one.sum)
        kept = ("auc",) if one.kind == "ranking" else figures.keys()
        out |= {f"{name}_{k}": figures[k] for k in kept}
    return out
