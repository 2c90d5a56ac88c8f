"""Metrics: thin wrappers over scikit-learn and scipy (extra `eval`), each a function of (labels,
predictions) to a float; `METRICS` has a row for each.

If the metric is a correlation, a constant prediction scores 0: the correlation is undefined, and a
model that always gives the same answer has earned nothing. Labels of several classes are rows of 1,
0 and UNKNOWN (see probability_metrics.py), which counts neither as right nor as wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import UserError
from .needed import need
from .probability_metrics import UNKNOWN, ece, pr_auc, roc_auc
from .tasks import Kind

Numbers = Sequence[float] | np.ndarray[Any, Any]


def accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Share of predictions that equal the label; for rows of several classes, the share of rows
    that are right in everything that is known."""
    wanted = np.asarray(labels)
    if wanted.ndim == 2:
        return float(((np.asarray(predictions) == wanted) | (wanted == UNKNOWN)).all(1).mean())
    return float(need("sklearn.metrics").accuracy_score(wanted, predictions))


def balanced_accuracy(labels: Numbers, predictions: Numbers) -> float:
    """The share of a class's examples that are found, as a mean over the classes that occur; by
    chance, it is 1 / classes, however rare some of them are."""
    wanted = np.asarray(labels)
    recall = need("sklearn.metrics").recall_score
    present = np.unique(wanted)
    return float(recall(wanted, predictions, labels=present, average="macro", zero_division=0))


def matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation (any number of classes); 0 where either side is constant."""
    if _constant(labels) or _constant(predictions):
        return 0.0
    return float(need("sklearn.metrics").matthews_corrcoef(labels, predictions))


def f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 of class 1; 0 where nothing is or is called class 1."""
    return float(
        need("sklearn.metrics").f1_score(
            labels, predictions, labels=[1], average="macro", zero_division=0
        )
    )


def macro_f1(labels: Numbers, predictions: Numbers) -> float:
    """Each class's F1, as a mean over the classes that occur; for rows of 0 and 1 (multi-label),
    over the columns."""
    wanted = np.asarray(labels)
    found = np.asarray(predictions)
    if wanted.ndim == 2:  # a single column would be a list of classes to scikit-learn
        columns = [(k, wanted[:, k] != UNKNOWN) for k in range(wanted.shape[1])]
        each = [f1(wanted[n, k], found[n, k]) for k, n in columns if n.any()]
        return float(np.mean(each)) if each else float("nan")
    return float(need("sklearn.metrics").f1_score(wanted, found, average="macro", zero_division=0))


def micro_f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 over all classes of all examples at once, which for one class each is the accuracy
    (multi-label: rows of 0 and 1; 0 where nothing holds or is said to)."""
    wanted = np.asarray(labels)
    if wanted.ndim == 1:
        return float(need("sklearn.metrics").f1_score(wanted, predictions, average="micro"))
    wanted = np.ravel(wanted)
    known = wanted != UNKNOWN
    return f1(wanted[known], np.ravel(predictions)[known]) if known.any() else float("nan")


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
        warnings.simplefilter("ignore")  # nearly constant: the value is taken as it is
        value = float(getattr(need("scipy.stats"), name)(x, y)[0])
    return value if np.isfinite(value) else 0.0


def _constant(numbers: Numbers) -> bool:
    values = np.asarray(numbers)
    return bool((values == values[:1]).all())


@dataclass(frozen=True)
class Metric:
    """A row of METRICS. of: what it compares with the labels, the chosen classes (or values) or the
    probabilities. kinds: the kinds of task. lower: whether lower is better."""

    score: Callable[[Any, Any], float]
    kinds: tuple[Kind, ...]
    of: Literal["choices", "probabilities"] = "choices"
    lower: bool = False


_CLASSES: tuple[Kind, ...] = ("classification",)
_TEXTS: tuple[Kind, ...] = ("classification", "multilabel")
_VALUES: tuple[Kind, ...] = ("regression",)
METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, _TEXTS),
    "balanced_accuracy": Metric(balanced_accuracy, _CLASSES),
    "matthews": Metric(matthews, _CLASSES),
    "f1": Metric(f1, _CLASSES),
    "macro_f1": Metric(macro_f1, _TEXTS),
    "micro_f1": Metric(micro_f1, _TEXTS),
    "roc_auc": Metric(roc_auc, _TEXTS, "probabilities"),
    "pr_auc": Metric(pr_auc, _TEXTS, "probabilities"),
    "ece": Metric(ece, _CLASSES, "probabilities", lower=True),
    "pearson": Metric(pearson, _VALUES),
    "spearman": Metric(spearman, _VALUES),
}


def score(
    names: Sequence[str], labels: Numbers, predictions: Numbers, probabilities: Any = None
) -> dict[str, float]:
    """The named metrics, in order. labels, predictions: class numbers, rows of 0 and 1, or values
    for the correlations; probabilities: [examples, classes] where a metric needs them."""
    rows = {name: METRICS[name] for name in names}
    return {
        name: row.score(
            np.asarray(labels), predictions if row.of == "choices" else np.asarray(probabilities)
        )
        for name, row in rows.items()
    }


def chosen(names: Sequence[str], kind: Kind) -> tuple[str, ...]:
    """The names. Raises UserError for one that does not exist, or not for this kind of task."""
    known = [name for name, row in METRICS.items() if kind in row.kinds]
    for name in names:
        if name not in known:
            what = f"{kind} has no metric {name!r}" if known else f"{kind} has metrics of its own"
            offered = f"; there are {', '.join(known)}" if known else "; leave it out"
            raise UserError(f"--metrics: {what}{offered}")
    return tuple(dict.fromkeys(names))


def is_lower_better(name: str) -> bool:
    """name: that of any metric, also one for tags or answers, or for a further set."""
    return name in METRICS and METRICS[name].lower


def better(name: str, found: float, best: float) -> bool:
    """Whether a score is better than another one; a number is better than NaN."""
    if np.isnan(found) or np.isnan(best):
        return bool(np.isnan(best) and not np.isnan(found))
    return found < best if is_lower_better(name) else found > best


def require(names: Sequence[str]) -> None:
    """Raises UserError now, and not after training, if a library that the metrics need is
    missing."""
    for name in names:
        need("scipy.stats" if METRICS[name].kinds == _VALUES else "sklearn.metrics")
