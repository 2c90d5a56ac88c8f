from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.downstream.read.conll import read_sentences, to_iob2
from electrify.downstream.spans import span_scores, spans

TAGGING = Path(__file__).parents[3] / "shared" / "data" / "tagging"
Tagged = list[list[str]]

TYPES = ("X", "Y", "A", "A-B", "creative-work")
IOB = ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in TYPES)]
IOBES = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("X", "A-B"))]


@st.composite
def gold_and_predicted(draw: st.DrawFn, tags: Sequence[str] = IOB) -> tuple[Tagged, Tagged]:
    """Any tags against any others, the same with some exchanged, or one tag for every word."""
    tag = st.sampled_from(tags)
    gold = draw(st.lists(st.lists(tag, min_size=1, max_size=12), min_size=1, max_size=5))
    match draw(st.sampled_from(["any", "near", "constant"])):
        case "any":
            predicted = [[draw(tag) for _ in sentence] for sentence in gold]
        case "near":
            predicted = [
                [draw(tag) if draw(st.integers(0, 4)) == 0 else same for same in sentence]
                for sentence in gold
            ]
        case _:
            constant = draw(tag)
            predicted = [[constant] * len(sentence) for sentence in gold]
    return (gold, predicted) if draw(st.booleans()) else (predicted, gold)


def tagged(text: str) -> list[str]:
    return text.split()


def seqeval() -> Any:
    return pytest.importorskip("seqeval.metrics.sequence_labeling")


def conlleval(gold: Tagged, predicted: Tagged) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """The shared task's way to count (right, gold, predicted chunks by type): one pass over both
    columns, a boundary after each sentence."""

    def letter_and_type(tag: str) -> tuple[str, str]:
        letter, _, kind = tag.partition("-")
        return letter, kind

    def starts(last: tuple[str, str], this: tuple[str, str]) -> bool:
        return this[0] == "B" or (this[0] == "I" and (last[0] == "O" or last[1] != this[1]))

    def ends(last: tuple[str, str], this: tuple[str, str]) -> bool:
        return last[0] in ("B", "I") and (this[0] in ("B", "O") or last[1] != this[1])

    right, there, called = Counter[str](), Counter[str](), Counter[str]()
    outside = ("O", "")
    last_g = last_p = outside
    agreed = False  # inside a chunk that began at the same word with the same type on both sides
    for g_sentence, p_sentence in zip(gold, predicted, strict=True):
        for g_tag, p_tag in (*zip(g_sentence, p_sentence, strict=True), ("O", "O")):
            g, p = letter_and_type(g_tag), letter_and_type(p_tag)
            g_ends, p_ends = ends(last_g, g), ends(last_p, p)
            right[last_g[1]] += agreed and g_ends and p_ends
            agreed = agreed and not g_ends and not p_ends
            g_starts, p_starts = starts(last_g, g), starts(last_p, p)
            there[g[1]] += g_starts
            called[p[1]] += p_starts
            agreed = agreed or (g_starts and p_starts and g[1] == p[1])
            last_g, last_p = g, p
    return right, there, called


def fractions(right: int, there: int, called: int) -> dict[str, Any]:
    precision, recall = right / called if called else 0.0, right / there if there else 0.0
    both = 2 * precision * recall / (precision + recall) if right else 0.0
    return {
        "f1": pytest.approx(both),
        "precision": pytest.approx(precision),
        "recall": pytest.approx(recall),
    }


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("", []),
        ("O O", []),
        ("B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("I-X I-X", [("X", 0, 2)]),  # I- at the start
        ("O I-X", [("X", 1, 2)]),
        ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),  # IOB1
        ("B-X B-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X I-Y I-Y", [("X", 0, 1), ("Y", 1, 3)]),  # the type changes inside
        ("B-X I-Y I-X", [("X", 0, 1), ("Y", 1, 2), ("X", 2, 3)]),
        ("B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)]),
        ("S-X S-X B-X I-X E-X B-X E-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 5), ("X", 5, 7)]),
        (
            "E-X E-X I-X S-X I-X O E-X",
            [("X", 0, 1), ("X", 1, 2), ("X", 2, 3), ("X", 3, 4), ("X", 4, 5), ("X", 6, 7)],
        ),
        ("U-X B-X I-X L-X L-X", [("X", 0, 1), ("X", 1, 4), ("X", 4, 5)]),  # BILOU
        ("B I O I B", [("", 0, 2), ("", 3, 4), ("", 4, 5)]),
        ("B- I-", [("", 0, 2)]),
        ("NOUN VERB . $", []),
        ("B-X NOUN I-X", [("X", 0, 1), ("X", 2, 3)]),
        ("NP-SBJ NP-SBJ O NP-OBJ", [("SBJ", 0, 2), ("OBJ", 3, 4)]),
        ("O-X b-X b-X", [("X", 1, 3)]),
    ],
)
def test_spans_by_hand(tags: str, found: list[tuple[str, int, int]]):
    assert spans(tagged(tags)) == found


