"""Metrics of classes, values, probabilities and answers: by hand, by counting, and as SQuAD's
official rule in plain loops scores them; and what answers without a network score."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import task_of

from electrify.finetuning import metrics
from electrify.finetuning.baselines import MAJORITY, OVERLAP, TFIDF, answer, applies
from electrify.finetuning.metrics import UNKNOWN, exact_match, normalize, score_answers, word_f1
from electrify.finetuning.tasks import Answer, Example, Question, Sentence, TaskData


def of(name: str, labels: Any, predictions: Any) -> float:
    return metrics.score([name], labels, predictions)[name]


def sure(name: str, labels: Any, probabilities: Any) -> float:
    return metrics.score([name], labels, None, probabilities)[name]


@pytest.mark.parametrize(
    ("name", "labels", "predictions", "wanted"),
    [
        # tp 2, tn 1, fp 1, fn 0: (2*1 - 1*0) / sqrt(3*2*2*1)
        ("matthews", [1, 1, 0, 0], [1, 1, 1, 0], 2 / math.sqrt(12)),
        ("f1", [1, 1, 0, 0], [1, 1, 1, 0], 0.8),
        ("accuracy", [1, 1, 0, 0], [1, 1, 1, 0], 0.75),
        ("macro_f1", [1, 1, 0, 0], [1, 1, 1, 0], (0.8 + 2 / 3) / 2),
        ("micro_f1", [0, 0, 1, 2, 2, 2], [0, 0, 2, 2, 2, 2], 5 / 6),
        ("balanced_accuracy", [0, 0, 0, 1], [0, 0, 2, 1], (2 / 3 + 1) / 2),
        ("pearson", [1, 2, 3], [1, 2, 4], 3 / math.sqrt(2 * (42 / 9))),
        ("spearman", [1, 2, 3, 4], [10, 20, 40, 30], 1 - 6 * 2 / (4 * 15)),
        ("spearman", [1], [1], 0.0),
        ("pearson", [1, 1, 1], [0, 1, 1], 0.0),
        ("matthews", [1, 1], [1, 1], 0.0),
    ],
)
def test_by_hand(name: str, labels: Any, predictions: Any, wanted: float) -> None:
    assert of(name, labels, predictions) == pytest.approx(wanted)


rows = st.integers(1, 4).flatmap(
    lambda c: st.lists(
        st.tuples(*[st.tuples(st.integers(0, 1), st.integers(0, 1))] * c), min_size=1, max_size=20
    )
)


@given(rows)
def test_several_labels_by_counting(pairs: list[tuple[tuple[int, int], ...]]) -> None:
    y, p = (np.array([[cell[k] for cell in row] for row in pairs]) for k in (0, 1))
    right, both = (y & p).sum(0), y.sum(0) + p.sum(0)
    micro = 2 * right.sum() / max(1, both.sum())
    assert of("micro_f1", y, p) == pytest.approx(micro, abs=1e-12)
    macro = np.mean(2 * right / np.maximum(1, both))
    assert of("macro_f1", y, p) == pytest.approx(macro, abs=1e-12)
    assert of("accuracy", y, p) == pytest.approx((y == p).all(1).mean())


def two(*second: float) -> np.ndarray:
    """Probabilities of two classes, from those of the second."""
    return np.array([[1 - p, p] for p in second])


def test_areas_by_hand() -> None:
    # Of four pairs of an example of each class, three are in the right order.
    assert sure("roc_auc", [0, 0, 1, 1], two(0.1, 0.4, 0.35, 0.8)) == pytest.approx(3 / 4)
    # The first of the second class has precision 1, the second one 2 / 3, each half of the recall.
    assert sure("pr_auc", [0, 0, 1, 1], two(0.1, 0.4, 0.35, 0.8)) == pytest.approx((1 + 2 / 3) / 2)


@given(st.lists(st.tuples(st.integers(0, 2), *[st.integers(1, 9)] * 3), min_size=3, max_size=30))
def test_the_area_counts_pairs_in_order(rows: list[tuple[int, ...]]) -> None:
    labels = np.array([row[0] for row in rows])
    given_NC = np.array([row[1:] for row in rows], float)
    given_NC /= given_NC.sum(1, keepdims=True)
    areas = []
    for k in range(3):
        yes, no = given_NC[labels == k, k], given_NC[labels != k, k]
        if len(yes) and len(no):
            pairs = [(a > b) + (a == b) / 2 for a in yes for b in no]
            areas.append(sum(pairs) / len(pairs))
    found = sure("roc_auc", labels, given_NC)
    assert math.isnan(found) if not areas else found == pytest.approx(np.mean(areas))


def test_calibration_by_hand() -> None:
    """Three examples in the bin that ends at 0.6, two of them right; one in the last bin, wrong."""
    # 3 / 4 of |0.6 - 2 / 3|, and 1 / 4 of |1 - 0|.
    wanted = 0.75 * (2 / 3 - 0.6) + 0.25
    assert sure("ece", [1, 1, 0, 0], two(0.6, 0.6, 0.6, 1.0)) == pytest.approx(wanted)
    assert sure("ece", [1, 0], two(1.0, 0.0)) == 0.0


def test_unknown_labels_are_not_scored() -> None:
    examples = [
        Example("", None, (0,), unknown=(1,)),
        Example("", None, (1,)),
        Example("", None, (), unknown=(0,)),
        Example("", None, (0, 1)),
    ]
    labels = metrics.several(examples, 2)
    assert labels.tolist() == [[1, UNKNOWN], [0, 1], [UNKNOWN, 0], [1, 1]]
    predictions = np.array([[1, 0], [0, 1], [1, 1], [0, 1]])
    given = np.array([[0.9, 0.2], [0.2, 0.7], [0.8, 0.6], [0.1, 0.9]])
    names = ["accuracy", "micro_f1", "macro_f1", "roc_auc"]
    found = metrics.score(names, labels, predictions, given)
    # Known: 1 0 1 and 1 0 1; predicted: 1 0 0 and 1 1 1. Three of four are found, one is wrong.
    micro, macro = 2 * 3 / (4 + 4), (2 / 3 + 4 / 5) / 2
    assert list(found.values()) == pytest.approx([0.5, micro, macro, (1 / 2 + 1) / 2])
    changed = np.where(labels == UNKNOWN, 1 - predictions, predictions)
    assert metrics.score(names, labels, changed, given) == found


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
    of = task_of("tagging", train, validation=held, metrics=("accuracy",))
    assert scores(MAJORITY, of) == {"accuracy": 0.75}
    assert (applies(MAJORITY, of), applies(TFIDF, of)) == (True, False)


def test_several_labels() -> None:
    """Class 0 applies to most; class 1 always, so that there is nothing to learn; class 2 to texts
    with `x`. Nobody knows whether class 2 applies to the text without words."""
    train = 5 * texts(("x a", (0, 1, 2)), ("x b", (0, 1, 2)), ("c c", (0, 1)), ("d d", (1,)))
    held = texts(("x a x", (0, 1, 2)), ("d d d", (1,)))
    unknown = (Example("x", None, (0, 1), unknown=(2,)),)
    of = task_of("multilabel", train + unknown, validation=held, metrics=("micro_f1", "roc_auc"))
    # Classes 0 and 1 for both (half is not most, so not class 2): 3 right of 4, and 4 wanted.
    assert scores(MAJORITY, of)["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert scores(TFIDF, of) == {"micro_f1": 1.0, "roc_auc": 1.0}


def test_words_that_tell_the_class_are_found_by_tfidf_only() -> None:
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(40)]
    rows = texts(*((f"{n} {'Cl' if k % 2 else 'C l'}", k % 2) for k, n in enumerate(noise)))
    of = task_of("classification", rows[:30], validation=rows[30:])
    assert scores(MAJORITY, of) == {"accuracy": 0.5}
    assert scores(TFIDF, of) == {"accuracy": 1.0}


def test_pairs_by_their_words_in_common() -> None:
    """By hand: a shares 1 word of 3, b none of 4, c both of 2. The held-out pairs are of new words,
    so that nothing else could tell them apart."""
    train = pairs(("x y", "X z", 2.0), ("x y", "u v", 0.0), ("x y", "y x", 5.0))
    held = pairs(("p q", "p r", 1.0), ("p q", "s t", 0.0), ("p q", "Q, p!", 4.0))
    of = task_of("regression", train, validation=held, metrics=("spearman",))
    assert applies(OVERLAP, of)
    assert scores(OVERLAP, of)["spearman"] == pytest.approx(1.0)
    assert abs(scores(TFIDF, of)["spearman"]) < 1
    second = pairs(*(("", e.pair or "", e.label) for e in train * 9))  # type: ignore[misc]
    of = task_of("regression", second, validation=second[:3], metrics=("spearman",))
    assert scores(TFIDF, of)["spearman"] == pytest.approx(1.0), "only the second texts differ"
    same = [(f"a{k} b{k}", f"a{k} b{k}" if k % 2 else f"c{k} d{k}", k % 2) for k in range(40)]
    of = task_of("classification", pairs(*same[:30]), validation=pairs(*same[30:]))
    assert scores(OVERLAP, of) == {"accuracy": 1.0}
    assert not applies(OVERLAP, task_of("classification", texts(("a", 1))))


PIECES = [
    "a", "an", "the", "The", "A", "THE", "cat", "Cat", "cats", "sat", "1,000", "1000", "U.S.", "us",
    ".", "...", "!?", "_", "a_b", "_the_",
    "the-cat", "the'", "\u2019", "\uff0c", "\u3002", "\uff34\uff28\uff25", "\u00e7a", "a\u0301",
    "the\u0308", "\u0301", "\u0130", "\u00df",
    "\u4e2d", "\u00bd", "\u200b", "\u0e17\u0e35\u0e48",
]  # fmt: skip
GAPS = [" ", " ", "", "  ", "\t", "\n", "\u00a0", "\u2028", "\u3000"]
ANSWERS = st.one_of(
    st.sampled_from(["", " ", "the", "A an the", "...", "\uff01"]),
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(GAPS)), max_size=6).map(
        lambda parts: "".join(a + b for a, b in parts)
    ),
    st.lists(st.sampled_from(["cat", "sat", "the"]), min_size=1, max_size=6).map(" ".join),
    st.text(max_size=12),
)


def plain_words(text: str) -> list[str]:
    """The rule in loops: lower case; drop ASCII punctuation; blank out words that are articles, a
    word being a longest run of alphanumerics."""
    kept = [c for c in text.lower() if not (33 <= ord(c) <= 126 and not c.isalnum())]
    out, run = "", ""
    for c in [*kept, None]:
        if c is not None and c.isalnum():
            run += c
        else:
            out += (" " if run in ("a", "an", "the") else run) + (c or "")
            run = ""
    words, word = [], ""
    for c in [*out, " "]:
        if not c.isspace():
            word += c
        elif word:
            words.append(word)
            word = ""
    return words


def plain_f1(gold: str, predicted: str) -> float:
    wanted, given = plain_words(gold), plain_words(predicted)
    left, same = list(wanted), 0
    for word in given:
        if word in left:
            left.remove(word)
            same += 1
    if not wanted or not given:
        return 1.0 if not wanted and not given else 0.0
    precision, recall = same / len(given), same / len(wanted)
    return 2 * precision * recall / (precision + recall) if same else 0.0


def asked(*golds: str) -> Question:
    return Question("", "?", " ".join(golds) or "x", tuple(Answer(g, 0) for g in golds))


def test_hand_computed_scores_of_1_1() -> None:
    questions = [asked("Denver Broncos", "the Broncos"), asked("24 to 10"), asked("gold", "gold")]
    scores = score_answers(questions, ["Broncos", "24", ""])
    assert scores == {"exact": pytest.approx(1 / 3), "f1": pytest.approx((1 + 0.5 + 0) / 3)}
    # Where all that is gold normalises to nothing. The script of 1.1 gives 1 and 0, twice:
    assert score_answers([asked("the", "cat")], ["the"]) == {"exact": 0, "f1": 0}
    assert score_answers([asked("the", "!")], ["an"]) == {"exact": 1, "f1": 1}


MIXED = [asked("Paris"), asked(), asked("the river Seine"), asked(), asked()]
SAID = ["Paris", "Lyon", "Seine", "", "Nice"]


def test_hand_computed_scores_of_2_0() -> None:
    scores = score_answers(MIXED, SAID, [-3, 1, -1, 5, 0])
    assert scores == {
        "exact": 2 / 5,  # the first and the fourth
        "f1": pytest.approx((1 + 2 / 3 + 1) / 5),
        "has_answer_exact": 1 / 2,
        "has_answer_f1": pytest.approx((1 + 2 / 3) / 2),
        "no_answer_exact": pytest.approx(1 / 3),
        "best_exact": 4 / 5,  # the first alone is answered
        "best_exact_threshold": -3,
        "best_f1": pytest.approx((3 + 1 + 2 / 3) / 5),  # the first and the third
        "best_f1_threshold": -1,
    }
    assert list(score_answers(MIXED, SAID)) == list(scores)[:5]
    # Two with equal scores count one by one, in their order; to answer none has the threshold 0.
    tied = score_answers([asked("cat"), asked()], ["cat", "cat"], [0.5, 0.5])
    assert (tied["best_exact"], tied["best_exact_threshold"]) == (1.0, 0.5)
    none = score_answers([asked(), asked("cat")], ["cat", "dog"], [-1.0, 2.0])
    assert (none["best_f1"], none["best_f1_threshold"]) == (0.5, 0.0)


@given(ANSWERS, ANSWERS)
def test_two_texts_score_as_the_rule_in_loops(gold: str, predicted: str) -> None:
    assert normalize(gold) == " ".join(plain_words(gold))
    assert exact_match(gold, predicted) == (plain_words(gold) == plain_words(predicted))
    assert word_f1(gold, predicted) == pytest.approx(plain_f1(gold, predicted))
    assert word_f1(gold, predicted) == pytest.approx(word_f1(predicted, gold))
    assert exact_match(gold, predicted) <= word_f1(gold, predicted) <= 1
    assert word_f1(gold, gold) == exact_match(gold, gold) == 1
