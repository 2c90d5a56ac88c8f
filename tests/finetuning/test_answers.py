"""Answers of questions: by hand, and as SQuAD's official rule in plain loops scores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.finetuning.metrics import (
    exact_match,
    normalize,
    score_answers,
    word_f1,
)
from electrify.finetuning.tasks import Answer, Question

PIECES = [
    "a", "an", "the", "The", "A", "THE", "cat", "Cat", "cats", "sat", "1,000", "1000", "U.S.", "us",
    ".", "...", "!?", "_", "a_b", "_the_",
    "the-cat", "the'", "\u2019", "\uff0c", "\u3002", "\uff34\uff28\uff25", "\u00e7a", "a\u0301",
    "the\u0308", "\u0301", "\u0130", "\u00df",
    "\u4e2d", "\u00bd", "\u200b", "\u0e17\u0e35\u0e48",
]  # fmt: skip
GAPS = [" ", " ", "", "  ", "\t", "\n", "\u00a0", "\u2028", "\u3000"]
Run = tuple[list[Question], dict[str, str], dict[str, float]]
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


def plain_scores(
    questions: Sequence[Question], predictions: Mapping[str, str], f: bool
) -> dict[str, float]:
    found = {}
    for q in questions:
        given = predictions[q.id]
        golds = [a.text for a in q.answers if plain_words(a.text) != []] or [""]
        same = [float(plain_words(gold) == plain_words(given)) for gold in golds]
        found[q.id] = max(plain_f1(gold, given) for gold in golds) if f else max(same)
    return found


def plain_best(run: Run, f: bool) -> tuple[float, float]:
    """For every k: the first k ids by score are answered, the others are not."""
    questions, predictions, no_answer = run
    scores = plain_scores(questions, predictions, f)
    holds = {q.id: len(q.answers) > 0 for q in questions}
    order = sorted(no_answer, key=no_answer.__getitem__)
    best, threshold = -1.0, 0.0
    for answered in range(len(order) + 1):
        total = float(sum(not h for h in holds.values()))
        for k in order[:answered]:
            total += scores[k] if holds[k] else -1 if predictions[k] != "" else 0
        if total > best + 1e-9:
            best, threshold = total, no_answer[order[answered - 1]] if answered else 0.0
    return best / len(questions), threshold


def asked(id_: str, *golds: str) -> Question:
    return Question(id_, "?", " ".join(golds) or "x", tuple(Answer(g, 0) for g in golds))


@st.composite
def runs(draw: st.DrawFn, least: int = 0, most: int = 3) -> Run:
    """Questions, predictions (often a gold answer, or a piece of one) and no-answer scores in
    another order, with ties."""
    golds = draw(st.lists(st.lists(texts, min_size=least, max_size=most), min_size=1, max_size=8))
    questions = [asked(f"q{i}", *g) for i, g in enumerate(golds)]
    predictions = {}
    for q in questions:
        near = [t for a in q.answers for t in (a.text, a.text[1:], a.text + " cat")] or [""]
        predictions[q.id] = draw(st.one_of(texts, st.just(""), st.sampled_from(near)))
    values = st.one_of(st.sampled_from([0.0, 0.5, -1.0]), st.floats(-20, 20))
    return questions, predictions, {k: draw(values) for k in draw(st.permutations([*predictions]))}


def test_hand_computed_normal_forms() -> None:
    assert normalize("The  U.S.\tA-Team, an\n1,000!") == "us ateam 1000"
    assert normalize("the-cat sat") == "thecat sat"  # punctuation goes first, so no article is left
    assert normalize("Theatre another a1 _the_") == "theatre another a1"
    quotes = normalize("\u201cA\u201d \uff0cthe\u3002")
    assert quotes == "\u201c \u201d \uff0c \u3002"  # only ASCII punctuation goes
    assert normalize("a\u0301 \u00e0") == "\u0301 \u00e0"  # a combining mark is not a letter
    assert [normalize(t) for t in ("", " ", "the", "A, an. THE!", "?!")] == [""] * 5


def test_hand_computed_scores_of_1_1() -> None:
    golds = (("a", "Denver Broncos", "the Broncos"), ("b", "24 to 10"), ("c", "gold", "gold"))
    questions = [asked(*gold) for gold in golds]
    scores = score_answers(questions, {"a": "Broncos", "b": "24", "c": "", "other": "x"})
    assert scores == {"exact": pytest.approx(1 / 3), "f1": pytest.approx((1 + 0.5 + 0) / 3)}
    # Where all that is gold normalises to nothing. The script of 1.1 gives 1 and 0, twice:
    assert score_answers([asked("a", "the", "cat")], {"a": "the"}) == {"exact": 0, "f1": 0}
    assert score_answers([asked("a", "the", "!")], {"a": "an"}) == {"exact": 1, "f1": 1}


MIXED = [asked("a", "Paris"), asked("b"), asked("c", "the river Seine"), asked("d"), asked("e")]
SAID = {"a": "Paris", "b": "Lyon", "c": "Seine", "d": "", "e": "Nice"}


def test_hand_computed_scores_of_2_0() -> None:
    scores = score_answers(MIXED, SAID, {"a": -3, "b": 1, "c": -1, "d": 5, "e": 0})
    assert scores == {
        "exact": 2 / 5,  # a and d
        "f1": pytest.approx((1 + 2 / 3 + 1) / 5),
        "has_answer_exact": 1 / 2,
        "has_answer_f1": pytest.approx((1 + 2 / 3) / 2),
        "no_answer_exact": pytest.approx(1 / 3),
        "best_exact": 4 / 5,  # a alone is answered
        "best_exact_threshold": -3,
        "best_f1": pytest.approx((3 + 1 + 2 / 3) / 5),  # a and c
        "best_f1_threshold": -1,
    }
    assert list(score_answers(MIXED, SAID)) == list(scores)[:5]


@given(texts, texts)
def test_two_texts_score_as_the_rule_in_loops(gold: str, predicted: str) -> None:
    assert normalize(gold) == " ".join(plain_words(gold))
    assert exact_match(gold, predicted) == (plain_words(gold) == plain_words(predicted))
    assert word_f1(gold, predicted) == pytest.approx(plain_f1(gold, predicted))
    assert word_f1(gold, predicted) == pytest.approx(word_f1(predicted, gold))
    assert exact_match(gold, predicted) <= word_f1(gold, predicted) <= 1
    assert word_f1(gold, gold) == exact_match(gold, gold) == 1


def agrees(run: Run) -> None:
    questions, predictions, _ = run
    has, has_not = [q for q in questions if q.answers], [q for q in questions if not q.answers]
    wanted: dict[str, float] = {}
    for name, f in (("exact", False), ("f1", True)):
        raw = plain_scores(questions, predictions, f)
        wanted[name] = sum(raw.values()) / len(questions)
        if has:
            wanted[f"has_answer_{name}"] = sum(raw[q.id] for q in has) / len(has)
        if has_not and name == "exact":
            wanted["no_answer_exact"] = sum(raw[q.id] for q in has_not) / len(has_not)
        wanted[f"best_{name}"], wanted[f"best_{name}_threshold"] = plain_best(run, f)
    assert score_answers(*run) == pytest.approx(wanted)


@given(st.one_of(runs(), runs(most=0), runs(least=1)))
def test_scores_are_those_of_the_rule_in_loops(run: Run) -> None:
    """Also where no question, or every question, has an answer."""
    agrees(run)
    for same in ("", "cat", "the", "\uff0c"):
        agrees((run[0], dict.fromkeys(run[1], same), dict.fromkeys(run[2], 0.25)))
