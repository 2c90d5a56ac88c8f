"""Rows of a report that need no encoder: the most frequent answer, and TF-IDF."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from electrify.downstream.baselines import MAJORITY, OVERLAP, TFIDF, applies, baseline_one, overlap
from electrify.downstream.examples import Example, Sentence
from electrify.downstream.finetune import finetune
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.tasks import Examples, Kind, TaskData
from electrify.errors import UserError

PLAIN = FinetuneSettings()


def task(
    kind: Kind,
    train: Examples,
    validation: Examples,
    metrics: tuple[str, ...] = ("accuracy",),
    labels: tuple[str, ...] = ("no", "yes"),
) -> TaskData:
    return TaskData("t", kind, labels, metrics, 1, train, validation)


def scores(model: str, of: TaskData, **settings: object) -> dict[str, float]:
    settings_ = FinetuneSettings(**settings) if settings else PLAIN  # type: ignore[arg-type]
    return baseline_one(model, of, seed=0, settings=settings_).scores


def texts(*labelled: tuple[str, float | tuple[int, ...]]) -> tuple[Example, ...]:
    return tuple(Example(text, None, label) for text, label in labelled)


def test_the_most_frequent_class() -> None:
    of = task(
        "classification",
        texts(("a", 1), ("b", 1), ("c", 0)),
        texts(("a", 1), ("b", 0), ("c", 0), ("d", 0)),
    )
    assert scores(MAJORITY, of) == {"accuracy": 0.25}


def test_the_most_frequent_tag_of_each_word() -> None:
    """`run` is a verb twice of three times; the new word gets N, the most frequent tag of all."""
    train = (
        Sentence(("run", "dog", "run"), ("V", "N", "V")),
        Sentence(("run", "cat", "tree"), ("N", "N", "N")),
    )
    held = (Sentence(("run", "cat", "new", "odd"), ("V", "N", "N", "V")),)
    of = task("tagging", train, held, labels=("N", "V"))
    assert scores(MAJORITY, of) == {"accuracy": 0.75}


def test_the_mean_of_a_regression_is_worth_nothing() -> None:
    rows = texts(("a", 1.0), ("b", 2.0), ("c", 6.0))
    of = task("regression", rows, rows, ("spearman",), ())
    assert scores(MAJORITY, of) == {"spearman": 0.0}
    assert scores(TFIDF, of)["spearman"] == pytest.approx(1.0)


def test_several_labels() -> None:
    """Class 0 holds for most; class 1 always, so that there is nothing to learn of it; class 2 for
    those with `x`."""
    train = 5 * texts(("x a", (0, 1, 2)), ("x b", (0, 1, 2)), ("c c", (0, 1)), ("d d", (1,)))
    held = texts(("x a x", (0, 1, 2)), ("d d d", (1,)))
    labels = ("a", "b", "c")
    of = task("multilabel", train, held, ("micro_f1",), labels)
    # Classes 0 and 1 for both (a half is not most, so not class 2): 3 right of 4, and 4 wanted.
    assert scores(MAJORITY, of)["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert scores(TFIDF, of)["micro_f1"] == 1.0


def test_words_that_tell_the_class_are_found_by_tfidf_only() -> None:
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(40)]
    rows = texts(*((f"{n} {'Cl' if k % 2 else 'C l'}", k % 2) for k, n in enumerate(noise)))
    of = task("classification", rows[:30], rows[30:])
    assert scores(MAJORITY, of) == {"accuracy": 0.5}
    assert scores(TFIDF, of) == {"accuracy": 1.0}


def pairs(*labelled: tuple[str, str, float]) -> tuple[Example, ...]:
    return tuple(Example(text, pair, label) for text, pair, label in labelled)


def test_words_in_common() -> None:
    """By hand: a shares 1 word of 3, b none of 4, c both of 2, whatever their case; the texts of
    the held-out pairs are new, so that nothing else could tell them apart."""
    train = pairs(("x y", "X z", 2.0), ("x y", "u v", 0.0), ("x y", "y x", 5.0))
    held = pairs(("p q", "p r", 1.0), ("p q", "s t", 0.0), ("p q", "Q, p!", 4.0))
    of = task("regression", train, held, ("spearman",), ())
    assert applies(OVERLAP, of)
    assert scores(OVERLAP, of)["spearman"] == pytest.approx(1.0)
    assert abs(scores(TFIDF, of)["spearman"]) < 1
    second = pairs(*(("", e.pair or "", e.label) for e in train * 9))
    of = task("regression", second, second[:3], ("spearman",), ())
    assert scores(TFIDF, of)["spearman"] == pytest.approx(1.0), "only the second texts differ"
    of = task("regression", train, held, ("spearman",), ())
    assert [overlap(e.text, e.pair or "") for e in train] == [1 / 3, 0.0, 1.0]
    assert overlap("caf\u00e9 stra\u00dfe", "CAFE\u0301, STRASSE!") == 1.0, "forms of one word"
    assert overlap("हिन्दी में", "हानि मे") == 0.0, "vowel signs belong to the word"
    assert overlap("\u00adhy\u00adphen", "hyphen") == 1.0, "what is not seen"
    assert overlap("don't", "don’t") == 1.0
    same = [(f"a{k} b{k}", f"a{k} b{k}" if k % 2 else f"c{k} d{k}", k % 2) for k in range(40)]
    of = task("classification", pairs(*same[:30]), pairs(*same[30:]))
    assert scores(OVERLAP, of) == {"accuracy": 1.0}
    assert not applies(OVERLAP, task("classification", texts(("a", 1)), texts(("b", 0))))


def test_the_examples_are_those_of_the_encoders() -> None:
    rows = texts(*((f"w{k}", k % 2) for k in range(40)))
    of = task("classification", rows, rows)
    found = baseline_one(TFIDF, of, seed=3, settings=FinetuneSettings(max_train_samples=10))
    assert found.train_examples == 10


def test_what_they_can_do() -> None:
    tags = (Sentence(("a",), ("N",)),)
    tagging = task("tagging", tags, tags, labels=("N", "V"))
    assert (applies(MAJORITY, tagging), applies(TFIDF, tagging)) == (True, False)


def test_rows_of_a_report(zoo: Path, reviews: tuple[str, str], tmp_path: Path) -> None:
    """Beside the models, with every seed; the same command leaves them as they are."""
    options = FinetuneConfig(
        models=(str(zoo / "electra"),),
        output_dir=str(tmp_path / "out"),
        train_file=reviews[0],
        validation_file=reviews[1],
        seeds=2,
        baselines=True,
        settings=FinetuneSettings(num_train_epochs=1, max_seq_length=16, bf16="false"),
    )
    report = finetune(options)
    found = [(r["model"], r["seed"]) for r in report.records if r["model"].startswith("baseline:")]
    assert found == [(MAJORITY, 0), (MAJORITY, 1), (TFIDF, 0), (TFIDF, 1)]
    text = (tmp_path / "out" / "report.md").read_text()
    assert "baseline:majority" in text
    assert "baseline:tfidf" in text
    before = (tmp_path / "out" / "scores.jsonl").read_bytes()
    finetune(options)
    assert (tmp_path / "out" / "scores.jsonl").read_bytes() == before


def test_without_scikit_learn_it_is_said_at_once(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Correlations are of scipy; the baselines of a regression are of scikit-learn."""
    for name in ("sklearn", "sklearn.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "values.csv"
    path.write_text("text,label\n" + "".join(f"film {k},{k / 7}\n" for k in range(20)))
    options = FinetuneConfig(
        models=(str(zoo / "electra"),),
        output_dir=str(tmp_path / "out"),
        train_file=str(path),
        validation_file=str(path),
        baselines=True,
    )
    with pytest.raises(UserError, match="sklearn is not installed"):
        finetune(options)
    assert not (tmp_path / "out").exists()


def test_questions_have_no_baseline(tmp_path: Path) -> None:
    from electrify.downstream.examples import Answer, Question

    one = (Question("1", "who?", "me", (Answer("me", 0),)),)
    of = task("answering", one, one, ("exact", "f1"), ())
    options = FinetuneConfig(
        models=("m",), output_dir=str(tmp_path / "out"), task=("squad1",), baselines=True
    )
    with pytest.raises(UserError, match="texts and tagging"):
        finetune(options, [of])
