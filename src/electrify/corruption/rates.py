"""What is watched of a language model that predicts chosen positions: a corruptor's, or the encoder
that is kept.

Nothing here is differentiated. Shape suffixes: M chosen positions, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from ..model.likelihood import likeliest
from ..terms import Loss, Terms, term
from .masking import Corrupted


def right(score_MV: Tensor, z: Corrupted) -> Tensor:
    """[M] 1 where the original has the highest score, else 0."""
    return (likeliest(score_MV) == z.was_M).float()


def lm_rates(
    name: str,
    logits_MV: Tensor,
    loss: Loss,
    z: Corrupted,
    *,
    mask_id: int,
    p_MV: Tensor | None = None,
) -> Terms:
    """A masked LM on what it was asked for: the accuracy, and the losses on [MASK], kept and random
    positions apart (BERT's mix lets the loss fall below the unigram entropy by copying alone).
    p_MV: softmax of the logits, where it is there already."""
    assert z.plan.shown_M is not None
    shown_M = z.plan.shown_M
    was_M = z.was_M
    valid_M = z.valid_M
    masked_M = shown_M == mask_id
    kept_M = shown_M == was_M
    random_M = ~kept_M & ~masked_M
    kept_M = kept_M & ~masked_M
    if valid_M is not None:
        masked_M = masked_M & valid_M
        kept_M = kept_M & valid_M
        random_M = random_M & valid_M
    right_M = right(logits_MV if p_MV is None else p_MV, z)
    return {
        f"{name}_accuracy": term(right_M, valid_M),
        f"{name}_loss_masked": term(loss.values_N, masked_M),
        f"{name}_loss_kept": term(loss.values_N, kept_M),
        f"{name}_loss_random": term(loss.values_N, random_M),
        f"{name}_accuracy_masked": term(right_M, masked_M),
    }
