from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.downstream.answers import exact, f1, normalize, score_answers
from electrify.downstream.examples import Answer, Question
from electrify.downstream.read.squad import read_questions
from electrify.errors import UserError

SQUAD = Path(__file__).parents[3] / "shared" / "data" / "squad"
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
    if same == 0:
        return 0.0
    precision, recall = same / len(given), same / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def plain_scores(
    questions: Sequence[Question], predictions: Mapping[str, str], f: bool
) -> dict[str, float]:
    found = {}
    for q in questions:
        golds = [a.text for a in q.answers if plain_words(a.text) != []]
        if len(golds) == 0:
            golds = [""]
        best = 0.0
        for gold in golds:
            best = max(
                best,
                plain_f1(gold, predictions[q.id])
                if f
                else float(plain_words(gold) == plain_words(predictions[q.id])),
            )
        found[q.id] = best
    return found


def plain_best(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
    f: bool,
) -> tuple[float, float]:
    """For every k: the first k ids by score are answered, the others are not."""
    scores, holds = (
        plain_scores(questions, predictions, f),
        {q.id: len(q.answers) > 0 for q in questions},
    )
    order = sorted([k for k in no_answer if k in scores], key=no_answer.__getitem__)
    best, threshold = -1.0, 0.0
    for answered in range(len(order) + 1):
        total = float(sum(not h for h in holds.values()))
        for k in order[:answered]:
            if holds[k]:
                total += scores[k]
            elif predictions[k] != "":
                total -= 1
        if total > best:
            best, threshold = total, no_answer[order[answered - 1]] if answered else 0.0
    return best / len(questions), threshold


def asked(id_: str, *golds: str) -> Question:
    return Question(id_, "?", " ".join(golds) or "x", tuple(Answer(g, 0) for g in golds))


