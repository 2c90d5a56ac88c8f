"""Term and the pure losses. Every loss and every rate is (sum, count): exact over micro-batches and ranks, divided once.

Shape suffixes: T flat tokens, N tokens graded, M chosen positions, V vocabulary, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..corruption.masking import Corrupted
from ..model.likelihood import likeliest, token_ce

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
        return Term(values.sum(), torch.full((), values.numel(), device=values.device))  # torch.tensor would wait for the device
    return Term((values * where).sum(), where.sum())


def binary_ce(logits_N: Tensor, target_N: Tensor) -> Tensor:
    """[N] binary cross-entropy in nats, float32."""
    return F.binary_cross_entropy_with_logits(logits_N.float(), target_N.float(), reduction="none")


def lm_terms(name: str, logits_MV: Tensor, z: Corrupted, mask_id: int, p_MV: Tensor | None = None) -> Terms:
    """A masked LM graded on what it was asked for: the loss `name`, and as rates the accuracy and the losses on [MASK], kept and random positions
    apart (BERT's mix lets the loss fall below the unigram entropy by copying alone). p_MV: their softmax, where it is there already."""
    was_M, there_M = z.was_M, z.there_M
    loss_M = token_ce(logits_MV, was_M, p_MV)
    with torch.no_grad():
        masked_M, kept_M = z.shown_M == mask_id, z.shown_M == was_M
        random_M = ~kept_M & ~masked_M
        kept_M = kept_M & ~masked_M
        if there_M is not None:
            masked_M, kept_M, random_M = masked_M & there_M, kept_M & there_M, random_M & there_M
        right_M = (likeliest(logits_MV if p_MV is None else p_MV) == was_M).float()
        rates = {
            f"{name}_accuracy": term(right_M, there_M),
            f"{name}_loss_masked": term(loss_M.detach(), masked_M),
            f"{name}_loss_kept": term(loss_M.detach(), kept_M),
            f"{name}_loss_random": term(loss_M.detach(), random_M),
            f"{name}_accuracy_masked": term(right_M, masked_M),
        }
    return {name: term(loss_M, there_M)} | rates


def generator_terms(z: Corrupted, mask_id: int) -> Terms:
    """A learned corruptor graded on what it was asked for, under the name `generator`; nothing where there is none.

    A masked LM is asked for the chosen tokens, a cloze model for every word; its accuracy is that at the chosen ones.
    """
    if z.logits_MV is None:
        return {}
    if z.log_q_T is None:
        return lm_terms("generator", z.logits_MV, z, mask_id, z.p_MV)
    right_M = (likeliest(z.logits_MV) == z.was_M).float()
    return {"generator": term(-z.log_q_T, z.words_T), "generator_accuracy": term(right_M, z.there_M)}


def entropy_term(logits_MV: Tensor, there_M: Tensor | None) -> Term:
    """Entropy in nats of softmax(logits): how sure of themselves a generator's draws are."""
    log_p_MV = logits_MV.detach().float().log_softmax(-1)
    return term(-(log_p_MV.exp() * log_p_MV).sum(-1), there_M)


def apart(name: str, loss_N: Tensor, replaced_N: Tensor, where_N: Tensor | None = None) -> Terms:
    """The loss `name`, and as rates the same on replaced and on original tokens apart (most tokens are original, and easy)."""
    there_N = torch.ones_like(replaced_N) if where_N is None else where_N
    rates = {
        f"{name}_loss_replaced": term(loss_N.detach(), there_N & replaced_N),
        f"{name}_loss_original": term(loss_N.detach(), there_N & ~replaced_N),
    }
    return {name: term(loss_N, where_N)} | rates


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
    """Terms summed over batches and ranks -> one number a name: means, and for histograms the detection figures (of a `*_ranking` its AUC alone)."""
    out: dict[str, float] = {}
    for name, one in terms.items():
        total, count = one.sum, one.count
        if total.ndim == 2:
            figures = detection_summary(total)
            # Of a score that is no log-odds only the order counts: zero is no threshold.
            kept = ("auc",) if name.endswith("_ranking") else figures.keys()
            out |= {f"{name}_{k}": figures[k] for k in kept}
        elif float(count) > 0:
            out[name] = float(total) / float(count)
    return out


def weighted(terms: Terms, weights: dict[str, float], counts: dict[str, Tensor]) -> Tensor:
    """sum over losses of weight * sum / global count: what is differentiated. Raises ValueError where weights name other terms than the counts."""
    if weights.keys() != counts.keys():
        raise ValueError(f"term_weights name {sorted(weights)}, the objective's losses are {sorted(counts)}")
    parts = [weight * terms[name].sum / counts[name].clamp(min=1) for name, weight in weights.items()]
    return torch.stack(parts).sum()
