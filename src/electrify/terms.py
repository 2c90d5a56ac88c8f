"""Losses and metrics as sums and counts: they add up exactly over micro-batches and ranks, and are
divided only once.

Shape suffixes: N tokens graded, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from .errors import UserError

Kind = Literal["mean", "histogram", "ranking"]


@dataclass(frozen=True)
class Term:
    """A loss or a metric, as sum and count (0-dim, on the batch's device).

    A histogram has a sum [2, B]: tokens by label and logit. `ranking` is a histogram of a score
    whose order alone has a meaning.
    """

    sum: Tensor
    count: Tensor
    kind: Kind = "mean"

    def detached(self) -> Term:
        return replace(self, sum=self.sum.detach())


Terms = dict[str, Term]


@dataclass(frozen=True)
class Loss:
    """A loss for each token, in nats."""

    values_N: Tensor
    where_N: Tensor | None = None
    """Which of them count; None if all do."""

    def term(self) -> Term:
        return term(self.values_N, self.where_N)


def term(values_N: Tensor, where_N: Tensor | None = None) -> Term:
    """The sum and number of the values that count, as a Term."""
    if where_N is None:
        # torch.tensor would make the host wait for the device.
        return Term(values_N.sum(), torch.full((), values_N.numel(), device=values_N.device))
    return Term((values_N * where_N).sum(), where_N.sum())


def weighted(terms: Terms, weights: dict[str, float], counts: dict[str, Tensor]) -> Tensor:
    """sum over losses of weight * sum / global count: the total loss that is differentiated. Raises
    UserError if the losses with weights, counts and terms are not the same, as an objective of
    one's own may have it."""
    if weights.keys() != counts.keys():
        raise UserError(
            f"term_weights name {sorted(weights)}, the objective's losses are {sorted(counts)}"
        )
    if missing := weights.keys() - terms.keys():
        names = " and no ".join(sorted(missing))
        raise UserError(
            f"the forward pass of the objective returns no loss {names}, "
            "which is counted and weighed. Return it under that name"
        )
    parts = [
        weight * terms[name].sum / counts[name].clamp(min=1) for name, weight in weights.items()
    ]
    return torch.stack(parts).sum()
