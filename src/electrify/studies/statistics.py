"""Statistics of a study: intervals over seeds, paired differences, where two curves cross, and the
budget at which a score is reached.

A study has three to five seeds. Resampling so few values gives intervals that are too narrow (the
percentile bootstrap of three values holds the truth in 80 of 100 studies instead of 95), so means
have Student's interval, and curves are drawn again with Student's errors whose spread is pooled
over the budgets.

Shape suffixes: B budgets, D draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SCORE = "mean rank over the tasks"
"""The score that decides a study."""
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

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __sub__(self, x: float) -> Interval:
        return Interval(self.value - x, self.low - x, self.high - x)

    def __neg__(self) -> Interval:
        return Interval(-self.value, -self.high, -self.low)


def mean(values: Sequence[float]) -> Interval:
    """The mean with Student's interval."""
    from scipy import stats

    at = float(np.mean(values))
    if len(values) < 2:
        return Interval(at, -math.inf, math.inf)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return Interval(at, at - half, at + half)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """The mean difference ours - theirs over the seeds that both have; None if they share none.
    Pairs with one seed share the order of the data, so their difference spreads less."""
    seeds = sorted(ours.keys() & theirs.keys())
    return mean([ours[s] - theirs[s] for s in seeds]) if seeds else None


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
        low, high = _bounds(_last_change(log_B, _drawn(differences), zero_too=zero_too))
    return Interval(*(float(np.exp(x) if math.isfinite(x) else x) for x in (at, low, high)))


def mean_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Task -> recipe -> score (higher is better) becomes recipe -> mean rank over the tasks, 1 the
    best; equal scores share a rank. Recipes that lack a task are left out."""
    from scipy import stats

    recipes = sorted(set.intersection(*(set(of) for of in scores.values()))) if scores else []
    ranks: dict[str, list[float]] = {name: [] for name in recipes}
    for of in scores.values():
        found = stats.rankdata([-of[name] for name in recipes])
        for name, rank in zip(recipes, found, strict=True):
            ranks[name].append(float(rank))
    return {name: float(np.mean(r)) for name, r in ranks.items()}


def tasks_won(
    ours: Mapping[str, Mapping[int, float]], theirs: Mapping[str, Mapping[int, float]]
) -> dict[int, float]:
    """Task -> seed -> score (higher is better) of two recipes becomes seed -> on how many of the
    tasks ours is higher, a tie one half. Seeds that lack a task are left out."""
    seeds = set.intersection(*(set(of) for of in (*ours.values(), *theirs.values())))
    return {
        seed: sum(
            0.5 * ((ours[task][seed] > of[seed]) + (ours[task][seed] >= of[seed]))
            for task, of in theirs.items()
        )
        for seed in sorted(seeds)
    }


# ------------------------------------------------------------------ drawing curves again


def _drawn(values: Sequence[Sequence[float]]) -> np.ndarray:
    """[D, B] means of each budget as another study might find them: Student's errors, with one
    spread for all budgets, since a handful of seeds does not tell two spreads apart."""
    rng = np.random.default_rng(0)
    n_B = np.array([len(v) for v in values])
    freedom = int((n_B - 1).sum())
    means_B = np.array([np.mean(v) for v in values])
    squares = sum(float(np.sum((np.asarray(v) - np.mean(v)) ** 2)) for v in values)
    # One draw of the spread for a whole curve, as its budgets share one.
    spread_D = np.sqrt(squares / rng.chisquare(freedom, DRAWS))
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


def _bounds(found_D: np.ndarray) -> tuple[float, float]:
    """The bounds that hold 95 % of the draws; order statistics, since draws may be infinite."""
    ordered = np.sort(found_D)
    outside = (1 - CONFIDENCE) / 2
    low = ordered[math.floor(outside * (len(ordered) - 1))]
    high = ordered[math.ceil((1 - outside) * (len(ordered) - 1))]
    return float(low), float(high)
