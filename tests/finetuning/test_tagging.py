"""Tagging: windows, the tokens of words, and the mean of their logits."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import Given, reader_of, task_of

from electrify.finetuning.encoding import classes_of, tags_of, windows_of_words
from electrify.finetuning.loop import Answered, Batch
from electrify.finetuning.metrics import span_scores, spans
from electrify.finetuning.problems import NO_WORD, Tagging
from electrify.finetuning.read import to_iob2
from electrify.finetuning.tasks import Sentence
from electrify.text.tables import column_sentences


def tagging(zoo: Path, labels: tuple[str, ...], *, length: int = 16) -> Tagging:
    return Tagging(reader_of(zoo / "bert"), "tagging", labels, max_seq_length=length)


@given(
    st.lists(st.one_of(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=60),
    st.integers(9, 30),
)
def test_windows_tag_every_word_once_and_fit(pieces: list[int], room: int) -> None:
    found = windows_of_words(pieces, room)
    assert [k for w in found for k in range(w.first, w.last)] == list(range(len(pieces)))
    for w in found:
        assert w.begin <= w.first < w.last <= w.end
        assert sum(pieces[w.begin : w.end]) <= room
    for w, following in itertools.pairwise(found):
        assert sum(pieces[w.begin : w.end + 1]) > room
        assert w.end < following.end


def test_rows_of_several_windows_by_hand(zoo: Path) -> None:
    """A word that the tokenizer drops is [UNK]; words beyond the length are tagged, too."""
    words = ("films", "the", "\u200b", "plot", "was", "film", "film", "bad", "films")
    one = Sentence(words, ("A", "B", "A", "B", "A", "B", "A", "B", "A"))
    problem = tagging(zoo, ("A", "B"), length=8)
    rows = problem.rows([one])
    batch = rows.batch(torch.tensor([0]))
    # [CLS] film ##s the [UNK] plot was [SEP], of which `was` is tagged in the next window
    assert batch.inputs["input_ids"].tolist() == [[2, 13, 24, 11, 1, 14, 15, 3]]
    assert batch.places_BL.int().tolist() == [[0, 1, 1, 1, 1, 1, 0, 0]]
    begins = rows.targets != NO_WORD
    assert int(begins.sum()) == 9
    places = [(k, start, stop) for row in rows.spots for _, k, start, stop in row]
    assert places[:4] == [(0, 1, 3), (1, 3, 4), (2, 4, 5), (3, 5, 6)]
    assert [k for k, *_ in places] == list(range(9))
    held = Answered(
        [one], rows, tags_of([one], [[k % 2 for _, k, *_ in row] for row in rows.spots], "AB")
    )
    assert held.answers == [one.tags]
    task = task_of("tagging", [one], name="t", metrics=("accuracy",))
    assert problem.score(task, held) == {"accuracy": 1.0}
    lines = problem.files("t", task, held)["t.txt"].splitlines()
    assert lines[:2] == ["films A A", "the B B"]


def test_a_words_logits_are_the_mean_of_its_tokens(zoo: Path) -> None:
    """Row 0: a word of tokens 1 and 2, one of token 3. Row 1: one of token 1; 3 is not tagged."""
    torch.manual_seed(0)
    places = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 0]], dtype=torch.bool)
    no = NO_WORD
    targets = torch.tensor([[no, 1, no, 0, no], [no, 1, no, no, no]])
    batch = Batch({}, torch.tensor([4, 4]), places, targets)
    each = torch.randn(2, 4, 3)
    net: Any = Given(each)
    problem = tagging(zoo, ("A", "B", "C"))
    wanted_WC = torch.stack([(each[0, 1] + each[0, 2]) / 2, each[0, 3], each[1, 1]])
    loss = problem.loss(net, batch)
    wanted = torch.nn.functional.cross_entropy(wanted_WC, torch.tensor([1, 0, 1]))
    torch.testing.assert_close(loss, wanted)
    assert problem.weight(batch) == 3
    words = [(0, 0, 1, 3), (0, 1, 3, 4)], [(1, 0, 1, 2)]
    classes = [
        k for row, logits in zip(words, each.numpy(), strict=True) for k in classes_of(row, logits)
    ]
    assert classes == wanted_WC.argmax(-1).tolist()
    loss.backward()
    grad = net.logits_BLC.grad
    assert torch.equal(grad[0, 1], grad[0, 2])
    assert not grad[1, 2:].any()


TAGGING = Path(__file__).parents[3] / "shared" / "data" / "tagging"
IOB = ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("X", "Y", "A", "A-B"))]
IOBES = ["O", "L-X", "U-X", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("X", "A-B"))]


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("", []),
        ("B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("I-X I-X", [("X", 0, 2)]),  # I- at the start
        ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),  # IOB1
        ("B-X I-Y I-X", [("X", 0, 1), ("Y", 1, 2), ("X", 2, 3)]),  # the type changes
        ("B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)]),
        ("S-X S-X B-X I-X E-X B-X E-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 5), ("X", 5, 7)]),
        (
            "E-X E-X I-X S-X I-X O E-X",
            [("X", 0, 1), ("X", 1, 2), ("X", 2, 3), ("X", 3, 4), ("X", 4, 5), ("X", 6, 7)],
        ),
        ("U-X B-X I-X L-X L-X", [("X", 0, 1), ("X", 1, 4), ("X", 4, 5)]),  # BILOU
        ("B I O I B", [("", 0, 2), ("", 3, 4), ("", 4, 5)]),
        ("NOUN VERB . $", []),
    ],
)
def test_spans_by_hand(tags: str, found: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == found


def scored(*numbers: float) -> dict[str, Any]:
    names = ("f1", "precision", "recall", "accuracy")
    return {name: pytest.approx(x) for name, x in zip(names, numbers, strict=True)}


def test_scores_by_hand() -> None:
    # gold: PER, LOC, LOC, ORG; predicted: PER, LOC too long, LOC as ORG, ORG a word late: 1 right
    # of 4 there and 4 called
    gold = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC"], ["B-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "B-ORG"], ["O", "B-ORG"]]
    assert span_scores(gold, predicted) == scored(0.25, 0.25, 0.25, 0.5)
    one, three = [["B-X", "O", "O", "O"]], [["B-X", "B-X", "B-X", "O"]]
    assert span_scores(one, three) == scored(0.5, 1 / 3, 1.0, 0.5)
    assert span_scores(three, one) == scored(0.5, 1.0, 1 / 3, 0.5)
    assert span_scores([["B-X"], ["I-X"]], [["B-X"], ["O"]])["recall"] == 0.5
    assert span_scores([["B-X", "I-X"]], [["B-X", "O"]])["recall"] == 0.0
    assert span_scores([["O", "N"]], [["O", "N"]]) == scored(0, 0, 0, 1)
    assert span_scores([["O"]], [["B-X"]]) == scored(0, 0, 0, 0)


STARTS = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}
ENDS = {"BB", "BO", "IB", "IO", "EE", "EI", "EO"}


def chunks_of_conlleval(tags: Sequence[str]) -> list[tuple[str, int, int]]:
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


@given(*(st.lists(st.sampled_from(tags), max_size=14) for tags in (IOB, IOBES)))
def test_chunks_are_those_of_conlleval(iob: list[str], iobes: list[str]) -> None:
    """Tasks are scored, and written for conlleval, as IOB2, which every scheme becomes."""
    assert spans(iob) == chunks_of_conlleval(iob)
    assert spans(iobes) == chunks_of_conlleval(to_iob2(iobes))


def tagged_words(file: str) -> list[list[tuple[str, str]]]:
    """The second column and the last of each word's line."""
    if not TAGGING.is_dir():
        pytest.skip("no ../shared/data/tagging")
    columns = [list(row.cells.values()) for row in column_sentences(TAGGING / file)]
    return [list(zip(column[1], column[-1], strict=True)) for column in columns]


