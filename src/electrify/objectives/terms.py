"""Term and the pure losses. Every loss and every rate is (sum, count): exact over micro-batches and ranks, divided once.

Shape suffixes: T flat tokens, N tokens graded, M chosen positions, V vocabulary, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..corruption.masking import Corrupted

BINS = 8000  # of the histogram of logits; equal bins of probability would put a cautious or a confident detector into one of them, where AUC is blind
REACH = 20.0  # logits beyond it fall into the outermost bins; a bin is .005 wide


@dataclass(frozen=True)
class Term:
    """An unweighted loss or a rate, as sum and count (scalars on the batch's device).

    A histogram is a Term too: sum [2, B] counts tokens by label and logit, count 1.
    """

    sum: Tensor
    count: Tensor


Terms = dict[str, Term]


def term(values: Tensor, where: Tensor | None = None) -> Term:
    """The values that count, as a Term."""
    if where is None:
        return Term(values.sum(), torch.tensor(values.numel(), device=values.device))
    return Term((values * where).sum(), where.sum())


class _TokenCE(torch.autograd.Function):
    """Cross-entropy that keeps the logits in their own type and writes its gradient once; torch's keeps and passes float32 copies of [N, V]."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, target_N: Tensor) -> Tensor:
        float_NV = logits_NV.float()
        total_N = float_NV.logsumexp(-1)
        ctx.save_for_backward(logits_NV, target_N, total_N)
        return total_N - float_NV.gather(-1, target_N[:, None]).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        logits_NV, target_N, total_N = ctx.saved_tensors
        gradient_NV = (logits_NV.float() - total_N[:, None]).exp_()
        gradient_NV.scatter_add_(-1, target_N[:, None], gradient_NV.new_full((len(target_N), 1), -1.0))
        return gradient_NV.mul_(grads[0][:, None]).to(logits_NV.dtype), None


def token_ce(logits_NV: Tensor, target_N: Tensor) -> Tensor:
    """[N] cross-entropy in nats, float32."""
    loss_N = _TokenCE.apply(logits_NV, target_N)
    assert isinstance(loss_N, Tensor)
    return loss_N


def binary_ce(logits_N: Tensor, target_N: Tensor) -> Tensor:
    """[N] binary cross-entropy in nats, float32."""
    return F.binary_cross_entropy_with_logits(logits_N.float(), target_N.float(), reduction="none")


def lm_terms(name: str, logits_MV: Tensor, z: Corrupted, mask_id: int) -> Terms:
    """A masked LM graded on what it was asked for: the loss `name`, and as rates the accuracy and the losses on [MASK], kept and random positions
    apart (BERT's mix lets the loss fall below the unigram entropy by copying alone)."""
    was_M = z.was_M
    loss_M = token_ce(logits_MV, was_M)
    with torch.no_grad():
        masked_M, kept_M = z.shown_M == mask_id, z.shown_M == was_M
        right_M = (logits_MV.argmax(-1) == was_M).float()
        rates = {
            f"{name}_accuracy": term(right_M),
            f"{name}_loss_masked": term(loss_M.detach(), masked_M),
            f"{name}_loss_kept": term(loss_M.detach(), kept_M & ~masked_M),
            f"{name}_loss_random": term(loss_M.detach(), ~kept_M & ~masked_M),
            f"{name}_accuracy_masked": term(right_M, masked_M),
        }
    return {name: term(loss_M)} | rates


def histogram(logits_T: Tensor, label_T: Tensor, where_T: Tensor) -> Term:
    """[2, B] counts of logits by label, for AUC, precision and recall over any number of batches. Bin B / 2 begins at logit 0."""
    half = BINS // 2
    bin_T = ((logits_T.detach().float().clamp(-REACH, REACH) * (half / REACH)).floor().long() + half).clamp(max=BINS - 1)
    counts = torch.bincount((label_T.long() * BINS + bin_T)[where_T], minlength=2 * BINS)
    return Term(counts.view(2, BINS).double(), torch.ones((), device=logits_T.device))


def detection_summary(counts_2B: Tensor) -> dict[str, float]:
    """AUC, and precision, recall and share of positives at probability one half, from a histogram.

    Pairs inside a bin count half, so AUC is off by at most half the share of (negative, positive) pairs that fall into one bin; the others are exact.
    """
    negative_B, positive_B = counts_2B.double()
    below_B = negative_B.cumsum(0) - negative_B
    pairs = negative_B.sum() * positive_B.sum()
    half = BINS // 2
    hits, alarms = positive_B[half:].sum(), positive_B[half:].sum() + negative_B[half:].sum()
    total = counts_2B.sum()
    return {
        "auc": float(((below_B + negative_B / 2) * positive_B).sum() / pairs) if pairs > 0 else 0.5,
        "precision": float(hits / alarms) if alarms > 0 else 0.0,
        "recall": float(hits / positive_B.sum()) if positive_B.sum() > 0 else 0.0,
        "replaced": float(positive_B.sum() / total) if total > 0 else 0.0,
    }


def summarise(terms: Terms) -> dict[str, float]:
    """Terms summed over batches and ranks -> one number a name: means, and for histograms the detection figures."""
    out: dict[str, float] = {}
    for name, one in terms.items():
        total, count = one.sum, one.count
        if total.ndim == 2:
            out |= {f"{name}_{k}": v for k, v in detection_summary(total).items()}
        elif float(count) > 0:
            out[name] = float(total) / float(count)
    return out


def weighted(terms: Terms, weights: dict[str, float], counts: dict[str, Tensor]) -> Tensor:
    """sum over losses of weight * sum / global count: what is differentiated. Raises ValueError where weights name other terms than the counts."""
    if weights.keys() != counts.keys():
        raise ValueError(f"term_weights name {sorted(weights)}, the objective's losses are {sorted(counts)}")
    parts = [weight * terms[name].sum / counts[name].clamp(min=1) for name, weight in weights.items()]
    return torch.stack(parts).sum()
