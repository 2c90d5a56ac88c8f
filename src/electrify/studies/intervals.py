"""The statistics of a study: intervals over seeds, differences, ranks, where two curves cross, and
the budget at which a score is reached.

A study has three to five seeds. Resampling so few values gives intervals that are too narrow (the
percentile bootstrap of three values holds the truth in 80 of 100 studies instead of 95), so means
have Student's interval, with a variance that is pooled over the recipes of a budget: three values
alone hardly know theirs. Curves are drawn again with Student's errors whose spread is pooled over
the budgets.

Shape suffixes: B budgets, D draws, R recipes, T tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
DRAWS = 4000


@dataclass(frozen=True)
class Interval:
    """A value with the bounds that hold it in 95 of 100 studies.

    A bound is infinite where nothing bounds it: with one seed, or beyond the budgets of the study.
    """

    value: float
    low: float
    high: float

    def excludes(self, x: float) -> bool:
        return self.low > x or self.high < x


@dataclass(frozen=True)
class Spread:
    """How far the scores of seeds lie from the means of their groups: the sum of squares, and its
    degrees of freedom."""

    squares: float
    freedom: int

    @property
    def variance(self) -> float:
        """Of one seed's score."""
        return self.squares / self.freedom if self.freedom else math.inf


def spread(groups: Iterable[Sequence[float]]) -> Spread:
    """The spread within the groups."""
    found = [np.asarray(values, float) for values in groups if len(values) > 1]
    freedom = sum(len(x) - 1 for x in found)
    squares = sum(float(np.sum((x - x.mean()) ** 2)) for x in found)
    return Spread(squares, freedom)


def student(value: float, error: float, freedom: float) -> Interval:
    """Student's interval of a value with this standard error."""
    from scipy import stats

    if not freedom:
        return Interval(value, -math.inf, math.inf)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return Interval(value, value - half, value + half)


