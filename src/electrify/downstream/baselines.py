"""What needs no encoder: rows of a report that show what the other rows are worth.

majority: the most frequent class; in regression the mean; in tagging the tag that a word had most
often, and for new words the most frequent one of all. tfidf: TF-IDF of words, pairs of words and
pieces of up to four characters, and a linear model (for texts only). overlap: the share of words
that two texts have in common, and a linear model (for pairs only): an encoder that does not surpass
it may not understand either text.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from unicodedata import category, normalize

import numpy as np

from . import metrics
from .epochs import training_examples
from .examples import Example, Sentence
from .one_run import Outcome
from .options import FinetuneSettings
from .probability_metrics import UNKNOWN
from .spans import span_scores
from .targets import several
from .tasks import TaskData

BASELINE = "baseline:"
MAJORITY = f"{BASELINE}majority"
TFIDF = f"{BASELINE}tfidf"
OVERLAP = f"{BASELINE}overlap"
# Inverse strength of the linear model's regularisation, for rows of length 1.
STRENGTH = 10.0
ITERATIONS = 1000


@dataclass(frozen=True)
class Answers:
    """What a baseline says about some examples. choices: classes or values [N], rows of 0 and 1
    [N, C], or the tags of sentences; probabilities: of the classes [N, C], None if there are
    none."""

    choices: Any
    probabilities: Any = None


Answer = Callable[[Sequence[Any]], Answers]
Features = Callable[[Sequence[Example]], Any]  # -> rows of numbers, one for each example


def is_baseline(model: str) -> bool:
    """Whether a name is that of a row without an encoder."""
    return model.startswith(BASELINE)


def applies(model: str, task: TaskData) -> bool:
    """Whether a model can do a task; only a baseline cannot do every one."""
    if model in (TFIDF, OVERLAP):
        texts = [e for e in task.train if isinstance(e, Example)]
        return bool(texts if model == TFIDF else [e for e in texts if e.pair is not None])
    return model != MAJORITY or task.kind != "answering"


def baseline_hashes(model: str) -> dict[str, str]:
    """What the scores of a baseline depend on besides the examples."""
    text = f"{model} {version('scikit-learn')}"
    return {"weights": hashlib.sha256(text.encode()).hexdigest()[:16], "tokenizer": "none"}


def baseline_one(model: str, task: TaskData, *, seed: int, settings: FinetuneSettings) -> Outcome:
    """Fits a baseline to the training examples that an encoder with this seed would get, and
    scores it on the validation examples and on further sets."""
    began = time.monotonic()
    examples = training_examples(task, seed=seed, settings=settings)
    answer = _fitted(model, task, examples, weights=settings.class_weights)
    scores = _scores(task, task.validation, answer)
    for name, further in task.also:
        scores |= {f"{k}_{name}": v for k, v in _scores(task, further, answer).items()}
    return Outcome(scores, (), len(examples), 0, time.monotonic() - began)


def _scores(task: TaskData, examples: Sequence[Any], answer: Answer) -> dict[str, float]:
    found = answer(examples)
    if task.kind == "tagging":
        scores = span_scores([s.tags for s in examples], found.choices)
        return {name: scores[name] for name in task.metrics}
    wanted = _targets(task, examples)
    return metrics.score(task.metrics, wanted, found.choices, found.probabilities)


def _targets(task: TaskData, examples: Sequence[Example]) -> np.ndarray[Any, Any]:
    """[examples] class numbers or values; [examples, classes] of 1, 0 and UNKNOWN for several
    labels."""
    if task.kind != "multilabel":
        return np.array([e.label for e in examples])
    found = several(examples, classes=len(task.labels)).nan_to_num(UNKNOWN)
    return found.numpy().astype(np.int64)


def _fitted(model: str, task: TaskData, examples: Sequence[Any], *, weights: str) -> Answer:
    if task.kind == "tagging":
        return _frequent_tags(examples)
    targets = _targets(task, examples)
    told_apart = len(np.unique(targets, axis=0)) > 1 and any(_text(e).strip() for e in examples)
    if model != MAJORITY and told_apart:
        features = _shared_words if model == OVERLAP else _pieces(examples)
        return _linear(task, features, examples, targets, weights=weights)
    if task.kind == "regression":
        return lambda held: Answers(np.repeat(targets.mean(), len(held)))
    if task.kind == "multilabel":
        shares_C = np.array([_share(column) for column in targets.T])
    else:
        shares_C = np.bincount(targets, minlength=len(task.labels)) / len(targets)
    return lambda held: _chosen(task, np.repeat(shares_C[None], len(held), 0))


def _share(column: Any) -> float:
    """How often a class applies, among the examples where that is known."""
    known = column[column != UNKNOWN]
    return float(known.mean()) if len(known) else 0.0


def _chosen(task: TaskData, probabilities_NC: Any) -> Answers:
    """The choices that follow from these probabilities."""
    if task.kind == "multilabel":
        return Answers((probabilities_NC > 0.5).astype(np.int64), probabilities_NC)
    return Answers(probabilities_NC.argmax(1), probabilities_NC)


def _frequent_tags(examples: Sequence[Sentence]) -> Answer:
    of_word: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in examples:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            of_word[word][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in of_word.items()}
    most = sum(of_word.values(), Counter()).most_common(1)[0][0]
    return lambda held: Answers([tuple(best.get(w, most) for w in s.words) for s in held])


class _Between(dict[int, int | None]):
    """Character -> itself in a word (letters, their marks, numbers), nothing if it is invisible
    (soft hyphens, joiners), otherwise a space."""

    def __missing__(self, code: int) -> int | None:
        kind = category(chr(code))
        self[code] = None if kind == "Cf" else code if kind[0] in "LMN" else ord(" ")
        return self[code]


_BETWEEN = _Between()


def overlap(text: str, pair: str) -> float:
    """The share of the words of two texts that both have (Jaccard). Case and the form of Unicode do
    not matter; words are what lies between spaces, punctuation and symbols, so that scripts without
    spaces need another measure."""
    ours, theirs = (
        set(normalize("NFKC", t).casefold().translate(_BETWEEN).split()) for t in (text, pair)
    )
    return len(ours & theirs) / max(1, len(ours | theirs))


def _shared_words(examples: Sequence[Example]) -> Any:
    """[examples, 1]."""
    return np.array([[overlap(e.text, e.pair or "")] for e in examples])


def _pieces(examples: Sequence[Example]) -> Features:
    """TF-IDF, with the frequencies of these examples."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    features = make_union(
        TfidfVectorizer(analyzer="word", ngram_range=(1, 2), token_pattern=r"\S+"),
        TfidfVectorizer(analyzer="char", ngram_range=(1, 4), lowercase=False),
    )
    features.fit([_text(e) for e in examples])
    return lambda held: features.transform([_text(e) for e in held])


