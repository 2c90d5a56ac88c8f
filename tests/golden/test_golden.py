"""Ten updates of each recipe give the numbers they gave before. After a change that is meant to
move them: `python tests/golden/make.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from curves import HERE, RECIPES, STEPS, curve, read, write

TOLERANCE = (
    2e-4  # between processors and versions of torch; a wrong factor, mask or seed moves far more
)


@pytest.mark.parametrize("name", RECIPES)
def test_golden(name: str, tmp_path: Path) -> None:
    golden = read((HERE / f"{name}.txt").read_text(encoding="utf-8"))
    points = curve(name, folder=tmp_path)
    assert len(golden) == len(points) == STEPS
    for step, (was, now) in enumerate(zip(golden, points, strict=True), start=1):
        assert was.keys() == now.keys()
        for key in was:
            # The norm of a gradient of many thousand entries is a few units large: relative there.
            assert now[key] == pytest.approx(
                was[key], abs=TOLERANCE, rel=TOLERANCE if key == "grad_norm" else 0
            ), (step, key)


def test_no_golden_file_without_a_recipe() -> None:
    assert {p.stem for p in HERE.glob("*.txt")} == set(RECIPES)


def test_curves_are_read_as_written() -> None:
    points = [{"mlm": 3.87120149, "grad_norm": 1.5}, {"mlm": 1e-9, "grad_norm": 123456.0}]
    assert read(write("x", points)) == [
        {"mlm": 3.871201, "grad_norm": 1.5},
        {"mlm": 0.0, "grad_norm": 123456.0},
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_golden_curves_learn(name: str) -> None:
    """A frozen curve of a model that does not learn would guard nothing."""
    golden = read((HERE / f"{name}.txt").read_text(encoding="utf-8"))
    loss = next(
        term for term in ("mlm", "all_tokens", "nce", "generator", "rtd") if term in golden[0]
    )
    assert golden[-1][loss] < golden[0][loss] - 0.05
    assert all(0 < point["grad_norm"] < 1e4 for point in golden)
