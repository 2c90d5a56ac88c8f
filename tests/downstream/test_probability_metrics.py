"""Metrics of probabilities: by hand, by counting, and what is not known takes no part."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.downstream import metrics
from electrify.downstream.metrics import METRICS, balanced_accuracy, better, chosen, score
from electrify.downstream.probability_metrics import UNKNOWN, ece, pr_auc, roc_auc
from electrify.errors import UserError


def two(*second: float) -> np.ndarray:
    """Probabilities of two classes, from those of the second."""
    return np.array([[1 - p, p] for p in second])


def test_areas_by_hand() -> None:
    labels = np.array([0, 0, 1, 1])
    # Of four pairs of an example of each class, three are in the right order.
    assert roc_auc(labels, two(0.1, 0.4, 0.35, 0.8)) == pytest.approx(3 / 4)
    # The first of the second class has precision 1, the second one 2 / 3, each half of the recall.
    assert pr_auc(labels, two(0.1, 0.4, 0.35, 0.8)) == pytest.approx((1 + 2 / 3) / 2)


@given(st.lists(st.tuples(st.integers(0, 2), *[st.integers(1, 9)] * 3), min_size=3, max_size=30))
def test_the_area_counts_pairs_in_order(rows: list[tuple[int, ...]]) -> None:
    labels = np.array([row[0] for row in rows])
    given_NC = np.array([row[1:] for row in rows], float)
    given_NC /= given_NC.sum(1, keepdims=True)
    areas = []
    for k in range(3):
        yes, no = given_NC[labels == k, k], given_NC[labels != k, k]
        if len(yes) and len(no):
            pairs = [(a > b) + (a == b) / 2 for a in yes for b in no]
            areas.append(sum(pairs) / len(pairs))
    found = roc_auc(labels, given_NC)
    assert math.isnan(found) if not areas else found == pytest.approx(np.mean(areas))


def test_calibration_by_hand() -> None:
    """Three examples in the bin that ends at .6, two of them right; one in the last bin, wrong."""
    labels = np.array([1, 1, 0, 0])
    given_NC = two(0.6, 0.6, 0.6, 1.0)
    # 3 / 4 of |.6 - 2 / 3|, and 1 / 4 of |1 - 0|.
    assert ece(labels, given_NC) == pytest.approx(0.75 * (2 / 3 - 0.6) + 0.25)
    assert ece(np.array([1, 0]), two(1.0, 0.0)) == 0.0


def test_balanced_accuracy_by_hand() -> None:
    assert balanced_accuracy([0] * 8 + [1] * 2, [0] * 10) == 0.5
    assert balanced_accuracy([0, 0, 0, 1], [0, 0, 1, 1]) == pytest.approx((2 / 3 + 1) / 2)


def test_what_is_not_known_counts_neither_way() -> None:
    labels = np.array([[1, UNKNOWN], [0, 1], [UNKNOWN, 0], [1, 1]])
    predictions = np.array([[1, 0], [0, 1], [1, 1], [0, 1]])
    sure = np.array([[0.9, 0.2], [0.2, 0.7], [0.8, 0.6], [0.1, 0.9]])
    found = score(["accuracy", "micro_f1", "macro_f1", "roc_auc"], labels, predictions, sure)
    assert found["accuracy"] == 0.5
    # Known: 1 0 1 and 1 0 1; said: 1 0 0 and 1 1 1. Of four true ones three are found, and one is
    # said in vain.
    assert found["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert found["macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert found["roc_auc"] == pytest.approx((1 / 2 + 1) / 2)
    changed = np.where(labels == UNKNOWN, 1 - predictions, predictions)
    assert score(list(found), labels, changed, sure) == found


def test_one_class_only_has_no_area() -> None:
    assert math.isnan(roc_auc(np.array([1, 1]), two(0.5, 0.6)))
    assert math.isnan(pr_auc(np.array([0, 0]), two(0.5, 0.6)))


def test_what_is_better() -> None:
    assert better("accuracy", 0.6, 0.5)
    assert not better("accuracy", 0.5, 0.5)
    assert better("ece", 0.1, 0.2)
    assert better("accuracy", 0.1, math.nan)
    assert not better("accuracy", math.nan, 0.1)


def test_metrics_of_a_kind() -> None:
    assert chosen(["roc_auc", "ece", "roc_auc"], "classification") == ("roc_auc", "ece")
    with pytest.raises(UserError, match="multilabel has no metric 'ece'; there are accuracy,"):
        chosen(["ece"], "multilabel")
    with pytest.raises(UserError, match="tagging has metrics of its own"):
        chosen(["f1"], "tagging")
    for name, row in METRICS.items():
        assert row.kinds, name
        metrics.require([name])
