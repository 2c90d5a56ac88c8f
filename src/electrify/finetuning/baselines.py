"""Baselines of a report, which need no encoder.

majority: the most frequent class, the mean of a regression, or each word's most frequent tag.
tfidf: TF-IDF of words, pairs of words and up to four characters, with a linear model (texts only).
overlap: the share of words that two texts have in common, with a linear model (pairs only). An
encoder that is not better than `overlap` may not understand either text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unicodedata import category, normalize

import numpy as np

from ..exporting.places import FROZEN
from . import metrics
from .metrics import UNKNOWN, Array, targets_of
from .tasks import Example, Sentence, TaskData

BASELINE = "baseline:"
MAJORITY = f"{BASELINE}majority"
TFIDF = f"{BASELINE}tfidf"
OVERLAP = f"{BASELINE}overlap"
STRENGTH = 10.0
"""Inverse strength of the linear model's regularisation, for rows of length 1."""

Fitted = Callable[[Sequence[Any]], tuple[Any, Any]]
"""Examples -> predictions (classes or values [N], classes [N, C], or tags) and probabilities."""


def applies(model: str, task: TaskData) -> bool:
    """Whether a model can do a task. Only baselines and probes cannot do every one."""
    if model in (TFIDF, OVERLAP):
        texts = [e for e in task.train if isinstance(e, Example)]
        return any(model == TFIDF or e.pair is not None for e in texts)
    return task.kind != "answering" or not (model == MAJORITY or model.startswith(FROZEN))


def answer(
    model: str, task: TaskData, examples: Sequence[Any], *, class_weights: str = "none"
) -> dict[str, float]:
    """Fits a baseline to training examples and scores it on the task's validation set and further
    sets. class_weights: none or balanced."""
    if task.kind == "tagging":
        fitted = _frequent_tags(examples)
    else:
        weights = None if class_weights == "none" else class_weights
        fitted = _of_texts(model, task, examples, weights)
    sets = ((task.validation, ""), *((further, f"_{name}") for name, further in task.also))
    return {
        metric + ending: value
        for held, ending in sets
        for metric, value in metrics.scores_of(task, held, *fitted(held)).items()
    }


def _frequent_tags(examples: Sequence[Sentence]) -> Fitted:
    of_word: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in examples:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            of_word[word][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in of_word.items()}
    most = sum(of_word.values(), Counter()).most_common(1)[0][0]
    return lambda held: ([tuple(best.get(w, most) for w in s.words) for s in held], None)


def _of_texts(
    model: str, task: TaskData, examples: Sequence[Example], weights: str | None
) -> Fitted:
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import Ridge

    features = {OVERLAP: _shared_words}.get(model, _nothing)
    if model == TFIDF and any(_text(e).strip() for e in examples):
        features = _tfidf(examples)
    rows, targets = features(examples), targets_of(task, examples)
    if task.kind == "regression":
        line = DummyRegressor() if features is _nothing else Ridge(1 / STRENGTH)
        line.fit(rows, targets)
        return lambda held: (line.predict(features(held)), None)
    # With several labels, each class is a classification of its own.
    single = task.kind == "classification"
    classes = len(task.labels) if single else 2
    columns = [targets] if single else targets.T
    models = [
        _logistic(rows, each, weights, learnable=features is not _nothing) for each in columns
    ]

    def fitted(held: Sequence[Example]) -> tuple[Array, Array]:
        rows, found = features(held), np.zeros((len(models), len(held), classes))
        for probabilities_NC, model in zip(found, models, strict=True):
            probabilities_NC[:, model.classes_] = model.predict_proba(rows)
        if single:
            return found[0].argmax(1), found[0]
        return (found[..., 1].T > 0.5).astype(int), found[..., 1].T

    return fitted


def _logistic(rows: Any, targets: Array, weights: str | None, *, learnable: bool) -> Any:
    """A logistic regression on the known targets; where there is nothing to learn, the shares of
    the classes."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    known = targets != UNKNOWN
    if not known.any():  # as if the class did not apply
        return DummyClassifier().fit(rows[:1], np.zeros(1, int))
    if not learnable or len(set(targets[known])) < 2:
        return DummyClassifier().fit(rows[known], targets[known])
    model = LogisticRegression(C=STRENGTH, max_iter=1000, class_weight=weights)
    return model.fit(rows[known], targets[known])


def _nothing(examples: Sequence[Example]) -> Array:
    return np.zeros((len(examples), 1))


def _tfidf(examples: Sequence[Example]) -> Callable[[Sequence[Example]], Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    features = make_union(
        TfidfVectorizer(analyzer="word", ngram_range=(1, 2), token_pattern=r"\S+"),
        TfidfVectorizer(analyzer="char", ngram_range=(1, 4), lowercase=False),
    )
    features.fit([_text(e) for e in examples])
    return lambda held: features.transform([_text(e) for e in held])


def _text(example: Example) -> str:
    return example.text if example.pair is None else f"{example.text}\n{example.pair}"


def _shared_words(examples: Sequence[Example]) -> Array:
    return np.array([[overlap(e.text, e.pair or "")] for e in examples])


def overlap(text: str, pair: str) -> float:
    """The share of the words of two texts that both have (Jaccard). Case and the form of Unicode do
    not matter. Words are separated by spaces, punctuation and symbols, so the measure does not suit
    scripts without spaces."""
    ours, theirs = (
        set("".join(map(_in_word, normalize("NFKC", t).casefold())).split()) for t in (text, pair)
    )
    return len(ours & theirs) / max(1, len(ours | theirs))


@cache
def _in_word(character: str) -> str:
    """Letters, their marks and numbers; nothing for soft hyphens and joiners, otherwise a space."""
    kind = category(character)
    return "" if kind == "Cf" else character if kind[0] in "LMN" else " "
