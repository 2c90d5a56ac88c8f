"""Metrics of probabilities rather than of choices: how well the right ones rank above the wrong
ones, and how far a probability can be trusted. Thin wrappers over scikit-learn (extra `eval`).

Shape suffixes: N examples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .needed import need

Array = np.ndarray[Any, Any]
UNKNOWN = -1
"""Stands in for a label that is not known (multi-label)."""
BINS = 15
"""The number of bins, of equal width, for the calibration error."""


def roc_auc(labels: Array, probabilities_NC: Array) -> float:
    """Area under the receiver operating characteristic: how often an example of a class has a
    higher probability for it than another example. Two classes have one value; otherwise it is the
    mean over the classes, each against the rest. NaN if no class has examples of both kinds.

    labels: class numbers [N], or [N, C] of 1, 0 and UNKNOWN (multi-label).
    """
    return _mean(need("sklearn.metrics").roc_auc_score, labels, probabilities_NC)


def pr_auc(labels: Array, probabilities_NC: Array) -> float:
    """Area under precision and recall, as average precision: that of the second class if there are
    two, otherwise the mean over the classes. By chance, it is the share of the class. Labels and
    NaN as in `roc_auc`."""
    return _mean(need("sklearn.metrics").average_precision_score, labels, probabilities_NC)


def ece(labels: Array, probabilities_NC: Array) -> float:
    """Expected calibration error: the distance between the probability of the chosen class and how
    often it is right, in BINS bins of probability, as the mean over the examples. Lower is better
    (Guo et al. 2017, 1706.04599, section 2). labels: class numbers [N]."""
    sure_N = probabilities_NC.max(1)
    right_N = probabilities_NC.argmax(1) == labels
    # A bin contains its upper end, as in the paper.
    bins_N = np.clip(np.ceil(sure_N * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(bins_N, weights=sure_N - right_N, minlength=BINS)
    return float(np.abs(gaps).sum() / len(sure_N))


def _mean(area: Callable[..., float], labels: Array, probabilities_NC: Array) -> float:
    found = [
        float(area(wanted, given))
        for wanted, given in _questions(labels, probabilities_NC)
        if 0 < wanted.sum() < len(wanted)
    ]
    return float(np.mean(found)) if found else float("nan")


def _questions(labels: Array, probabilities_NC: Array) -> Iterator[tuple[Array, Array]]:
    """For each class: whether it is the right one, where that is known, and its probability."""
    classes = range(probabilities_NC.shape[1])
    if labels.ndim == 2:
        for k in classes:
            known_N = labels[:, k] != UNKNOWN
            yield labels[known_N, k] == 1, probabilities_NC[known_N, k]
        return
    for k in classes if len(classes) > 2 else classes[-1:]:
        yield labels == k, probabilities_NC[:, k]
