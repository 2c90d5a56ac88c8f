"""Metrics: wrappers over scikit-learn and scipy (extra `eval`), chunks of tags as conlleval scores
them, and answers as SQuAD's official script 2.0 scores them.

A label of a multilabel task that nobody knows is UNKNOWN, and is not scored. A correlation with a
constant is 0: it is undefined, and a model that always gives the same answer has learnt nothing.

Shape suffixes: N examples, C classes.
"""

from __future__ import annotations

import importlib
import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import UserError
from .tasks import Example, Kind, Question

Array = np.ndarray[Any, Any]
Numbers = Sequence[float] | Array
UNKNOWN = -1
"""The label of a class of which nobody knows whether it applies (multilabel)."""
BINS = 15
"""Bins of equal width of the calibration error."""


def need(module: str) -> Any:
    """The module. Raises UserError if its library is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise UserError(
            f"metrics need {module.split('.')[0]}, which is not installed: pip install "
            "'electrify[eval]'"
        ) from e


def several(examples: Sequence[Example], classes: int) -> Array:
    """The labels of multilabel examples, [N, C]: 1, 0, and UNKNOWN."""
    labels_NC = np.zeros((len(examples), classes), np.int64)
    for row, example in zip(labels_NC, examples, strict=True):
        row[list(example.label)] = 1  # type: ignore[arg-type]
        row[list(example.unknown)] = UNKNOWN
    return labels_NC


# ------------------------------------------------------------------ classes and values


def accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Share of the predictions that equal the label. Multilabel: share of the examples of which
    every known class is right."""
    wanted = np.asarray(labels)
    right = np.asarray(predictions) == wanted
    return float((right | (wanted == UNKNOWN)).all(1).mean() if wanted.ndim == 2 else right.mean())


def balanced_accuracy(labels: Numbers, predictions: Numbers) -> float:
    """Mean over the classes that occur of the share of their examples that are found."""
    recall = need("sklearn.metrics").recall_score
    present = np.unique(labels)
    return float(recall(labels, predictions, labels=present, average="macro", zero_division=0))


def matthews(labels: Numbers, predictions: Numbers) -> float:
    """Matthews correlation, for any number of classes. 0 if either side is constant."""
    if _constant(labels) or _constant(predictions):
        return 0.0
    return float(need("sklearn.metrics").matthews_corrcoef(labels, predictions))


