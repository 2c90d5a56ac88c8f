"""Lines of results -> means, differences, ranks, crossings, and the report."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from electrify.studies.options import with_unit
from electrify.studies.plot import drawn
from electrify.studies.report import (
    SCORE,
    WON,
    Row,
    Table,
    in_csv,
    in_json,
    markdown,
    table_of,
    text,
    write_report,
)
from electrify.studies.statistics import Interval
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


def made() -> Table:
    """Their table."""
    return table_of(made_results(), recipes=["first", "late"], tasks=["a", "b"])


def row(table: Table, recipe: str, budget: float, task: str) -> Row:
    found = table.row(recipe, budget, task)
    assert found is not None
    return found


def test_the_numbers() -> None:
    table = made()
    point = row(table, "late", 1e15, "a")
    assert point.by_seed == pytest.approx({0: 0.552, 1: 0.555, 2: 0.558})
    assert point.mean.value == pytest.approx(0.555)
    assert point.difference is not None
    # Pairs with one seed: 0.034, 0.035, 0.036; Student's quantile of two degrees of freedom.
    assert point.difference.value == pytest.approx(0.035)
    half = 4.303 * 0.001 / 3**0.5
    assert point.difference.high - point.difference.value == pytest.approx(half, rel=1e-3)
    ranks = {b: [row(table, n, b, SCORE).mean for n in ("first", "late")] for b in BUDGETS}
    assert ranks == {
        1e14: [exactly(1.5), exactly(1.5)],
        4e14: [exactly(1.5), exactly(1.5)],
        1e15: [exactly(2.0), exactly(1.0)],
    }
    assert row(table, "late", 1e15, SCORE).difference == exactly(-1.0)
    assert row(table, "late", 1e15, SCORE).lead == exactly(1.0)
    for task in ("a", SCORE):
        assert row(table, "first", 1e15, task).difference is None


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


def test_a_rank_has_an_interval_over_the_seeds_that_all_recipes_have() -> None:
    """Two tasks, seeds 0 to 2: `other` is ahead on both, on both, on one. A fourth seed, which it
    lacks, does not count."""
    results = [result("first", 1e14, seed, a=0.5, b=0.5) for seed in range(4)]
    results += [result("other", 1e14, seed, a=0.6, b=0.6 - 0.2 * (seed == 2)) for seed in range(3)]
    table = table_of(results, recipes=["first", "other"], tasks=["a", "b"])
    other = row(table, "other", 1e14, SCORE)
    assert other.by_seed == {0: 1.0, 1: 1.0, 2: 1.5}
    assert other.mean.value == pytest.approx((1 + 1 + 1.5) / 3)
    assert row(table, "first", 1e14, SCORE).mean.value == pytest.approx((2 + 2 + 1.5) / 3)
    assert other.difference is not None
    assert other.difference.value == pytest.approx((-1 - 1 + 0) / 3)
    # Student's quantile of two degrees of freedom times the error of -1, -1, 0.
    half = 4.303 * (1 / 3) ** 0.5 / 3**0.5
    assert other.difference.high - other.difference.value == pytest.approx(half, rel=1e-3)
    assert not other.difference.excludes_zero


def test_where_the_curves_cross() -> None:
    a, b = made().curves
    assert (a.task, a.ahead > 0) == ("a", True)
    assert 4e14 < a.crosses.value < 1e15
    assert a.crosses.low <= a.crosses.value <= a.crosses.high
    assert b.crosses.value == b.reached.value == -math.inf
    assert b.times == pytest.approx(10)
    assert 4e14 < a.reached.value < 1e15
    assert a.times == pytest.approx(1e15 / a.reached.value)


def test_tasks_won_do_not_depend_on_other_recipes() -> None:
    """A third recipe that is better than one of two on a task moves their ranks apart."""
    results = [
        result(name, 1e14, seed, a=a, b=b, c=c)
        for name, a, b, c in (("first", 0.5, 0.5, 0.5), ("late", 0.7, 0.49, 0.5))
        for seed in range(3)
    ]
    between = [result("between", 1e14, seed, a=0.6, b=0.4, c=0.5) for seed in (0, 2)]
    names, tasks = ["first", "late", "between"], ["a", "b", "c"]
    alone, beside = (
        table_of(of, recipes=names, tasks=tasks) for of in (results, [*results, *between])
    )
    for table in (alone, beside):
        won = row(table, "late", 1e14, WON)
        assert won.by_seed == {0: 1.5, 1: 1.5, 2: 1.5}
        assert (won.mean, won.lead, won.metric) == (exactly(1.5), exactly(0.0), "of 3")
        assert table.row("first", 1e14, WON) is None
    assert row(beside, "between", 1e14, WON).by_seed == {0: 1.5, 2: 1.5}
    assert row(alone, "late", 1e14, SCORE).difference == exactly(0.0)
    difference = row(beside, "late", 1e14, SCORE).difference
    assert difference is not None
    assert difference.value == pytest.approx(-1 / 3)


def test_the_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table = made()
    write_report(table, tmp_path, against="flops")
    page = (tmp_path / "report.md").read_text()
    assert (
        "| late | **55.5 ± 0.7** | **62.0 ± 0.5** | **1.00 ± 0.00** | **2.0 ± 0.0 of 2** |" in page
    )
    # Behind outside the interval at the first budget, on the one task; in the middle on the other.
    assert "| late | *45.5 ± 0.7* | **60.0 ± 0.5** | 1.50 ± 0.00 | 1.0 ± 0.0 of 2 |" in page
    assert "| first | 50.0 ± 0.5 | 40.0 ± 0.5 | 1.50 ± 0.00 | - |" in page
    assert "## Before training" in page
    assert "b: late is ahead of first at every budget, by more" in page
    assert "b: late reaches the 40.0 of first at least 10.0 times cheaper" in page
    rows = list(csv.DictReader(io.StringIO(in_csv(table))))
    assert len(rows) == len(table.rows) == 14 + 6 + 3
    won = [row for row in rows if row["task"] == "tasks won"]
    assert [(row["recipe"], row["mean"], row["metric"]) for row in won] == [
        ("late", "1.0", "of 2"),
        ("late", "1.0", "of 2"),
        ("late", "2.0", "of 2"),
    ]
    ranks = [row for row in rows if row["metric"] == "rank"]
    assert [float(row["mean"]) for row in ranks] == [1.5, 1.5, 1.5, 1.5, 2.0, 1.0]
    assert {row["seeds"] for row in ranks} == {"3"}
    assert float(rows[0]["mean"]) == pytest.approx(table.rows[0].mean.value)
    known = json.loads(in_json(table))
    assert known["recipes"] == ["first", "late"]
    assert known["score"] == "mean rank over the tasks"
    assert "mean rank" in text(table)
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    for against in ("tokens", "seconds"):
        assert drawn(table, against=against)


def test_budgets_of_text_are_called_so(tmp_path: Path) -> None:
    """No budget of passes is called FLOPs, in words or in the picture, and costs stay FLOPs."""
    pytest.importorskip("matplotlib")
    results = [replace(r, budget=r.budget / 1e14) for r in made_results()]
    table = table_of(results, recipes=["first", "late"], tasks=["a", "b"], equal="epochs")
    page = markdown(table)
    assert "## 10 epochs" in page
    assert "b: late reaches the 40.0 of first with at least 10.0 times less text" in page
    assert "epochs" in page
    assert "FLOPs" not in page + text(table)
    assert json.loads(in_json(table))["equal"] == "epochs"
    assert with_unit(1, "epochs") == "1 epoch"
    assert table.costs["late", 10.0]["flops"] == 1e15
    pictures = {drawn(table, against=what) for what in ("epochs", "flops", "tokens")}
    assert len(pictures) == 3  # other axes
