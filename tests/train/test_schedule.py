from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.train.optim import factor

KINDS = ["electra", "linear", "cosine", "wsd", "constant"]
# 100 steps, 10 of warm-up. Worked out by hand.
TABLE = {
    "electra": {0: 0.0, 1: 0.1 * 0.99, 5: 0.5 * 0.95, 10: 0.9, 55: 0.45, 99: 0.01, 100: 0.0},
    "linear": {0: 0.0, 1: 0.1, 5: 0.5, 10: 1.0, 55: 0.5, 91: 0.1, 99: 1 / 90, 100: 0.0},
    "cosine": {
        0: 0.0,
        5: 0.5,
        10: 1.0,
        40: 0.75,
        55: 0.5,
        70: 0.25,
        99: 0.5 * (1 - math.cos(math.pi / 90)),
        100: 0.0,
    },
    "wsd": {0: 0.0, 5: 0.5, 10: 1.0, 79: 1.0, 80: 1.0, 90: 0.5, 99: 0.05, 100: 0.0},
    "constant": {0: 0.0, 5: 0.5, 10: 1.0, 99: 1.0, 100: 1.0},
}


@pytest.mark.parametrize(("kind", "step"), [(k, s) for k, row in TABLE.items() for s in row])
def test_table(kind: str, step: int) -> None:
    assert factor(kind, step, warmup_steps=10, max_steps=100) == pytest.approx(
        TABLE[kind][step], abs=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_warm_up_the_first_update_is_full(kind: str) -> None:
    assert factor(kind, 0, warmup_steps=0, max_steps=100) == 1.0


@given(st.sampled_from(KINDS), st.integers(0, 2000), st.integers(0, 1000), st.integers(1, 1500))
def test_always_between_0_and_1(kind: str, step: int, warmup: int, total: int) -> None:
    """Also for a warm-up longer than the run, and beyond its end."""
    assert 0 <= factor(kind, step, warmup_steps=warmup, max_steps=total) <= 1


@given(st.sampled_from(KINDS), st.integers(0, 500), st.integers(1, 1000))
def test_up_to_the_end_of_warm_up_then_never_up(kind: str, warmup: int, rest: int) -> None:
    total = warmup + rest
    values = [
        factor(kind, s, warmup_steps=warmup, max_steps=total) for s in range(warmup, total + 1)
    ]
    assert all(a >= b - 1e-12 for a, b in pairwise(values))
    if kind != "constant":
        assert values[-1] == pytest.approx(0, abs=1e-12)


def test_published_bert_figures() -> None:
    """ELECTRA-Small: 1M steps, 10k of warm-up: the peak is 99 % of the base rate, and half the rate
    is left in the middle."""
    assert factor("electra", 10_000, warmup_steps=10_000, max_steps=1_000_000) == pytest.approx(
        0.99
    )
    assert factor("electra", 500_000, warmup_steps=10_000, max_steps=1_000_000) == pytest.approx(
        0.5
    )