def test_the_published_baseline_of_conll2000() -> None:
    """Each part of speech gets its most frequent chunk tag: precision 72.58, recall 82.14, F 77.07
    in Tjong Kim Sang and Buchholz (2000)."""
    train, test = (tagged_words(f"conll2000/{name}.txt") for name in ("train", "test"))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for part_of_speech, tag in (pair for sentence in train for pair in sentence):
        counts[part_of_speech][tag] += 1
    best = {part_of_speech: tags.most_common(1)[0][0] for part_of_speech, tags in counts.items()}
    gold = [[tag for _, tag in sentence] for sentence in test]
    scores = span_scores(gold, [[best[w] for w, _ in sentence] for sentence in test])
    found = [round(100 * scores[name], 2) for name in ("precision", "recall", "f1")]
    assert found == [72.58, 82.14, 77.07]


def test_windows_by_hand() -> None:
    """10 words of one piece and room for 6, half of which overlaps: 0-5, 3-8, 6-9. A word is tagged
    where it is farther from an edge."""
    found = [(w.begin, w.end, w.first, w.last) for w in windows_of_words([1] * 10, 6)]
    assert found == [(0, 6, 0, 5), (3, 9, 5, 8), (6, 10, 8, 10)]
    assert [(w.begin, w.end) for w in windows_of_words([6, 6], 6)] == [(0, 1), (1, 2)]
