"""Lines of results -> means, differences, ranks, crossings, and the report."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from electrify.studies.intervals import Interval
from electrify.studies.measures import MEAN_RANK, Score
from electrify.studies.plot import drawn
from electrify.studies.report import (
    DECLARED,
    HELD_OUT,
    PLAIN,
    WON,
    Table,
    in_csv,
    in_json,
    markdown,
    sentences,
    table_of,
    text,
)
from electrify.studies.run import write_report
from electrify.studies.study import Result

BUDGETS = (1e14, 4e14, 1e15)


def result(entry: str, budget: float, seed: int, **scores: float) -> Result:
    found = {k: {"metric": "accuracy", "scores": [v - 0.5, v, v + 0.01]} for k, v in scores.items()}
    return Result(entry, budget, seed, "x", 10, budget, 100.0, 5.0, 7, found)


def made_results() -> list[Result]:
    """`late` is behind at the first budget and ahead at the last on task a, always ahead on b."""
    results = []
    for k, budget in enumerate(BUDGETS):
        for seed in range(3):
            noise = 0.002 * (seed - 1)
            results.append(result("first", budget, seed, a=0.5 + 0.01 * k + noise, b=0.4 + noise))
            a = 0.455 + 0.05 * k + 1.5 * noise
            results.append(result("late", budget, seed, a=a, b=0.6 + 0.01 * k + noise))
    results.append(result("untrained", 0.0, 0, a=0.3, b=0.3))
    return results


def of(results: list[Result], tasks: str = "a", names: str = "first late", **how: Any) -> Table:
    """The table of results. tasks: a letter each."""
    return table_of(results, recipes=names.split(), tasks=list(tasks), **how)


def made() -> Table:
    return of(made_results(), "ab")


def row(table: Table, recipe: str, budget: float, task: str) -> Any:
    found = table.row(recipe, budget, task)
    assert found is not None
    return found


def test_the_numbers() -> None:
    table = made()
    point = row(table, "late", 1e15, "a")
    assert point.by_seed == pytest.approx({0: 0.552, 1: 0.555, 2: 0.558})
    assert point.mean.value == pytest.approx(0.555)
    # Deviations of 0.002 and 0.003, pooled; Student's quantile of four degrees of freedom.
    assert point.difference.value == pytest.approx(0.035)
    half = 2.776 * ((0.002**2 + 0.003**2) / 2 * 2 / 3) ** 0.5
    assert point.difference.high - point.difference.value == pytest.approx(half, rel=1e-3)
    ranks = {b: [row(table, n, b, MEAN_RANK).mean for n in ("first", "late")] for b in BUDGETS}
    assert ranks == {
        1e14: [exactly(1.5), exactly(1.5)],
        4e14: [exactly(1.5), exactly(1.5)],
        1e15: [exactly(2.0), exactly(1.0)],
    }
    assert row(table, "late", 1e15, MEAN_RANK).difference == exactly(-1.0)
    assert row(table, "late", 1e15, MEAN_RANK).lead == 1.0
    for task in ("a", MEAN_RANK):
        assert row(table, "first", 1e15, task).difference is None


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


def test_a_rank_has_an_interval_over_the_seeds_that_all_recipes_have() -> None:
    """Two tasks, seeds 0 to 2: `other` is ahead on both, on both, on one. A fourth seed, which it
    lacks, does not count."""
    results = [result("first", 1e14, seed, a=0.5, b=0.5) for seed in range(4)]
    results += [result("other", 1e14, seed, a=0.6, b=0.6 - 0.2 * (seed == 2)) for seed in range(3)]
    table = of(results, "ab", "first other")
    other = row(table, "other", 1e14, MEAN_RANK)
    assert other.by_seed == {0: 1.0, 1: 1.0, 2: 1.5}
    assert other.mean.value == pytest.approx((1 + 1 + 1.5) / 3)
    assert row(table, "first", 1e14, MEAN_RANK).mean.value == pytest.approx((2 + 2 + 1.5) / 3)
    assert other.difference.value == pytest.approx((-1 - 1 + 0) / 3)
    # Student's quantile of two degrees of freedom times the error of -1, -1, 0.
    half = 4.303 * (1 / 3) ** 0.5 / 3**0.5
    assert other.difference.high - other.difference.value == pytest.approx(half, rel=1e-3)
    assert not other.difference.excludes(0)


def test_where_the_curves_cross() -> None:
    a, b = made().curves
    assert a.task == "a"
    assert a.leads == pytest.approx([-0.045, -0.005, 0.035])
    assert 4e14 < a.crosses.value < 1e15
    assert a.crosses.low <= a.crosses.value <= a.crosses.high
    assert b.crosses.value == b.reached.value == -math.inf
    assert b.times == pytest.approx(10)
    assert 4e14 < a.reached.value < 1e15
    assert a.times == pytest.approx(1e15 / a.reached.value)
    (one_seed,) = of([r for r in made_results() if r.seed == 0]).curves
    assert (one_seed.crosses.low, one_seed.crosses.high) == (-math.inf, math.inf)


SCORED = Score({"one": {"a": 0.9}, "two": {"b": 1.0, "c": 0.6}}, floors={"a": 0.4, "b": 0.1})


def test_the_declared_score_by_hand() -> None:
    """Floors: 0.4 on a, which is larger than random weights' 0.3; theirs on b and c."""
    results = [result("untrained", 0.0, s, a=0.3, b=0.1 + 0.2 * s, c=0.1) for s in range(2)]
    results += [result("first", 1e14, s, a=0.5, b=0.4, c=0.35) for s in range(3)]
    results += [result("late", 1e14, s, a=0.65 + 0.05 * s, b=0.4, c=0.1) for s in range(3)]
    results += [result("short", 1e14, s, a=0.9, b=0.9) for s in range(3)]
    names = "first late short"
    table = of(results, "abc", names, score=SCORED)
    first, late = (row(table, name, 1e14, DECLARED) for name in ("first", "late"))
    assert first.mean.value == pytest.approx((0.1 / 0.5 + (0.2 / 0.8 + 0.25 / 0.5) / 2) / 2)
    assert list(late.by_seed.values()) == pytest.approx(
        [(a / 0.5 + 0.2 / 0.8 / 2) / 2 for a in (0.25, 0.3, 0.35)]
    )
    assert table.row("short", 1e14, DECLARED) is None, "it lacks a task"
    # Below the floor counts as 0: of the second seed b alone is above it, by 0.1.
    assert row(table, "untrained", 0.0, DECLARED).mean.value == pytest.approx(0.1 / 0.8 / 8)
    assert row(table, "late", 1e14, PLAIN).mean.value == pytest.approx((0.7 + 0.4 + 0.1) / 3)
    # A further task does not belong to the score, whether an encoder has it or not.
    more = [replace(r, scores=r.scores | {"d": r.scores["a"]}) for r in results[:2]] + results[2:]
    wider = of(more, "abcd", names, score=SCORED)
    assert row(wider, "late", 1e14, DECLARED).mean == late.mean
    assert wider.row("late", 1e14, PLAIN) is None
    assert json.loads(in_json(table))["score"]["floors"] == {"a": 0.4, "b": 0.1}
    alone = of(results[2:], "abc", names, score=SCORED)
    assert alone.row("first", 1e14, DECLARED) is None, "there is no floor"