def f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 of class 1. 0 if class 1 neither occurs nor is predicted."""
    score = need("sklearn.metrics").f1_score
    return float(score(labels, predictions, labels=[1], average="macro", zero_division=0))


def macro_f1(labels: Numbers, predictions: Numbers) -> float:
    """Mean F1 of the classes that occur. Multilabel: of those with a known label."""
    wanted, found = np.asarray(labels), np.asarray(predictions)
    if wanted.ndim == 1:
        score = need("sklearn.metrics").f1_score
        return float(score(wanted, found, average="macro", zero_division=0))
    known = wanted != UNKNOWN
    columns = [(k, known[:, k]) for k in range(wanted.shape[1]) if known[:, k].any()]
    return _mean([f1(wanted[n, k], found[n, k]) for k, n in columns])


def micro_f1(labels: Numbers, predictions: Numbers) -> float:
    """F1 over all classes of all examples together. With one class per example: the accuracy."""
    wanted = np.asarray(labels)
    if wanted.ndim == 1:
        return accuracy(wanted, predictions)
    known = wanted != UNKNOWN
    return f1(wanted[known], np.asarray(predictions)[known]) if known.any() else math.nan


def pearson(labels: Numbers, predictions: Numbers) -> float:
    """Linear correlation. 0 if either side is constant."""
    return _correlation("pearsonr", labels, predictions)


def spearman(labels: Numbers, predictions: Numbers) -> float:
    """Correlation of ranks, ties sharing their mean rank. 0 if either side is constant."""
    return _correlation("spearmanr", labels, predictions)


def _correlation(name: str, labels: Numbers, predictions: Numbers) -> float:
    x, y = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    if len(x) < 2 or _constant(x) or _constant(y):
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant: the value is taken as it is
        value = float(getattr(need("scipy.stats"), name)(x, y)[0])
    return value if math.isfinite(value) else 0.0


def _constant(numbers: Numbers) -> bool:
    values = np.asarray(numbers)
    return bool((values == values[:1]).all())


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else math.nan


# ------------------------------------------------------------------ probabilities


def roc_auc(labels: Array, probabilities_NC: Array) -> float:
    """Area under the ROC curve: of the second of two classes, else the mean over the classes, each
    against the rest. NaN if no class has examples of both sides.

    labels: class numbers [N], or [N, C] as of `several`.
    """
    return _area("roc_auc_score", labels, probabilities_NC)


def pr_auc(labels: Array, probabilities_NC: Array) -> float:
    """Average precision (area under precision and recall). Classes and NaN as in `roc_auc`."""
    return _area("average_precision_score", labels, probabilities_NC)


def ece(labels: Array, probabilities_NC: Array) -> float:
    """Expected calibration error: distance between the probability of the predicted class and its
    accuracy, in BINS bins of probability, as the mean over the examples. labels: class numbers [N].

    Source: Guo et al. 2017, 1706.04599, section 2. A bin contains its upper end, as there.
    """
    sure_N = probabilities_NC.max(1)
    right_N = probabilities_NC.argmax(1) == labels
    bins_N = np.clip(np.ceil(sure_N * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(bins_N, weights=sure_N - right_N, minlength=BINS)
    return float(np.abs(gaps).sum() / len(sure_N))


def _area(name: str, labels: Array, probabilities_NC: Array) -> float:
    area = getattr(need("sklearn.metrics"), name)
    sides = _against_the_rest(labels, probabilities_NC)
    return _mean([float(area(yes, p)) for yes, p in sides if 0 < yes.sum() < len(yes)])


def _against_the_rest(labels: Array, probabilities_NC: Array) -> Iterator[tuple[Array, Array]]:
    """For each class: whether it is right, where that is known, and its probability."""
    classes = probabilities_NC.shape[1]
    for k in range(classes) if labels.ndim == 2 or classes > 2 else (classes - 1,):
        if labels.ndim == 2:
            known_N = labels[:, k] != UNKNOWN
            yield labels[known_N, k] == 1, probabilities_NC[known_N, k]
        else:
            yield labels == k, probabilities_NC[:, k]


# ------------------------------------------------------------------ the table


@dataclass(frozen=True)
class Metric:
    """of: what is compared with the labels, predicted classes (or values) or probabilities."""

    score: Callable[[Any, Any], float]
    kinds: tuple[Kind, ...]
    of: Literal["choices", "probabilities"] = "choices"
    lower: bool = False  # whether lower is better


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
"""The metrics of texts. Tags and answers have their own, see `span_scores`, `score_answers`."""


def score(
    names: Sequence[str], labels: Numbers, predictions: Numbers, probabilities: Any = None
) -> dict[str, float]:
    """The named metrics, in order. labels, predictions: class numbers or values [N], or [N, C] as
    of `several`. probabilities: [N, C], for metrics that need them."""
    given = {"choices": predictions, "probabilities": np.asarray(probabilities)}
    rows = {name: METRICS[name] for name in names}
    return {name: row.score(np.asarray(labels), given[row.of]) for name, row in rows.items()}


def chosen(names: Sequence[str], kind: Kind) -> tuple[str, ...]:
    """The names. Raises UserError for a metric that does not exist for this kind of task."""
    known = [name for name, row in METRICS.items() if kind in row.kinds]
    for name in names:
        if name not in known:
            offered = f"Choose from {', '.join(known)}" if known else "Leave --metrics out"
            raise UserError(f"--metrics: {kind} has no metric {name!r}. {offered}")
    return tuple(dict.fromkeys(names))


def is_lower_better(name: str) -> bool:
    return name in METRICS and METRICS[name].lower


def better(name: str, found: float, best: float) -> bool:
    """Whether a score is better than the best so far. Any number is better than NaN."""
    if math.isnan(found) or math.isnan(best):
        return not math.isnan(found)
    return found < best if is_lower_better(name) else found > best


def require(names: Sequence[str]) -> None:
    """Raises UserError, before any training, if a library that the metrics need is missing."""
    for name in names:
        need("scipy.stats" if METRICS[name].kinds == _VALUES else "sklearn.metrics")


# ------------------------------------------------------------------ chunks of tags

OPENING = frozenset("BSU")
CLOSING = frozenset("ESLU")
LETTERS = OPENING | CLOSING | {"I"}


def chunk_of(tag: str) -> tuple[str, str] | None:
    """(letter, type) of a tag. None if it is outside every chunk: O, and tags such as NOUN."""
    letter, hyphen, kind = tag.partition("-")
    return None if letter == "O" or not (hyphen or letter in LETTERS) else (letter, kind)


def spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The chunks of a sentence in order: type, first word, word after the last.

    A chunk begins at B- and S-, after E- and S-, after a word outside, and where the type changes,
    even at an I-. BILOU's L- and U- are E- and S-. For O, B and I these are conlleval's chunks
    (CoNLL-2000); for IOBES and BILOU the scheme's own, as in seqeval, where conlleval differs: it
    takes E-X B-X, and S-X S-X, for one chunk.
    """
    found: list[tuple[str, int, int]] = []
    before: tuple[str, str] | None = None
    for i, tag in enumerate(tags):
        here = chunk_of(tag)
        if here is not None:
            goes_on = (
                before is not None
                and before[1] == here[1]
                and before[0] not in CLOSING
                and here[0] not in OPENING
            )
            found.append((here[1], found.pop()[1] if goes_on else i, i + 1))
        before = here
    return found


