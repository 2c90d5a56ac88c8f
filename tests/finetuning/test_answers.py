"""Answers of questions: by hand, and as SQuAD's official rule in plain loops scores them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.finetuning.metrics import exact_match, normalize, score_answers, word_f1
from electrify.finetuning.tasks import Answer, Question

PIECES = [
    "a", "an", "the", "The", "A", "THE", "cat", "Cat", "cats", "sat", "1,000", "1000", "U.S.", "us",
    ".", "...", "!?", "_", "a_b", "_the_",
    "the-cat", "the'", "\u2019", "\uff0c", "\u3002", "\uff34\uff28\uff25", "\u00e7a", "a\u0301",
    "the\u0308", "\u0301", "\u0130", "\u00df",
    "\u4e2d", "\u00bd", "\u200b", "\u0e17\u0e35\u0e48",
]  # fmt: skip
GAPS = [" ", " ", "", "  ", "\t", "\n", "\u00a0", "\u2028", "\u3000"]
texts = st.one_of(
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


@given(texts, texts)
def test_two_texts_score_as_the_rule_in_loops(gold: str, predicted: str) -> None:
    assert normalize(gold) == " ".join(plain_words(gold))
    assert exact_match(gold, predicted) == (plain_words(gold) == plain_words(predicted))
    assert word_f1(gold, predicted) == pytest.approx(plain_f1(gold, predicted))
    assert word_f1(gold, predicted) == pytest.approx(word_f1(predicted, gold))
    assert exact_match(gold, predicted) <= word_f1(gold, predicted) <= 1
    assert word_f1(gold, gold) == exact_match(gold, gold) == 1
