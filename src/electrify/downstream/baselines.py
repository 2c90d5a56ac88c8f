"""What needs no encoder: rows of a report that show what the other rows are worth.

majority: the most frequent class; in regression the mean; in tagging the tag that a word had most
often, and for new words the most frequent one of all. tfidf: TF-IDF of words, pairs of words and
pieces of up to four characters, and a linear model (for texts only).
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from ..config.finetune_settings import FinetuneSettings
from . import metrics
from .examples import Example, Sentence
from .one_run import Outcome, training_examples
from .spans import span_scores
from .tasks import TaskData

BASELINE = "baseline:"
MAJORITY = f"{BASELINE}majority"
TFIDF = f"{BASELINE}tfidf"
# Inverse strength of the linear model's regularisation, for rows of length 1.
STRENGTH = 10.0
ITERATIONS = 1000

Answer = Callable[[Sequence[Any]], Any]


def is_baseline(model: str) -> bool:
    """Whether a name stands for a row without an encoder."""
    return model.startswith(BASELINE)


def applies(model: str, task: TaskData) -> bool:
    """Whether a model can do a task; only a baseline cannot do every one."""
    if model == TFIDF:
        return task.kind not in ("tagging", "answering")
    return model != MAJORITY or task.kind != "answering"


def baseline_hashes(model: str) -> dict[str, str]:
    """What the scores of a baseline depend on beside the examples."""
    text = f"{model} {version('scikit-learn')}"
    return {"weights": hashlib.sha256(text.encode()).hexdigest()[:16], "tokenizer": "none"}


def baseline_one(model: str, task: TaskData, *, seed: int, settings: FinetuneSettings) -> Outcome:
    """Fits a baseline to the training examples that an encoder with this seed would get, and
    scores it on the validation examples and on further sets."""
    began = time.monotonic()
    examples = training_examples(task, seed=seed, settings=settings)
    answer = _fitted(model, task, examples)
    scores = _scores(task, task.validation, answer)
    for name, further in task.also:
        scores |= {f"{k}_{name}": v for k, v in _scores(task, further, answer).items()}
    return Outcome(scores, (), len(examples), 0, time.monotonic() - began)


def _scores(task: TaskData, examples: Sequence[Any], answer: Answer) -> dict[str, float]:
    found = answer(examples)
    if task.kind == "tagging":
        scores = span_scores([s.tags for s in examples], found)
        return {name: scores[name] for name in task.metrics}
    return metrics.score(task.metrics, _targets(task, examples), found)


def _targets(task: TaskData, examples: Sequence[Example]) -> np.ndarray[Any, Any]:
    """[examples] class numbers or values; [examples, classes] of 0 and 1 for several labels."""
    if task.kind != "multilabel":
        return np.array([e.label for e in examples])
    rows = np.zeros((len(examples), len(task.labels)), np.int64)
    for row, example in zip(rows, examples, strict=True):
        row[list(example.label)] = 1  # type: ignore[arg-type]
    return rows


def _fitted(model: str, task: TaskData, examples: Sequence[Any]) -> Answer:
    if task.kind == "tagging":
        return _frequent_tags(examples)
    targets = _targets(task, examples)
    told_apart = len(np.unique(targets, axis=0)) > 1 and any(e.text.strip() for e in examples)
    if model == TFIDF and told_apart:
        return _linear(task, examples, targets)
    match task.kind:
        case "regression":
            value = targets.mean()
        case "multilabel":
            value = (targets.mean(0) > 0.5).astype(np.int64)
        case _:
            value = np.bincount(targets).argmax()
    return lambda held: np.repeat(np.asarray(value)[None], len(held), 0)


def _frequent_tags(examples: Sequence[Sentence]) -> Answer:
    of_word: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in examples:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            of_word[word][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in of_word.items()}
    most = sum(of_word.values(), Counter()).most_common(1)[0][0]
    return lambda held: [tuple(best.get(word, most) for word in s.words) for s in held]


def _linear(task: TaskData, examples: Sequence[Example], targets: Any) -> Answer:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_union

    features = make_union(
        TfidfVectorizer(analyzer="word", ngram_range=(1, 2), token_pattern=r"\S+"),
        TfidfVectorizer(analyzer="char", ngram_range=(1, 4), lowercase=False),
    )
    rows = features.fit_transform([_text(e) for e in examples])
    # Each class of several is a question of its own, which may have one answer only.
    columns = targets.T if task.kind == "multilabel" else [targets]
    fitted: list[Any] = []
    for column in columns:
        if len(np.unique(column)) == 1:
            fitted.append(column[0])
        elif task.kind == "regression":
            fitted.append(Ridge(1 / STRENGTH).fit(rows, column))
        else:
            fitted.append(LogisticRegression(C=STRENGTH, max_iter=ITERATIONS).fit(rows, column))

    def answer(held: Sequence[Example]) -> Any:
        given = features.transform([_text(e) for e in held])
        found = [
            one.predict(given) if hasattr(one, "predict") else np.repeat(one, len(held))
            for one in fitted
        ]
        return np.stack(found, 1) if task.kind == "multilabel" else found[0]

    return answer


def _text(example: Example) -> str:
    return example.text if example.pair is None else f"{example.text}\n{example.pair}"