def span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """f1, precision and recall of chunks (type and both ends right) over all sentences, and
    accuracy of tags: fractions, 0 where undefined. gold, predicted: the tags of each sentence."""
    there = called = right = 0
    same: list[bool] = []
    for g, p in zip(gold, predicted, strict=True):
        same += [a == b for a, b in zip(g, p, strict=True)]
        a, b = set(spans(g)), set(spans(p))
        there, called, right = there + len(a), called + len(b), right + len(a & b)
    return {
        "f1": 2 * right / max(1, there + called),
        "precision": right / max(1, called),
        "recall": right / max(1, there),
        "accuracy": sum(same) / max(1, len(same)),
    }


# ------------------------------------------------------------------ answers (SQuAD)

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """1 if both normalise to the same text, else 0."""
    return float(normalize(gold) == normalize(predicted))


def word_f1(gold: str, predicted: str) -> float:
    """F1 of the words in common, with repetitions. If a side has no words: 1 if neither has any,
    else 0."""
    wanted = normalize(gold).split()
    given = normalize(predicted).split()
    if not wanted or not given:
        return float(wanted == given)
    common = sum((Counter(wanted) & Counter(given)).values())
    if not common:
        return 0.0
    precision = common / len(given)
    recall = common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score_answers(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """`exact` and `f1`, fractions, the best over a question's gold answers, as SQuAD's official
    script 2.0 computes them.

    With questions that have no answer also has_answer_exact, has_answer_f1 and no_answer_exact;
    with no_answer also best_exact, best_f1 and their thresholds: the best scores of answering only
    the questions whose no-answer score is at most a threshold. As in the script, questions with
    equal scores count one by one in the order of no_answer, and the threshold is 0 if it is best to
    answer none. The script for SQuAD 1.1 differs only in answers that normalise to nothing.

    Args:
        predictions: question id to answer, "" for none.
        no_answer: question id to a score, the higher the less likely an answer is.
    """
    exacts, f1s = (
        {q.id: max(measure(gold, predictions[q.id]) for gold in _golds(q)) for q in questions}
        for measure in (exact_match, word_f1)
    )
    scores = {"exact": _mean(exacts.values()), "f1": _mean(f1s.values())}
    has = [q.id for q in questions if q.answers]
    has_not = [q.id for q in questions if not q.answers]
    if not has_not:
        return scores
    if has:
        scores["has_answer_exact"] = _mean([exacts[k] for k in has])
        scores["has_answer_f1"] = _mean([f1s[k] for k in has])
    scores["no_answer_exact"] = _mean([exacts[k] for k in has_not])
    if no_answer is not None:
        wrong = {k: -1.0 if predictions[k] else 0.0 for k in has_not}
        for name, gains in (("best_exact", exacts | wrong), ("best_f1", f1s | wrong)):
            best, threshold = _best(gains, no_answer, len(has_not))
            scores |= {name: best / len(questions), f"{name}_threshold": threshold}
    return scores


def _golds(question: Question) -> list[str]:
    """The gold answers. Those that normalise to nothing count only if there are no others."""
    return [a.text for a in question.answers if normalize(a.text)] or [""]


def _best(
    gains: Mapping[str, float], no_answer: Mapping[str, float], start: float
) -> tuple[float, float]:
    """The highest value of start plus the first gains, in ascending order of no-answer scores, and
    the score at which it is reached."""
    total = best = float(start)
    threshold = 0.0
    for k in sorted((k for k in no_answer if k in gains), key=lambda k: no_answer[k]):
        total += gains[k]
        if total > best:
            best = total
            threshold = float(no_answer[k])
    return best, threshold


def threshold_of(
    questions: Sequence[Question], best: Mapping[str, str], none: Mapping[str, float]
) -> float:
    """The no-answer threshold of the best F1. If it is best to answer none, it is below all scores
    (the official one is 0); if every question has an answer, it is the highest score."""
    if all(q.answers for q in questions):
        return max(none.values())
    found = score_answers(questions, best, none)
    silent = sum(not q.answers for q in questions) / len(questions)
    return found["best_f1_threshold"] if silent < found["best_f1"] else -math.inf


def silenced(
    best: Mapping[str, str], none: Mapping[str, float], threshold: float
) -> dict[str, str]:
    """The best answers, or "" where the no-answer score is above the threshold."""
    return {key: "" if none[key] > threshold else text for key, text in best.items()}


def answer_scores(
    questions: Sequence[Question], best: Mapping[str, str], none: Mapping[str, float]
) -> dict[str, float]:
    """The scores with the official threshold, 0, and the best ones. best: the best answer other
    than none by question id; none: the no-answer scores."""
    found = score_answers(questions, silenced(best, none, 0.0))
    if not all(q.answers for q in questions):
        return score_answers(questions, best, none) | found
    found |= {f"has_answer_{name}": value for name, value in found.items()}
    at = threshold_of(questions, best, none)
    given = score_answers(questions, silenced(best, none, at))
    found |= {f"best_{name}": value for name, value in given.items()}
    return found | {f"best_{name}_threshold": at for name in given}
