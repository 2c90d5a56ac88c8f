"""Metrics: wrappers over scikit-learn and scipy (extra `eval`), chunks of tags as conlleval scores
them, and answers as SQuAD's official script 2.0 scores them.

A label of a multilabel task that nobody knows is UNKNOWN, and is not scored. A correlation with a
constant is 0: it is undefined, and a model that always gives the same answer has learnt nothing.

Shape suffixes: N examples, C classes.
"""

from __future__ import annotations

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import must_have, need
from .tasks import Example, Kind, Question, TaskData

Array = np.ndarray[Any, Any]
UNKNOWN = -1
"""The label of a class of which nobody knows whether it applies (multilabel)."""
BINS = 15
"""Bins of equal width of the calibration error."""


def require() -> None:
    """Raises UserError if a library that the metrics of texts need is missing."""
    must_have("this metric", "eval", "sklearn", "scipy")


def several(examples: Sequence[Example], classes: int) -> Array:
    """The labels of multilabel examples, [N, C]: 1, 0, and UNKNOWN."""
    labels_NC = np.zeros((len(examples), classes), np.int64)
    for row, example in zip(labels_NC, examples, strict=True):
        row[list(example.label)] = 1  # type: ignore[arg-type]
        row[list(example.unknown)] = UNKNOWN
    return labels_NC


def targets_of(task: TaskData, examples: Sequence[Example]) -> Array:
    """Class numbers or values [N], or [N, C] as of `several`."""
    if task.kind == "multilabel":
        return several(examples, len(task.labels))
    return np.array([e.label for e in examples], float if task.kind == "regression" else int)


# ------------------------------------------------------------------ classes and values


def accuracy(labels: Array, predictions: Array) -> float:
    """Share of the predictions that equal the label. Multilabel: share of the examples of which
    every known class is right."""
    right = (predictions == labels) | (labels == UNKNOWN)
    return float(right.reshape(len(labels), -1).all(1).mean())


def f1(labels: Array, predictions: Array) -> float:
    """F1 of class 1. 0 if class 1 neither occurs nor is predicted."""
    how = {"labels": [1], "average": "macro", "zero_division": 0}
    return _of_sklearn("f1_score", labels, predictions, **how)


def macro_f1(labels: Array, predictions: Array) -> float:
    """Mean F1 of the classes that occur or are predicted. Multilabel: of those with a known
    label."""
    if labels.ndim == 2:
        return _mean([f1(y, p) for y, p in _by_class(labels, predictions) if len(y)])
    return _of_sklearn("f1_score", labels, predictions, average="macro", zero_division=0)


def micro_f1(labels: Array, predictions: Array) -> float:
    """F1 over all classes of all examples together. With one class per example: the accuracy."""
    if labels.ndim == 1:
        return accuracy(labels, predictions)
    known = labels != UNKNOWN
    return f1(labels[known], predictions[known]) if known.any() else math.nan


def _of_sklearn(name: str, wanted: Array, given: Array, **options: Any) -> float:
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predicted classes that do not occur
        return float(getattr(metrics, name)(wanted, given, **options))


def _correlation(name: str, labels: Any, predictions: Any) -> float:
    x, y = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    from scipy import stats

    if len(x) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant: NaN; nearly constant: the value is taken
        value = float(getattr(stats, name)(x, y)[0])
    return value if math.isfinite(value) else 0.0


spearman = partial(_correlation, "spearmanr")
"""Correlation of ranks, ties sharing their mean rank."""


def _by_class(labels_NC: Array, given_NC: Array) -> Iterator[tuple[Array, Array]]:
    """The known labels of each class, and what is given for them."""
    for labels_N, given_N in zip(labels_NC.T, given_NC.T, strict=True):
        known_N = labels_N != UNKNOWN
        yield labels_N[known_N], given_N[known_N]


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else math.nan


# ------------------------------------------------------------------ probabilities