def _linear(
    task: TaskData,
    features: Features,
    examples: Sequence[Example],
    targets: Any,
    *,
    weights: str,
) -> Answer:
    from sklearn.linear_model import Ridge

    rows = features(examples)
    if task.kind == "regression":
        fitted = Ridge(1 / STRENGTH).fit(rows, targets)
        return lambda held: Answers(fitted.predict(features(held)))
    # With several labels, each class is a question of its own.
    several_labels = task.kind == "multilabel"
    columns = [_logistic(rows, c, weights) for c in (targets.T if several_labels else [targets])]

    def answer(held: Sequence[Example]) -> Answers:
        found = features(held)
        if several_labels:
            return _chosen(task, np.stack([column(found, 2)[:, 1] for column in columns], 1))
        return _chosen(task, columns[0](found, len(task.labels)))

    return answer


def _logistic(rows: Any, targets: Any, weights: str) -> Callable[[Any, int], Any]:
    """A logistic regression of one question: rows of features, number of classes -> probabilities
    [N, C]. It needs two different answers; without them the share decides."""
    from sklearn.linear_model import LogisticRegression

    known = targets != UNKNOWN
    if len(np.unique(targets[known])) < 2:
        share = _share(targets)
        return lambda found, classes: np.repeat([[1 - share, share]], found.shape[0], 0)
    weight = None if weights == "none" else weights
    model = LogisticRegression(C=STRENGTH, max_iter=ITERATIONS, class_weight=weight)
    model.fit(rows[known], targets[known])

    def probabilities(found: Any, classes: int) -> Any:
        found_NC = np.zeros((found.shape[0], classes))
        found_NC[:, model.classes_] = model.predict_proba(found)
        return found_NC

    return probabilities


def _text(example: Example) -> str:
    return example.text if example.pair is None else f"{example.text}\n{example.pair}"