def test_one_significant_task_of_many_is_marked_after_holm_only() -> None:
    """Its interval excludes 0, but among eight tasks so large a difference is expected once."""
    tasks, results = "abcdefgh", []
    for name in ("first", "late"):
        for seed in range(3):
            up = 0.008 * (name == "late")
            found = dict.fromkeys(tasks, 0.5 + 0.003 * seed) | {"a": 0.5 + 0.003 * seed + up}
            results.append(result(name, 1e14, seed, **found))
    for asked, marked in (("a", True), (tasks, False)):
        found = row(of(results, asked), "late", 1e14, "a")
        assert found.difference.excludes(0)
        assert 0.006 < found.chance < 0.05
        assert found.significant == marked


def test_what_two_recipes_reach_in_the_same_minutes() -> None:
    """`slow` takes twice the seconds: at the 400 s of the first one's larger budget it is half way
    between its own budgets on the logarithmic axis."""
    results = [
        replace(result(name, budget, 0, a=a, b=a), seconds=seconds)
        for name, scores, times in (("first", (0.4, 0.5), 100.0), ("slow", (0.4, 0.8), 200.0))
        for budget, a, seconds in zip((1e14, 4e14), scores, (times, 4 * times), strict=True)
    ]
    table = of(results, "ab", "first slow")
    said = [line for line in sentences(table) if "minutes each" in line]
    assert said == ["mean of the tasks: in 7 minutes each slow has 60.0, first 50.0"]