def test_scores_by_hand():
    # gold: PER, LOC, LOC, ORG; predicted: PER, LOC too long, LOC as ORG, ORG a word late: 1 right
    # of 4 there and 4 called
    gold = [tagged("B-PER I-PER O B-LOC O B-LOC"), tagged("B-ORG O")]
    predicted = [tagged("B-PER I-PER O B-LOC I-LOC B-ORG"), tagged("O B-ORG")]
    assert span_scores(gold, predicted) == {
        "f1": 0.25,
        "precision": 0.25,
        "recall": 0.25,
        "accuracy": 0.5,
    }


def test_precision_is_of_what_was_called_and_recall_of_what_is_there():
    gold, predicted = [tagged("B-X O O O")], [tagged("B-X B-X B-X O")]
    assert span_scores(gold, predicted) == {
        "f1": 0.5,
        "precision": pytest.approx(1 / 3),
        "recall": 1.0,
        "accuracy": 0.5,
    }
    assert span_scores(predicted, gold) == {
        "f1": 0.5,
        "precision": 1.0,
        "recall": pytest.approx(1 / 3),
        "accuracy": 0.5,
    }


def test_chunks_end_with_their_sentence():
    together, apart = [["B-X", "I-X"]], [["B-X"], ["I-X"]]
    assert span_scores(apart, apart)["f1"] == 1.0
    assert span_scores(apart, [["B-X"], ["O"]])["recall"] == 0.5
    assert span_scores(together, [["B-X", "O"]])["recall"] == 0.0


@pytest.mark.parametrize(
    ("gold", "predicted", "accuracy"),
    [
        ([], [], 0.0),
        ([[]], [[]], 0.0),
        ([["O", "O"]], [["O", "O"]], 1.0),
        ([["O"]], [["B-X"]], 0.0),
        ([["B-X"]], [["O"]], 0.0),
        ([["N"]], [["N"]], 1.0),
    ],
)
def test_zero_where_undefined(gold: Tagged, predicted: Tagged, accuracy: float):
    assert span_scores(gold, predicted) == {
        "f1": 0.0,
        "precision": 0.0,
        "recall": 0.0,
        "accuracy": accuracy,
    }


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 sentences of gold tags and 1 of predicted ones"):
        span_scores([["O"], ["O"]], [["O"]])
    with pytest.raises(
        ValueError, match=r"sentence 1 \(counted from 0\) has 2 gold tags and 1 predicted ones"
    ):
        span_scores([["O"], ["O", "O"]], [["O"], ["O"]])


@given(gold_and_predicted())
def test_scores_are_those_of_conlleval(pair: tuple[Tagged, Tagged]):
    right, there, called = conlleval(*pair)
    scores = span_scores(*pair)
    words = [a == b for g, p in zip(*pair, strict=True) for a, b in zip(g, p, strict=True)]
    assert scores == fractions(right.total(), there.total(), called.total()) | {
        "accuracy": pytest.approx(sum(words) / len(words))
    }


STARTS = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}
ENDS = {"BB", "BO", "IB", "IO", "EE", "EI", "EO"}