def _area(name: str, labels: Array, probabilities_NC: Array) -> float:
    """An area under a curve of probabilities: of the second of two classes, else the mean over the
    classes, each against the rest. NaN if no class has examples of both sides.

    labels: class numbers [N], or [N, C] as of `several`.
    """
    if labels.ndim == 1:
        first = 1 if probabilities_NC.shape[1] == 2 else 0
        labels = labels[:, None] == np.arange(probabilities_NC.shape[1])
        labels, probabilities_NC = labels[:, first:], probabilities_NC[:, first:]
    classes = _by_class(labels, probabilities_NC)
    return _mean([_of_sklearn(name, y, p) for y, p in classes if 0 < y.sum() < len(y)])


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


# ------------------------------------------------------------------ the table


class Metric(NamedTuple):
    """score: of labels, and predicted classes or values, or of labels and probabilities."""

    score: Callable[[Array, Array], float]
    kinds: tuple[Kind, ...]
    of_probabilities: bool = False
    lower: bool = False  # whether lower is better


_CLASSES: tuple[Kind, ...] = ("classification",)
_TEXTS: tuple[Kind, ...] = ("classification", "multilabel")
_VALUES: tuple[Kind, ...] = ("regression",)
METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, _TEXTS),
    "balanced_accuracy": Metric(partial(_of_sklearn, "balanced_accuracy_score"), _CLASSES),
    "matthews": Metric(partial(_of_sklearn, "matthews_corrcoef"), _CLASSES),
    "f1": Metric(f1, _CLASSES),
    "macro_f1": Metric(macro_f1, _TEXTS),
    "micro_f1": Metric(micro_f1, _TEXTS),
    "roc_auc": Metric(partial(_area, "roc_auc_score"), _TEXTS, of_probabilities=True),
    "pr_auc": Metric(partial(_area, "average_precision_score"), _TEXTS, of_probabilities=True),
    "ece": Metric(ece, _CLASSES, of_probabilities=True, lower=True),
    "pearson": Metric(partial(_correlation, "pearsonr"), _VALUES),
    "spearman": Metric(spearman, _VALUES),
}
"""The metrics of texts. Tags and answers have their own, see `span_scores`, `score_answers`."""


def score(
    names: Sequence[str], labels: Any, predictions: Any, probabilities: Any = None
) -> dict[str, float]:
    """The named metrics, in order. labels, predictions: class numbers or values [N], or [N, C] as
    of `several`. probabilities: [N, C], for metrics that need them."""
    labels, predictions, sure = map(np.asarray, (labels, predictions, probabilities))
    given = {True: sure, False: predictions}
    rows = {name: METRICS[name] for name in names}
    return {name: row.score(labels, given[row.of_probabilities]) for name, row in rows.items()}


def scores_of(
    task: TaskData, examples: Sequence[Any], answers: Any, probabilities: Any = None
) -> dict[str, float]:
    """The metrics of a task of tags or texts. answers: the tags of each sentence, or as of
    `score`."""
    if task.kind == "tagging":
        found = span_scores([sentence.tags for sentence in examples], answers)
        return {name: found[name] for name in task.metrics}
    return score(task.metrics, targets_of(task, examples), answers, probabilities)


