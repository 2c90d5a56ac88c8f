"""What word frequencies alone come to: the loss of the best model that sees no context."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config.sections import CorruptionConfig
from ..corruption.choosing import chosen_counts
from ..text.shards import Corpus


def unigram_entropy(corpus: Corpus, c: CorruptionConfig) -> float:
    """The loss, in nats, of the best model that sees no context, on the tokens on which this
    corruption's language models are judged."""
    counts_V = torch.from_numpy(corpus.unigram()).double()
    if c.mask_choice == "rare" and not c.row.judges_all:
        counts_V = counts_of_chosen(counts_V, c)
    p = counts_V[counts_V > 0] / max(1.0, float(counts_V.sum()))
    return float(-(p * p.log()).sum())


def counts_of_chosen(counts_V: Tensor, c: CorruptionConfig) -> Tensor:
    """How often each token is chosen where rare ones are preferred, at the run's mean rate. Of a
    span only the first token decides; the others are as frequent as in the corpus. (A whole word is
    counted as if each of its tokens decided.)"""
    end = c.mask_rate if c.mask_rate_end is None else c.mask_rate_end
    chosen_V = chosen_counts(counts_V, (c.mask_rate + end) / 2)
    if c.mask_unit != "span":
        return chosen_V
    following = (c.span_length - 1) / 2  # tokens after the first, on average
    return chosen_V + following * counts_V * float(chosen_V.sum() / counts_V.sum())
