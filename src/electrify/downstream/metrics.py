"""Metrics: thin wrappers over scikit-learn and scipy (extra `eval`), each a function of (labels,
predictions) to a float, higher is better.

If the metric is a correlation, a constant prediction scores 0: the correlation is undefined, and a
model that always gives the same answer has earned nothing.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import UserError

Numbers = Sequence[float] | np.ndarray[Any, Any]


def _need(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise UserError(
            f"fine-tuning is scored with scikit-learn and scipy, and {module.split('.')[0]} is not "
            "installed: pip install 'electrify[eval]'"
        ) from e


def accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Share of predictions that equal the label."""
    return float(_need("sklearn.metrics").accuracy_score(labels, predictions))


def matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation (any number of classes); 0 where either side is constant."""
    if _constant(labels) or _constant(predictions):
        return 0.0
    return float(_need("sklearn.metrics").matthews_corrcoef(labels, predictions))


def f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 of class 1; 0 where nothing is or is called class 1."""
    return float(
        _need("sklearn.metrics").f1_score(
            labels, predictions, labels=[1], average="macro", zero_division=0
        )
    )


def macro_f1(labels: Numbers, predictions: Numbers) -> float:
    """Mean over the classes that occur of each one's F1; of rows of 0 and 1 (multi-label) over the
    columns."""
    wanted = np.asarray(labels)
    found = np.asarray(predictions)
    if wanted.ndim == 2:  # a single column would be a list of classes to scikit-learn
        return float(np.mean([f1(wanted[:, k], found[:, k]) for k in range(wanted.shape[1])]))
    return float(_need("sklearn.metrics").f1_score(wanted, found, average="macro", zero_division=0))


def micro_f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 over all classes of all examples at once (multi-label: rows of 0 and 1); 0 where nothing
    holds or is said to."""
    return f1(np.ravel(labels), np.ravel(predictions))


def pearson(labels: Numbers, predictions: Numbers) -> float:
    """Linear correlation; 0 where either side is constant."""
    return _correlation("pearsonr", labels, predictions)


def spearman(labels: Numbers, predictions: Numbers) -> float:
    """Correlation of ranks (ties share their mean rank); 0 where either side is constant."""
    return _correlation("spearmanr", labels, predictions)


def _correlation(name: str, labels: Numbers, predictions: Numbers) -> float:
    x = np.asarray(labels, np.float64)
    y = np.asarray(predictions, np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a correlation needs finite numbers")
    if x.size < 2 or _constant(x) or _constant(y):
        return 0.0
    # The largest value is 1, or squares of tiny and huge numbers leave the range of a float.
    if name == "pearsonr":
        x = x / np.abs(x).max()
        y = y / np.abs(y).max()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant: the value is taken as it comes
        value = float(getattr(_need("scipy.stats"), name)(x, y)[0])
    return value if np.isfinite(value) else 0.0


def _constant(numbers: Numbers) -> bool:
    values = np.asarray(numbers)
    return bool((values == values[:1]).all())


METRICS: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": accuracy,
    "matthews": matthews,
    "f1": f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "pearson": pearson,
    "spearman": spearman,
}


def score(names: Sequence[str], labels: Numbers, predictions: Numbers) -> dict[str, float]:
    """The named metrics, in order. labels, predictions: class numbers, or values for the
    correlations."""
    return {name: METRICS[name](labels, predictions) for name in names}


def require(names: Sequence[str]) -> None:
    """Raises UserError now, and not after the training, where a library that the metrics need is
    absent."""
    for name in names:
        METRICS[name]([0, 1, 1], [0, 1, 0])