def chosen(names: Sequence[str], kind: Kind) -> tuple[str, ...]:
    """The names. Raises UserError for a metric that does not exist for this kind of task."""
    known = [name for name, row in METRICS.items() if kind in row.kinds]
    for name in names:
        fact = f"--metrics: {kind} has no metric {name!r}"
        need(name in known, fact, f"choose from {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def is_lower_better(name: str) -> bool:
    return name in METRICS and METRICS[name].lower


def rank(name: str, value: float) -> float:
    """The score of a metric as a number that is lower where it is better; NaN is worst."""
    if math.isnan(value):
        return math.inf
    return value if is_lower_better(name) else -value


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
    outside = ("E", "")  # what follows begins a chunk, as after the end of one
    found: list[tuple[str, int, int]] = []
    before = outside
    for i, tag in enumerate(tags):
        here = chunk_of(tag)
        if here is not None:
            begins = before[0] in CLOSING or here[0] in OPENING or before[1] != here[1]
            found.append((here[1], i if begins else found.pop()[1], i + 1))
        before = here or outside
    return found


def span_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """f1, precision and recall of chunks (type and both ends right) over all sentences, and
    accuracy of tags: fractions, 0 where undefined. gold, predicted: the tags of each sentence."""
    there = {(i, *span) for i, tags in enumerate(gold) for span in spans(tags)}
    called = {(i, *span) for i, tags in enumerate(predicted) for span in spans(tags)}
    right = len(there & called)
    pairs = zip(gold, predicted, strict=True)
    same = [a == b for wanted, found in pairs for a, b in zip(wanted, found, strict=True)]
    return {
        "f1": 2 * right / max(1, len(there) + len(called)),
        "precision": right / max(1, len(called)),
        "recall": right / max(1, len(there)),
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
    wanted, given = normalize(gold).split(), normalize(predicted).split()
    if not wanted or not given:
        return float(wanted == given)
    common = sum((Counter(wanted) & Counter(given)).values())
    return 2 * common / (len(wanted) + len(given))


def score_answers(
    questions: Sequence[Question], predictions: Sequence[str], none: Sequence[float] | None = None
) -> dict[str, float]:
    """`exact` and `f1`, fractions, the best over a question's gold answers, as SQuAD's official
    script 2.0 computes them.

    With questions that have no answer also has_answer_exact, has_answer_f1 and no_answer_exact;
    with `none` also best_exact, best_f1 and their thresholds: the best scores of answering only the
    questions whose no-answer score is at most a threshold. As in the script, questions with equal
    scores count one by one in their order, and the threshold is 0 if it is best to answer none. The
    script for SQuAD 1.1 differs only in answers that normalise to nothing.

    Args:
        predictions: the answer of each question, "" for none.
        none: its no-answer score, the higher the less likely an answer is.
    """
    both = list(zip(questions, predictions, strict=True))
    exacts, f1s = (
        [max(measure(gold, given) for gold in _golds(q)) for q, given in both]
        for measure in (exact_match, word_f1)
    )
    scores = {"exact": _mean(exacts), "f1": _mean(f1s)}
    has = [k for k, q in enumerate(questions) if q.answers]
    has_not = [k for k, q in enumerate(questions) if not q.answers]
    if has and (has_not or none is not None):
        scores["has_answer_exact"] = _mean([exacts[k] for k in has])
        scores["has_answer_f1"] = _mean([f1s[k] for k in has])
    if has_not:
        scores["no_answer_exact"] = _mean([exacts[k] for k in has_not])
    if none is not None:
        order = sorted(range(len(none)), key=none.__getitem__)
        for name, gains in (("best_exact", exacts), ("best_f1", f1s)):
            total, best, threshold = float(len(has_not)), float(len(has_not)), 0.0
            for k in order:
                total += gains[k] if questions[k].answers else -float(bool(predictions[k]))
                if total > best:
                    best, threshold = total, float(none[k])
            scores |= {name: best / len(questions), f"{name}_threshold": threshold}
    return scores


def _golds(question: Question) -> list[str]:
    """The gold answers. Those that normalise to nothing count only if there are no others."""
    return [a.text for a in question.answers if normalize(a.text)] or [""]


def threshold_of(
    questions: Sequence[Question], best: Sequence[str], none: Sequence[float]
) -> float:
    """The no-answer threshold of the best F1. If it is best to answer none, it is below all scores
    (the official one is 0); if every question has an answer, it is the highest score."""
    if all(q.answers for q in questions):
        return max(none)
    found = score_answers(questions, best, none)
    silent = sum(not q.answers for q in questions) / len(questions)
    return found["best_f1_threshold"] if silent < found["best_f1"] else -math.inf


def silenced(best: Sequence[str], none: Sequence[float], threshold: float) -> list[str]:
    """The best answers, or "" where the no-answer score is above the threshold."""
    return ["" if x > threshold else text for text, x in zip(best, none, strict=True)]


def answer_scores(
    questions: Sequence[Question], best: Sequence[str], none: Sequence[float]
) -> dict[str, float]:
    """The scores with the official threshold, 0, and the best ones. best: the best answer other
    than none to each question; none: the no-answer scores."""
    official = score_answers(questions, silenced(best, none, 0.0), none)
    found = score_answers(questions, best, none)
    return official | {name: x for name, x in found.items() if name.startswith("best_")}