def spreads(seeds: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Recipe -> the variance of its seeds, pooled over the recipes. One that spreads more than the
    others (F test, Bonferroni over the recipes) is not pooled and keeps its own."""
    from scipy import stats

    def is_wider(name: str) -> bool:
        own, others = spread([seeds[name]]), spread(v for n, v in seeds.items() if n != name)
        if not (own.freedom and others.freedom and own.variance):
            return False
        ratio = own.variance / others.variance if others.variance else math.inf
        chance = float(stats.f.sf(ratio, own.freedom, others.freedom))
        return chance < (1 - CONFIDENCE) / len(seeds)

    wider = set(filter(is_wider, seeds))
    pooled = spread(values for name, values in seeds.items() if name not in wider)
    return {name: spread([seeds[name]]) if name in wider else pooled for name in seeds}


def mean(values: Sequence[float], its: Spread | None = None) -> Interval:
    """The mean with Student's interval. its: a variance that is known better than that of the
    values alone. A single value has no interval: nothing says that it spreads as others do."""
    its = its or spread([values])
    freedom = its.freedom if len(values) > 1 else 0
    return student(float(np.mean(values)), math.sqrt(its.variance / len(values)), freedom)


def difference(
    ours: Sequence[float], theirs: Sequence[float], our: Spread, their: Spread
) -> tuple[Interval, float]:
    """The difference of two means, and the probability of one as large if there is none. Seeds of
    two recipes do not go together, so they are not paired. Welch's degrees of freedom where the
    spreads are two."""
    from scipy import stats

    value = float(np.mean(ours) - np.mean(theirs))
    if min(len(ours), len(theirs)) < 2:
        return Interval(value, -math.inf, math.inf), 1.0
    a, b = our.variance / len(ours), their.variance / len(theirs)
    freedom, error = float(our.freedom), math.sqrt(a + b)
    if our != their:
        freedom = (a + b) ** 2 / (a**2 / our.freedom + b**2 / their.freedom)
    chance = 2 * float(stats.t.sf(abs(value) / error, freedom)) if error else float(not value)
    return student(value, error, freedom), chance


def holm(chances: Mapping[str, float]) -> set[str]:
    """The names of the differences that are significant together (Holm 1979)."""
    found = set[str]()
    for k, (name, chance) in enumerate(sorted(chances.items(), key=lambda pair: pair[1])):
        if chance > (1 - CONFIDENCE) / (len(chances) - k):
            break
        found.add(name)
    return found


def crossing(budgets: Sequence[float], differences: Sequence[Sequence[float]]) -> Interval:
    """The budget at which a difference changes its sign for good, between the means of neighbouring
    budgets, on a logarithmic scale. The final sign is the one towards which the difference moves.

    budgets: rising. differences: for each budget one value a seed. -inf where the difference has
    its final sign from the first budget on, inf where it has not reached it at the last one: of the
    value and of each bound.
    """
    first, last = np.mean(differences[0]), np.mean(differences[-1])
    # The direction in which the means go decides what counts as the final sign.
    final = 1.0 if last > first else -1.0
    return _positive_from(budgets, [[final * x for x in values] for values in differences])


def reached(budgets: Sequence[float], scores: Sequence[Sequence[float]], score: float) -> Interval:
    """The smallest budget at which, and above which, the mean score is at least `score`. -inf where
    it is from the first budget on, inf where it is not within the range."""
    differences = [[x - score for x in values] for values in scores]
    return _positive_from(budgets, differences, zero_too=True)


def _positive_from(
    budgets: Sequence[float], differences: Sequence[Sequence[float]], *, zero_too: bool = False
) -> Interval:
    log_B = np.log(np.asarray(budgets, float))
    means_B = np.array([np.mean(d) for d in differences])
    at = _last_change(log_B, means_B[None], zero_too=zero_too)[0]
    if max(map(len, differences)) < 2:  # nothing says how much the seeds spread
        low, high = -math.inf, math.inf
    else:
        found_D = _last_change(log_B, _drawn(differences), zero_too=zero_too)
        # Order statistics, since draws may be infinite.
        low = np.quantile(found_D, (1 - CONFIDENCE) / 2, method="lower")
        high = np.quantile(found_D, (1 + CONFIDENCE) / 2, method="higher")
    return Interval(*(float(np.exp(x) if math.isfinite(x) else x) for x in (at, low, high)))


def mean_ranks(scores_RT: Sequence[Sequence[float]]) -> list[float]:
    """[R] of scores (higher is better), the mean rank over the tasks: 1 the best, equal scores
    share a rank."""
    from scipy import stats

    return stats.rankdata(-np.asarray(scores_RT), axis=0).mean(1).tolist()


def tasks_won(ours_T: Sequence[float], theirs_T: Sequence[float]) -> float:
    """On how many of the tasks our score (higher is better) is higher, a tie one half."""
    a_T, b_T = np.asarray(ours_T), np.asarray(theirs_T)
    return float((a_T > b_T).sum() + (a_T >= b_T).sum()) / 2


# ------------------------------------------------------------------ drawing curves again


def _drawn(values: Sequence[Sequence[float]]) -> np.ndarray:
    """[D, B] means of each budget as another study might find them: Student's errors, with one
    spread for all budgets, since a handful of seeds does not tell two spreads apart."""
    rng = np.random.default_rng(0)
    n_B = np.array([len(v) for v in values])
    means_B, its = np.array([np.mean(v) for v in values]), spread(values)
    # One draw of the spread for a whole curve, as its budgets share one.
    spread_D = np.sqrt(its.squares / rng.chisquare(its.freedom, DRAWS))
    return means_B + spread_D[:, None] * rng.standard_normal((DRAWS, len(n_B))) / np.sqrt(n_B)


def _last_change(log_B: np.ndarray, curve_DB: np.ndarray, *, zero_too: bool) -> np.ndarray:
    """[D] where each curve rises above 0 (zero_too: reaches it) for the last time: -inf where it is
    above 0 everywhere, inf where it ends below."""
    below_DB = curve_DB < 0 if zero_too else curve_DB <= 0
    found_D = np.full(len(curve_DB), -math.inf)
    for k in range(len(log_B) - 1):
        before, after = curve_DB[:, k], curve_DB[:, k + 1]
        rises = below_DB[:, k] & ~below_DB[:, k + 1]
        share = np.divide(-before, after - before, out=np.zeros_like(before), where=rises)
        found_D = np.where(rises, log_B[k] + share * (log_B[k + 1] - log_B[k]), found_D)
    return np.where(below_DB[:, -1], math.inf, found_D)
