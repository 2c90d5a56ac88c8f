"""Statistics of a study against synthetic data whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from electrify.studies.intervals import (
    crossing,
    difference,
    holm,
    mean,
    mean_ranks,
    reached,
    spreads,
    tasks_won,
)

STUDIES = 1000
# Of so many studies with a chance of .95 each, fewer than this hold the truth once in 10,000.
ENOUGH = int(stats.binom.ppf(1e-4, STUDIES, 0.95))
BUDGETS = (1e14, 4e14, 1e15, 3e15)


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_of_a_mean_holds_the_truth(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    found = [mean(list(rng.normal(70, 2, seeds))) for _ in range(STUDIES)]
    assert ENOUGH <= sum(i.low <= 70 <= i.high for i in found) < STUDIES


def test_pooled_intervals_hold_the_truth_and_are_shorter() -> None:
    """Of five recipes with three seeds: the first one's mean, and its difference to the second."""
    rng = np.random.default_rng(0)
    held, lengths = np.zeros(2), []
    for _ in range(STUDIES):
        seeds = {name: list(rng.normal(70, 2, 3)) for name in "abcde"}
        its = spreads(seeds)
        found = mean(seeds["a"], its["a"])
        gap, chance = difference(seeds["a"], seeds["b"], its["a"], its["b"])
        held += found.low <= 70 <= found.high, gap.low <= 0 <= gap.high
        assert (chance < 0.05) == gap.excludes(0)
        lengths.append((found.high - found.low) / (mean(seeds["a"]).high - mean(seeds["a"]).low))
    assert min(held) >= ENOUGH
    assert np.median(lengths) < 0.65


def test_a_recipe_that_spreads_more_is_not_pooled() -> None:
    seeds = {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0], "c": [2.0, 3.0, 4.0], "wide": [0, 50, 99]}
    seeds |= {"one": [5.0]}
    its = spreads(seeds)
    assert {(its[name].variance, its[name].freedom) for name in ("a", "b", "c", "one")} == {(1, 6)}
    assert (its["wide"].variance, its["wide"].freedom) == (np.var(seeds["wide"], ddof=1), 2)
    assert mean(seeds["one"], its["one"]).high == math.inf, "nothing says that it spreads alike"
    # Welch's test where there are two spreads, Student's with the pooled one otherwise.
    gap, chance = difference(seeds["wide"], seeds["a"], its["wide"], its["a"])
    freedom = (its["wide"].variance / 3 + 1 / 3) ** 2 / (
        (its["wide"].variance / 3) ** 2 / 2 + (1 / 3) ** 2 / 6
    )
    t = gap.value / math.sqrt(its["wide"].variance / 3 + 1 / 3)
    assert chance == pytest.approx(2 * stats.t.sf(t, freedom))
    gap, chance = difference(seeds["c"], seeds["a"], its["c"], its["a"])
    assert gap.high == pytest.approx(1 + stats.t.ppf(0.975, 6) * math.sqrt(2 / 3))
    assert chance == pytest.approx(2 * stats.t.sf(1 / math.sqrt(2 / 3), 6))


def test_seeds_that_do_not_spread() -> None:
    its = spreads({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [2.0, 2.0]})
    assert mean([1.0, 1.0], its["a"]).high == 1.0
    assert difference([1.0, 1.0], [1.0, 1.0], its["a"], its["b"])[1] == 1.0
    assert difference([2.0, 2.0], [1.0, 1.0], its["c"], its["a"])[1] == 0.0


def test_holm_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {"a"}  # 0.05 / 3, then 0.03 > 0.05 / 2
    assert holm({"a": 0.01, "b": 0.04, "c": 0.02}) == {"a", "b", "c"}
    assert holm({}) == set()


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("truth", [2e14, 7e14, 2e15])
def test_a_planted_crossing_lies_in_its_interval(seeds: int, truth: float) -> None:
    """Ours is behind at first and overtakes at the planted budget; the curves are straight between
    the budgets there, as the interpolation assumes."""
    rng = np.random.default_rng(seeds)
    x = np.log(BUDGETS)
    true_differences = 1.5 * (x - math.log(truth))
    studies = 300
    held = 0
    for _ in range(studies):
        found = crossing(BUDGETS, [list(d + rng.normal(0, 0.8, seeds)) for d in true_differences])
        held += found.low <= truth <= found.high
    assert held >= int(stats.binom.ppf(1e-4, studies, 0.95))


@pytest.mark.parametrize(
    ("differences", "where"), [((-1, 1), 1e15), ((1, -1), 1e15), ((-2, -1), math.inf)]
)
def test_a_crossing_by_hand(differences: tuple[float, float], where: float) -> None:
    found = crossing([1e14, 1e16], [[d, d] for d in differences])
    assert (found.value, found.low, found.high) == pytest.approx((where, where, where))
    assert crossing([1e14, 1e16], [[1.0, 1.1], [2.0, 2.1]]).high == -math.inf


def test_where_a_score_is_reached() -> None:
    found = reached([1e14, 1e16], [[60.0, 60.0], [80.0, 80.0]], 70.0)
    assert found.value == pytest.approx(1e15)
    assert reached([1e14, 1e16], [[60.0], [80.0]], 90.0).value == math.inf
    assert reached([1e14, 1e16], [[60.0], [80.0]], 50.0).value == -math.inf
    # Exactly reached is reached; exactly equal is not ahead.
    assert reached([1e14, 1e16], [[60.0], [80.0]], 60.0).value == -math.inf
    assert reached([1e14, 1e16], [[60.0], [80.0]], 80.0).value == pytest.approx(1e16)
    assert crossing([1e14, 1e16], [[-1.0], [0.0]]).value == math.inf


def test_ranks_and_tasks_won_by_hand() -> None:
    """Of three recipes on two tasks; equal scores share a rank, and are one half won."""
    bert, electra, random = [10.0, 60.0], [12.0, 60.0], [1.0, 20.0]
    assert mean_ranks([bert, electra, random]) == [1.75, 1.25, 3.0]
    assert mean_ranks([bert]) == [1.0]
    assert tasks_won(electra, bert) == 1.5
    assert tasks_won(bert, electra) == 0.5
    assert tasks_won(bert, random) == 2.0
