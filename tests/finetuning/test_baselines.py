"""Baselines: the most frequent answer, TF-IDF and words in common."""

from __future__ import annotations

import numpy as np
import pytest

from electrify.finetuning.baselines import MAJORITY, OVERLAP, TFIDF, answer, applies
from electrify.finetuning.tasks import Example, Examples, Kind, Sentence, TaskData


def task(
    kind: Kind,
    train: Examples,
    validation: Examples,
    metrics: tuple[str, ...] = ("accuracy",),
    labels: tuple[str, ...] = ("no", "yes"),
) -> TaskData:
    return TaskData(
        name="t", kind=kind, labels=labels, metrics=metrics, epochs=1, train=train,
        validation=validation,
    )  # fmt: skip


def scores(model: str, of: TaskData) -> dict[str, float]:
    return answer(model, of, of.train)


def texts(*labelled: tuple[str, float | tuple[int, ...]]) -> tuple[Example, ...]:
    return tuple(Example(text, None, label) for text, label in labelled)


def pairs(*labelled: tuple[str, str, float]) -> tuple[Example, ...]:
    return tuple(Example(text, pair, label) for text, pair, label in labelled)


def test_the_most_frequent_tag_of_each_word() -> None:
    """`run` is a verb twice of three times; the new word gets N, the most frequent tag of all."""
    train = (
        Sentence(("run", "dog", "run"), ("V", "N", "V")),
        Sentence(("run", "cat", "tree"), ("N", "N", "N")),
    )
    held = (Sentence(("run", "cat", "new", "odd"), ("V", "N", "N", "V")),)
    of = task("tagging", train, held, labels=("N", "V"))
    assert scores(MAJORITY, of) == {"accuracy": 0.75}
    assert (applies(MAJORITY, of), applies(TFIDF, of)) == (True, False)


def test_several_labels() -> None:
    """Class 0 applies to most; class 1 always, so that there is nothing to learn; class 2 to texts
    with `x`. Nobody knows whether class 2 applies to the text without words."""
    train = 5 * texts(("x a", (0, 1, 2)), ("x b", (0, 1, 2)), ("c c", (0, 1)), ("d d", (1,)))
    held = texts(("x a x", (0, 1, 2)), ("d d d", (1,)))
    unknown = (Example("x", None, (0, 1), unknown=(2,)),)
    of = task("multilabel", train + unknown, held, ("micro_f1", "roc_auc"), ("a", "b", "c"))
    # Classes 0 and 1 for both (half is not most, so not class 2): 3 right of 4, and 4 wanted.
    assert scores(MAJORITY, of)["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert scores(TFIDF, of) == {"micro_f1": 1.0, "roc_auc": 1.0}


def test_words_that_tell_the_class_are_found_by_tfidf_only() -> None:
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(40)]
    rows = texts(*((f"{n} {'Cl' if k % 2 else 'C l'}", k % 2) for k, n in enumerate(noise)))
    of = task("classification", rows[:30], rows[30:])
    assert scores(MAJORITY, of) == {"accuracy": 0.5}
    assert scores(TFIDF, of) == {"accuracy": 1.0}


def test_pairs_by_their_words_in_common() -> None:
    """By hand: a shares 1 word of 3, b none of 4, c both of 2. The held-out pairs are of new words,
    so that nothing else could tell them apart."""
    train = pairs(("x y", "X z", 2.0), ("x y", "u v", 0.0), ("x y", "y x", 5.0))
    held = pairs(("p q", "p r", 1.0), ("p q", "s t", 0.0), ("p q", "Q, p!", 4.0))
    of = task("regression", train, held, ("spearman",), ())
    assert applies(OVERLAP, of)
    assert scores(OVERLAP, of)["spearman"] == pytest.approx(1.0)
    assert abs(scores(TFIDF, of)["spearman"]) < 1
    second = pairs(*(("", e.pair or "", e.label) for e in train * 9))  # type: ignore[misc]
    of = task("regression", second, second[:3], ("spearman",), ())
    assert scores(TFIDF, of)["spearman"] == pytest.approx(1.0), "only the second texts differ"
    same = [(f"a{k} b{k}", f"a{k} b{k}" if k % 2 else f"c{k} d{k}", k % 2) for k in range(40)]
    of = task("classification", pairs(*same[:30]), pairs(*same[30:]))
    assert scores(OVERLAP, of) == {"accuracy": 1.0}
    assert not applies(OVERLAP, task("classification", texts(("a", 1)), texts(("b", 0))))