def chunks_of_the_script(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The script's two tables of letters before and here, and a type that changes; O has no type.
    It knows no S."""
    found: list[tuple[str, int, int]] = []
    begun = None
    before = ("O", "")
    for i, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        pair, changes = before[0] + letter, before[1] != kind
        if begun is not None and (pair in ENDS or (before[0] != "O" and changes)):
            found.append((before[1], begun, i))
            begun = None
        if pair in STARTS or (letter != "O" and changes):
            begun = i
        before = (letter, kind)
    return found


@given(st.lists(st.sampled_from(IOB), max_size=14))
def test_chunks_of_iob1_and_iob2_are_the_scripts_whatever_the_order(tags: list[str]):
    assert spans(tags) == chunks_of_the_script(tags)


@given(st.lists(st.sampled_from([tag for tag in IOBES if not tag.startswith("S")]), max_size=14))
def test_chunks_with_e_are_the_scripts_but_for_e_before_b(tags: list[str]):
    odd = [i for i, (a, b) in enumerate(pairwise(tags)) if a[:1] == "E" and b == "B" + a[1:]]
    if not odd:
        assert spans(tags) == chunks_of_the_script(tags)
    assert (spans(["E-X", "B-X"]), chunks_of_the_script(["E-X", "B-X"])) == (
        [("X", 0, 1), ("X", 1, 2)],
        [("X", 0, 2)],
    )


@given(st.lists(st.sampled_from([*IOBES, "L-X", "U-X"]), max_size=14))
def test_every_scheme_as_it_is_scored_and_written_has_the_scripts_chunks(tags: list[str]):
    assert spans(tags) == chunks_of_the_script(to_iob2(tags))
    assert chunks_of_the_script(["S-X", "S-X"]) == [("X", 0, 2)], (
        "what docs/finetuning.md says of the script"
    )


@pytest.mark.filterwarnings("ignore")
@given(gold_and_predicted())
def test_scores_are_those_of_seqeval(pair: tuple[Tagged, Tagged]):
    agree_with_seqeval(*pair)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=50)
@given(gold_and_predicted(IOBES))
def test_scores_are_those_of_seqeval_also_for_iobes(pair: tuple[Tagged, Tagged]):
    agree_with_seqeval(*pair)


def agree_with_seqeval(gold: Tagged, predicted: Tagged) -> None:
    for sentence in (*gold, *predicted):
        assert spans(sentence) == [
            (kind, first, last + 1) for kind, first, last in seqeval().get_entities(sentence)
        ]
    scores = span_scores(gold, predicted)
    chunks = any(map(spans, (*gold, *predicted)))
    scored = seqeval().precision_recall_fscore_support
    wanted = (
        scored(gold, predicted, average="micro", zero_division=0)[:3] if chunks else (0.0, 0.0, 0.0)
    )
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx(
        tuple(map(float, wanted))
    )
    assert scores["accuracy"] == pytest.approx(seqeval().accuracy_score(gold, predicted))


@given(gold_and_predicted())
def test_scores_are_fractions_and_mirror_each_other(pair: tuple[Tagged, Tagged]):
    gold, predicted = pair
    one, other = span_scores(gold, predicted), span_scores(predicted, gold)
    assert all(0 <= value <= 1 for value in one.values())
    assert (one["f1"], one["precision"], one["recall"]) == (
        other["f1"],
        other["recall"],
        other["precision"],
    )
    assert span_scores(gold, gold)["f1"] == float(any(spans(sentence) for sentence in gold))


@given(st.lists(st.one_of(st.sampled_from(IOBES), st.text(max_size=5)), max_size=12))
def test_spans_are_in_order_and_do_not_overlap_whatever_the_tags(tags: list[str]):
    found = spans(tags)
    assert all(0 <= start < stop <= len(tags) for _, start, stop in found)
    assert all(a[2] <= b[1] for a, b in pairwise(found))
    assert all(
        tags[i].partition("-")[2] == kind for kind, start, stop in found for i in range(start, stop)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", ["conll2003/eng.testb", "wnut17/test.conll"])
def test_real_tags_against_shifted_ones_as_both_oracles(file: str):
    if not TAGGING.is_dir():
        pytest.skip("no ../shared/data/tagging")
    gold = [list(s.tags) for s in read_sentences(TAGGING / file)]
    predicted = [
        ["O", *tags[:-1]] if i % 3 == 0 else tags for i, tags in enumerate(gold)
    ]  # in a third every chunk stands one word too late
    agree_with_seqeval(gold, predicted)
    counts = conlleval(gold, predicted)
    assert span_scores(gold, predicted) | fractions(*(c.total() for c in counts)) == span_scores(
        gold, predicted
    )


def test_the_published_baseline_of_conll2000():
    """Each part of speech gets its most frequent chunk tag: precision 72.58, recall 82.14, F 77.07
    in Tjong Kim Sang and Buchholz (2000)."""
    if not TAGGING.is_dir():
        pytest.skip("no ../shared/data/tagging")
    train, test = (
        read_sentences(TAGGING / "conll2000" / f"{name}.txt", word=1) for name in ("train", "test")
    )
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for part_of_speech, tag in zip(sentence.words, sentence.tags, strict=True):
            counts[part_of_speech][tag] += 1
    best = {part_of_speech: tags.most_common(1)[0][0] for part_of_speech, tags in counts.items()}
    scores = span_scores([s.tags for s in test], [[best[w] for w in s.words] for s in test])
    assert [round(100 * scores[name], 2) for name in ("precision", "recall", "f1")] == [
        72.58,
        82.14,
        77.07,
    ]
