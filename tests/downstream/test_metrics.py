from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from electrify.downstream import metrics
from electrify.errors import UserError

classes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)
numbers = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1e-300, 1e300, 1.0, 1.0 + 1e-15])
)
values = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30)


def test_hand_computed_matthews():
    # tp 2, tn 1, fp 1, fn 0: (2*1 - 1*0) / sqrt(3*2*2*1)
    assert metrics.matthews([1, 1, 0, 0], [1, 1, 1, 0]) == pytest.approx(2 / math.sqrt(12))


def test_hand_computed_f1_and_accuracy():
    assert metrics.f1([1, 1, 0, 0], [1, 1, 1, 0]) == pytest.approx(0.8)
    assert metrics.accuracy([1, 1, 0, 0], [1, 1, 1, 0]) == 0.75
    assert metrics.macro_f1([1, 1, 0, 0], [1, 1, 1, 0]) == pytest.approx((0.8 + 2 / 3) / 2)


def test_micro_f1_of_one_class_each_counts_all_classes():
    assert metrics.micro_f1([0, 0, 1, 2, 2, 2], [0, 0, 2, 2, 2, 2]) == pytest.approx(5 / 6)
    assert metrics.micro_f1([0.0, 0.0, 1.0], [0, 0, 0]) == pytest.approx(2 / 3)


def test_hand_computed_correlations():
    assert metrics.pearson([1, 2, 3], [1, 2, 4]) == pytest.approx(3 / math.sqrt(2 * (42 / 9)))
    assert metrics.spearman([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(
        0.8
    )  # 1 - 6 * 2 / (4 * 15)
    assert metrics.spearman([1, 2, 3], [0.1, 0.2, 9e9]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman"])
@pytest.mark.parametrize("constant", [0, 1, 0.1])
def test_a_constant_scores_zero_on_either_side(name: str, constant: float):
    for pair in (
        ([0, 1, 1, 0], [constant] * 4),
        ([constant] * 4, [0, 1, 1, 0]),
        ([constant] * 4, [constant] * 4),
    ):
        if name == "matthews" and constant == 0.1:
            continue
        assert metrics.METRICS[name].score(*pair) == 0.0


@given(classes)
def test_classification_agrees_with_scikit_learn(pairs: list[tuple[int, int]]):
    y, p = zip(*pairs, strict=True)
    assert metrics.accuracy(y, p) == pytest.approx(np.mean(np.array(y) == np.array(p)))
    wanted = (
        0.0 if len(set(y)) == 1 or len(set(p)) == 1 else sklearn.metrics.matthews_corrcoef(y, p)
    )
    assert metrics.matthews(y, p) == pytest.approx(wanted, abs=1e-12)
    tp = sum(a == b == 1 for a, b in pairs)
    assert metrics.f1(y, p) == pytest.approx(2 * tp / max(1, y.count(1) + p.count(1)), abs=1e-12)
    for name in ("accuracy", "matthews", "f1", "macro_f1"):
        assert math.isfinite(metrics.METRICS[name].score(y, p))


rows = st.integers(1, 4).flatmap(
    lambda c: st.lists(
        st.tuples(*[st.tuples(st.integers(0, 1), st.integers(0, 1))] * c), min_size=1, max_size=20
    )
)


@given(rows)
def test_several_labels_at_once_by_counting(pairs: list[tuple[tuple[int, int], ...]]):
    """Micro F1 counts every (example, class) alike, macro F1 is the mean over classes, accuracy
    wants all classes of an example right."""
    y, p = (np.array([[cell[k] for cell in row] for row in pairs]) for k in (0, 1))
    right, both = (y & p).sum(0), y.sum(0) + p.sum(0)
    assert metrics.micro_f1(y, p) == pytest.approx(2 * right.sum() / max(1, both.sum()), abs=1e-12)
    assert metrics.macro_f1(y, p) == pytest.approx(
        np.mean(2 * right / np.maximum(1, both)), abs=1e-12
    )
    if y.shape[1] > 1:  # one column alone is a plain list of classes to scikit-learn
        for average, ours in (("micro", metrics.micro_f1), ("macro", metrics.macro_f1)):
            assert ours(y, p) == pytest.approx(
                sklearn.metrics.f1_score(y, p, average=average, zero_division=0), abs=1e-12
            )
    assert metrics.accuracy(y, p) == pytest.approx((y == p).all(1).mean())


@given(values)
def test_correlations_are_finite_and_bounded_whatever_the_numbers(pairs: list[tuple[float, float]]):
    x, y = zip(*pairs, strict=True)
    for name in ("pearson", "spearman"):
        assert -1 - 1e-9 <= metrics.METRICS[name].score(x, y) <= 1 + 1e-9


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=3, max_size=30))
def test_correlations_agree_with_scipy(pairs: list[tuple[int, int]]):
    x, y = zip(*pairs, strict=True)
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert metrics.pearson(x, y) == pytest.approx(
            scipy.stats.pearsonr(x, y).statistic, abs=1e-9
        )
        assert metrics.spearman(x, y) == pytest.approx(
            scipy.stats.spearmanr(x, y).statistic, abs=1e-9
        )


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(UserError, match=r"scipy is not installed: pip install 'electrify\[eval\]'"):
        metrics.require(("spearman",))
