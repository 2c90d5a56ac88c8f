"""How well counts fit what is expected."""

import torch
from scipy.stats import chisquare
from torch import Tensor


def p_of(seen: Tensor, expected: Tensor) -> float:
    """p of counts by chi-square. What is expected less than 5 times is pooled, and the impossible
    must not occur."""
    seen, expected = seen.double(), expected.double()
    assert not seen[expected == 0].any()
    often = expected >= 5
    counts, wanted = (torch.cat([x[often], x[~often].sum()[None]]) for x in (seen, expected))
    if wanted[-1] < 5:
        assert counts[-1] <= 30
        counts, wanted = counts[:-1], wanted[:-1]
    return float(chisquare(counts, wanted * (counts.sum() / wanted.sum())).pvalue)


def p_of_draws(drawn: Tensor, probability_V: Tensor) -> float:
    seen_V = torch.bincount(drawn, minlength=len(probability_V))
    return p_of(seen_V, probability_V.double() * len(drawn))