@st.composite
def runs(draw: st.DrawFn, least: int = 0, most: int = 3) -> Run:
    """Questions, predictions (often a gold answer, or a piece of one) and no-answer scores in
    another order, with ties and ids of no question."""
    golds = draw(st.lists(st.lists(texts, min_size=least, max_size=most), min_size=1, max_size=8))
    questions = [asked(f"q{i}", *g) for i, g in enumerate(golds)]
    predictions = {}
    for q in questions:
        near = [
            t
            for a in q.answers
            for t in (
                a.text,
                a.text[1:],
                a.text + " cat",
                a.text.upper(),
                a.text[: len(a.text) // 2],
            )
        ]
        predictions[q.id] = draw(
            st.one_of(texts, st.just(""), *([st.sampled_from(near)] if near else []))
        )
    values = st.one_of(st.sampled_from([0.0, 0.5, -1.0]), st.floats(-20, 20))
    return (
        questions,
        predictions,
        {k: draw(values) for k in draw(st.permutations([*predictions, "another"]))},
    )


def test_hand_computed_normal_forms():
    assert normalize("The  U.S.\tA-Team, an\n1,000!") == "us ateam 1000"
    assert normalize("the-cat sat") == "thecat sat"  # punctuation goes first, so no article is left
    assert normalize("Theatre another a1 _the_") == "theatre another a1"
    assert (
        normalize("\u201cA\u201d \uff0cthe\u3002") == "\u201c \u201d \uff0c \u3002"
    )  # only ASCII punctuation goes
    assert normalize("a\u0301 \u00e0") == "\u0301 \u00e0"  # a combining mark is not a letter
    assert [normalize(t) for t in ("", " ", "the", "A, an. THE!", "?!")] == [""] * 5


def test_hand_computed_f1():
    assert f1("the cat sat", "a cat") == pytest.approx(2 / 3)  # precision 1, recall 1/2
    assert f1("cat cat sat", "cat cat cat sat mat") == pytest.approx(
        0.75
    )  # 3 in common: precision 3/5, recall 1
    assert f1("cat", "dog") == f1("cat", "") == f1("", "cat") == f1("the", "cat") == 0
    assert f1("", "") == f1("the", "...") == 1
    assert (exact("The cat", "cat!"), exact("cat", "cats"), exact("", "the"), exact("cat", "")) == (
        1,
        0,
        1,
        0,
    )


def test_hand_computed_scores_of_1_1():
    questions = [
        asked("a", "Denver Broncos", "the Broncos"),
        asked("b", "24 to 10"),
        asked("c", "gold", "gold"),
    ]
    scores = score_answers(questions, {"a": "Broncos", "b": "24", "c": "", "other": "x"})
    assert scores == {"exact": pytest.approx(1 / 3), "f1": pytest.approx((1 + 0.5 + 0) / 3)}
    assert score_answers(questions, {"a": "", "b": "", "c": ""}, {"a": 0, "b": 0, "c": 0}) == {
        "exact": 0,
        "f1": 0,
    }


MIXED = [asked("a", "Paris"), asked("b"), asked("c", "the river Seine"), asked("d"), asked("e")]
SAID = {"a": "Paris", "b": "Lyon", "c": "Seine", "d": "", "e": "Nice"}


def test_hand_computed_scores_of_2_0():
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
    assert list(score_answers(MIXED, SAID)) == [
        "exact",
        "f1",
        "has_answer_exact",
        "has_answer_f1",
        "no_answer_exact",
    ]


def test_questions_of_one_score_are_taken_one_by_one_in_the_order_given():
    first = score_answers(MIXED, SAID, dict.fromkeys("acbed", 0.5))
    assert (first["best_exact"], first["best_exact_threshold"]) == (4 / 5, 0.5)
    last = score_answers(MIXED, SAID, dict.fromkeys("bedac", 0.5))
    assert (last["best_exact"], last["best_exact_threshold"]) == (3 / 5, 0.0)


def test_a_threshold_of_zero_says_that_none_is_answered():
    scores = score_answers(MIXED, SAID, {"a": -1, "b": -4, "c": -1, "d": -4, "e": -3})
    assert (scores["best_exact"], scores["best_exact_threshold"], scores["best_f1_threshold"]) == (
        3 / 5,
        0,
        0,
    )


def test_what_the_official_rule_does_with_an_article_for_a_question_without_answer():
    scores = score_answers([asked("a")], {"a": "the"}, {"a": 0.0})
    assert (scores["exact"], scores["best_exact"]) == (
        1,
        1,
    )  # right as it is, and for the threshold an answer, which is wrong
    assert (
        score_answers([asked("a", "x"), asked("b")], {"a": "x", "b": "the"}, {"b": 1, "a": 2})[
            "best_exact"
        ]
        == 1 / 2
    )


def test_gold_answers_that_normalise_to_nothing():
    assert score_answers([asked("a", "the", "cat")], {"a": "the"}) == {
        "exact": 0,
        "f1": 0,
    }  # the script of 1.1 would say 1 and 0
    assert score_answers([asked("a", "the", "!")], {"a": "an"}) == {
        "exact": 1,
        "f1": 1,
    }  # the script of 1.1: 1 and 0


def test_all_unanswerable():
    scores = score_answers([asked("a"), asked("b")], {"a": "", "b": "x"}, {"a": 1.0, "b": 2.0})
    assert scores == {
        "exact": 0.5, "f1": 0.5, "no_answer_exact": 0.5, "best_exact": 1, "best_exact_threshold": 0,
        "best_f1": 1, "best_f1_threshold": 0,
    }  # fmt: skip


@given(texts, texts)
def test_two_texts_score_as_the_rule_in_loops(gold: str, predicted: str):
    assert normalize(gold) == " ".join(plain_words(gold))
    assert exact(gold, predicted) == (plain_words(gold) == plain_words(predicted))
    assert f1(gold, predicted) == plain_f1(gold, predicted)
    assert f1(gold, predicted) == pytest.approx(f1(predicted, gold))
    assert exact(gold, predicted) <= f1(gold, predicted) <= 1
    assert f1(gold, gold) == exact(gold, gold) == 1


def agrees(
    questions: Sequence[Question], predictions: dict[str, str], no_answer: dict[str, float]
) -> None:
    has, has_not = [q for q in questions if q.answers], [q for q in questions if not q.answers]
    wanted: dict[str, float] = {}
    for name, f in (("exact", False), ("f1", True)):
        raw = plain_scores(questions, predictions, f)
        wanted[name] = sum(raw.values()) / len(questions)
        if has and has_not:
            wanted[f"has_answer_{name}"] = sum(raw[q.id] for q in has) / len(has)
        if has_not:
            wanted["no_answer_exact"] = sum(raw[q.id] for q in has_not) / len(has_not)
            wanted[f"best_{name}"], wanted[f"best_{name}_threshold"] = plain_best(
                questions, predictions, no_answer, f
            )
    assert score_answers(questions, predictions, no_answer) == wanted


@given(runs())
def test_scores_are_those_of_the_rule_in_loops(run: Run):
    agrees(*run)


@given(runs(most=0))
def test_scores_where_no_question_has_an_answer(run: Run):
    agrees(*run)


@given(runs(least=1))
def test_scores_where_all_questions_have_one(run: Run):
    agrees(*run)
    assert set(score_answers(*run)) == {"exact", "f1"}


@given(runs(), st.sampled_from(["", "cat", "the", "\uff0c"]))
def test_scores_where_all_predictions_are_the_same(
    run: tuple[list[Question], dict[str, str], dict[str, float]], same: str
):
    agrees(run[0], dict.fromkeys(run[1], same), run[2])
    agrees(run[0], dict.fromkeys(run[1], same), dict.fromkeys(run[2], 0.25))


@given(runs())
def test_the_best_is_what_a_threshold_gives_and_no_threshold_gives_more(run: Run):
    """Where no-answer scores differ and exceed 0, and texts of no words are empty predictions and
    no gold answers; else see the rule above."""
    questions = [
        asked(q.id, *(a.text for a in q.answers if plain_words(a.text))) for q in run[0]
    ] + [asked("none")]
    predictions = {k: text if plain_words(text) else "" for k, text in run[1].items()} | {
        "none": "cat"
    }
    order = sorted(predictions, key=lambda k: (run[2].get(k, 0), k))
    no_answer = {k: (place + 1) / 8 for place, k in enumerate(order)}
    scores = score_answers(questions, predictions, no_answer)
    for name in ("exact", "f1"):
        at = {}
        for threshold in [0.0, *no_answer.values()]:
            kept = {k: text if no_answer[k] <= threshold else "" for k, text in predictions.items()}
            at[threshold] = score_answers(questions, kept)[name]
        assert scores[f"best_{name}"] == pytest.approx(max(at.values()))
        assert scores[f"best_{name}"] >= scores[name] - 1e-12
        assert at[scores[f"best_{name}_threshold"]] == pytest.approx(scores[f"best_{name}"])


NAN = {"a": 1, "b": float("nan"), "c": 1, "d": float("inf"), "e": 1}


@pytest.mark.parametrize(
    ("questions", "predictions", "no_answer", "said"),
    [
        ([], {}, None, r"no questions to score"),
        (
            MIXED,
            {"a": "", "d": "", "x": ""},
            None,
            r"no prediction for 3 of 5 questions, 'b' among them; give one for each question",
        ),
        (
            MIXED,
            SAID,
            {"a": 0.0, "b": 1.0},
            r"no no-answer score for 3 of 5 questions, 'c' among them",
        ),
        (MIXED[:1], SAID, {}, r"no no-answer score for 1 of 1 questions, 'a' among them"),
        (
            MIXED,
            SAID,
            NAN,
            r"the no-answer score of 2 questions is not a finite number, 'b' among them",
        ),
        (
            [*MIXED, asked("b", "x")],
            SAID,
            None,
            r"1 question ids occur more than once, 'b' among them",
        ),
    ],
)
def test_what_cannot_be_scored(
    questions: list[Question],
    predictions: dict[str, str],
    no_answer: dict[str, float] | None,
    said: str,
):
    with pytest.raises(UserError, match=said):
        score_answers(questions, predictions, no_answer)


@pytest.mark.parametrize(
    "name", ["dev-v1.1-xquad-en", "dev-v2.0-half", "dev-v1.1-half", "dev-v2.0-subset"]
)
def test_gold_answers_of_squad_score_one(name: str):
    if not SQUAD.is_dir():
        pytest.skip("no ../shared/data/squad")
    questions = read_questions(SQUAD / f"{name}.json")
    first = {q.id: q.answers[0].text if q.answers else "" for q in questions}
    scores = score_answers(questions, first, {q.id: float(not q.answers) for q in questions})
    assert {v for k, v in scores.items() if not k.endswith("threshold")} == {1.0}
    silent = score_answers(questions, dict.fromkeys(first, ""))
    assert silent["exact"] == silent["f1"] == sum(not q.answers for q in questions) / len(questions)


def test_a_full_stop_is_a_gold_answer_of_squad_that_does_not_count():
    if not SQUAD.is_dir():
        pytest.skip("no ../shared/data/squad")
    questions = [
        q
        for q in read_questions(SQUAD / "dev-v1.1-half.json")
        if "." in [a.text for a in q.answers]
    ]
    assert len(questions) == 3
    assert score_answers(questions, {q.id: "." for q in questions}) == {"exact": 0, "f1": 0}
