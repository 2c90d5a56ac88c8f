"""Metrics beside the losses: losses by kind of token, histograms of a detector's logits, and what
they come to. (Those of a language model are in corruption/corruptor.py.)

Nothing here is differentiated. Shape suffixes: T flat tokens, N tokens graded, M chosen positions,
B bins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..corruption.corruptor import Corrupted
from ..terms import Kind, Loss, Term, Terms, term

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