def test_tasks_won_do_not_depend_on_other_recipes() -> None:
    """A third recipe that is better than one of two on a task moves their ranks apart."""
    results = [
        result(name, 1e14, seed, a=a, b=b, c=c)
        for name, a, b, c in (("first", 0.5, 0.5, 0.5), ("late", 0.7, 0.49, 0.5))
        for seed in range(3)
    ]
    between = [result("between", 1e14, seed, a=0.6, b=0.4, c=0.5) for seed in (0, 2)]
    names = "first late between"
    alone, beside = (of(found, "abc", names) for found in (results, [*results, *between]))
    for table in (alone, beside):
        won = row(table, "late", 1e14, WON)
        assert won.by_seed == {0: 1.5, 1: 1.5, 2: 1.5}
        assert (won.mean, won.lead, won.metric) == (exactly(1.5), 0.0, "of 3")
        assert table.row("first", 1e14, WON) is None
    assert row(beside, "between", 1e14, WON).by_seed == {0: 1.5, 2: 1.5}
    assert row(alone, "late", 1e14, MEAN_RANK).difference == exactly(0.0)
    assert row(beside, "late", 1e14, MEAN_RANK).difference.value == pytest.approx(-1 / 3)


@pytest.mark.parametrize(
    ("budget", "written"), [(1e15, "1e+15"), (2.5, "2.5"), (1.2345678e17, "1.2345678e+17")]
)
def test_a_budget_is_written_exactly(budget: float, written: str) -> None:
    """Two that differ in their seventh digit are two in the CSV, too."""
    results = [replace(result("first", budget, 0, a=0.5), validation={"mlm": 3.0})]
    found = list(csv.DictReader(io.StringIO(in_csv(of(results)))))
    assert {row["task"] for row in found} == {"a", MEAN_RANK, HELD_OUT}
    assert {row["budget"] for row in found} == {written}
    assert float(written) == budget


def test_the_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table = made()
    write_report(table, tmp_path)
    page = (tmp_path / "report.md").read_text()
    means = "**58.8 ± 0.4** | **55.5 ± 0.4** | **62.0 ± 0.3**"
    assert f"| late | {means} | **1.00 ± 0.00** | **2.0 ± 0.0 of 2** | 0.1 |" in page
    assert "b: late is ahead of first at every budget, by more" in page
    assert "b: late reaches the 40.0 of first at least 10.0 times cheaper" in page
    rows = list(csv.DictReader(io.StringIO(in_csv(table))))
    assert len(rows) == len(table.rows) == 14 + 7 + 6 + 3
    assert [float(row["mean"]) for row in rows] == [one.mean.value for one in table.rows]
    assert json.loads(in_json(table))["recipes"] == ["first", "late"]
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_one_budget_one_seed_and_a_failure(tmp_path: Path) -> None:
    """No intervals and no crossing. What failed is told, also where nothing is left to draw."""
    results = [result(name, 1e14, 0, a=score) for name, score in (("first", 0.5), ("late", 0.6))]
    bad = Result("bad", 1e14, 0, "x", 1, 1.0, 0.0, 0.0, 0, {}, {"pretrain": "no | space"})
    table = of([*results, bad], "ab", "first late bad")
    assert table.tasks == ["a"]
    assert not table.curves
    assert sentences(table) == ["failed: bad at 1e+14 FLOPs, seed 0: pretrain: no | space"]
    for k, found in enumerate(([bad], [bad, result("untrained", 0.0, 0, a=0.3)])):
        write_report(of(found, "a", "bad"), tmp_path)
        assert "no \\| space" in (tmp_path / "report.md").read_text()
        assert (tmp_path / "report.png").is_file() == bool(k)


def test_budgets_of_text_are_called_so() -> None:
    """No budget of passes is called FLOPs, and costs stay FLOPs."""
    pytest.importorskip("matplotlib")
    results = [replace(r, budget=r.budget / 1e14) for r in made_results()]
    table = of(results, "ab", equal="epochs")
    assert "FLOPs" not in markdown(table) + text(table)
    assert table.costs["late", 10.0]["flops"] == 1e15
    assert drawn(table)


def test_equal_recipes_are_neither_ahead_nor_behind() -> None:
    """Matthews of 0 is what every encoder has that says one class."""

    def said(*ahead: float) -> list[str]:
        results = [
            result(name, budget, seed, a=0.5 + (by if name == "late" else 0.0))
            for budget, by in zip(BUDGETS, ahead, strict=True)
            for name in ("first", "late")
            for seed in range(3)
        ]
        return sentences(of(results))

    assert said(0.0, 0.0, 0.0) == ["a: late reaches the 50.0 of first at least 10.0 times cheaper"]
    assert not any("behind" in line or "ahead" in line for line in said(0.125, 0.125, 0.0))
    assert "behind first at every budget, by more at the largest" in said(-0.1, -0.1, -0.125)[0]
