"""ELECTRA's own head for questions: by hand, by its properties, and against a restatement of the
public code's choice of answers."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_answering import THOROUGH, of, questions, task

from electrify.downstream.electra_head import ElectraHead
from electrify.downstream.examples import Answer, Question
from electrify.downstream.finetune import finetune
from electrify.downstream.heads import Batch
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.problems.windows import holding, owned, windows_over
from electrify.downstream.read.task import answering_of
from electrify.errors import UserError


def batch_of(places: list[int], targets: list[int] | None = None) -> Batch:
    marks = torch.tensor([places], dtype=torch.bool)
    return Batch({}, torch.tensor([len(places)]), marks, torch.tensor([targets or [0, 0, 0]]))


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def log_softmax(logits: list[float]) -> list[float]:
    total = math.log(sum(math.exp(x) for x in logits))
    return [x - total for x in logits]


def test_by_hand():
    """Width 1; [CLS], a word of the question, three of the context. One hidden unit works: start's
    state - 2 * the token's + 1."""
    head = ElectraHead(1, dropout=0.0, std=0.02, last=False, beam=2)
    with torch.no_grad():
        for p in head.parameters():
            p.zero_()
        head.start.weight.fill_(2.0)
        head.hidden.weight[7] = torch.tensor([1.0, -2.0])  # the start's state stands first
        head.hidden.bias[7] = 1.0
        head.end.weight[0, 7] = 3.0
        head.none[0].weight[5] = torch.tensor([1.0, 4.0])  # the class token's state stands first
        head.none[2].weight[0, 5] = 1.0
        head.none[2].bias.fill_(-0.5)
    values = [0.3, 9.0, 0.1, 0.9, 0.5]
    states, places, allowed = torch.tensor(values)[None, :, None], [0, 0, 1, 1, 1], [0, 2, 3, 4]
    start = dict(zip(allowed, log_softmax([2 * values[k] for k in allowed]), strict=True))

    def end(first: int) -> dict[int, float]:
        return dict(
            zip(
                allowed,
                log_softmax([3 * gelu(values[first] - 2 * values[k] + 1) for k in allowed]),
                strict=True,
            )
        )

    mean = sum(math.exp(start[k]) * values[k] for k in allowed)
    none = gelu(values[0] + 4 * mean) - 0.5
    for first, last, impossible in ((3, 4, 0), (0, 0, 0), (0, 0, 1)):
        wanted = -(start[first] + end(first)[last]) / 2 + 0.5 * (
            math.log1p(math.exp(none)) - impossible * none
        )
        assert head.loss(
            states, batch_of(places, [first, last, impossible])
        ).item() == pytest.approx(wanted, abs=1e-5)
    found = head.answers(states, batch_of(places))
    assert found["null"].item() == pytest.approx(none, abs=1e-5)
    wanted = {
        (s, e): start[s] + end(s)[e]
        for s in sorted(start, key=lambda k: -start[k])[:2]
        for e in sorted(allowed, key=lambda k: -end(s)[k])[:2]
    }
    assert list(wanted) == [(3, 2), (3, 0), (4, 2), (4, 0)], (
        "whatever they are: the end before the start, and the class token"
    )
    kept = {
        (s, e): v
        for s, e, v in zip(
            *(found[k][0].tolist() for k in ("starts", "ends", "scores")), strict=True
        )
    }
    assert kept == pytest.approx(wanted, abs=1e-5)


@given(st.integers(0, 2**31), st.integers(2, 9), st.integers(1, 12), st.booleans())
def test_the_beam_is_the_likeliest_of_a_distribution(seed: int, length: int, beam: int, last: bool):
    """Over allowed starts and ends, the class token among them, the probabilities of all pairs sum
    to 1; the beam holds the likeliest of them."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    head = ElectraHead(4, dropout=0.0, std=None, last=last, beam=beam)
    states, places = (
        torch.randn(1, length, 4, generator=generator),
        torch.rand(length, generator=generator) < 0.6,
    )
    null = length - 1 if last else 0
    allowed = [k for k in range(length) if places[k] or k == null]
    wide = ElectraHead(4, dropout=0.0, std=None, last=last, beam=length)
    wide.load_state_dict(head.state_dict())
    with torch.no_grad():
        every, found = (
            one.answers(states, batch_of(places.int().tolist())) for one in (wide, head)
        )
        losses = [
            head.loss(states, batch_of(places.int().tolist(), [s, e, 0])).item()
            for s in allowed
            for e in allowed
        ]
    pairs = {
        (s, e): v
        for s, e, v in zip(
            *(every[k][0].tolist() for k in ("starts", "ends", "scores")), strict=True
        )
        if v > -1e29
    }
    assert set(pairs) == {(s, e) for s in allowed for e in allowed}
    assert sum(math.exp(v) for v in pairs.values()) == pytest.approx(1, abs=1e-4)
    nothing = 0.5 * math.log1p(math.exp(found["null"].item()))
    assert [nothing - pairs[s, e] / 2 for s in allowed for e in allowed] == pytest.approx(
        losses, abs=1e-4
    )
    kept = [
        (s, e)
        for s, e, v in zip(
            *(found[k][0].tolist() for k in ("starts", "ends", "scores")), strict=True
        )
        if v > -1e29
    ]
    assert len(kept) == len(set(kept)) == min(beam, len(allowed)) ** 2
    starts = {
        s: math.log(sum(math.exp(v) for (a, _), v in pairs.items() if a == s)) for s in allowed
    }
    assert (
        min(starts[s] for s, _ in kept)
        >= max((starts[s] for s in allowed if s not in {s for s, _ in kept}), default=-math.inf)
        - 1e-5
    )
    for s in {s for s, _ in kept}:
        mine = {e for a, e in kept if a == s}
        assert (
            min(pairs[s, e] for e in mine)
            >= max((pairs[s, e] for e in allowed if e not in mine), default=-math.inf) - 1e-5
        )


def most_context(length: int, room: int, stride: int) -> list[tuple[int, int, set[int]]]:
    """Windows and the tokens whose window they are: the rule in its own words, token by token."""
    spans, begin = [], 0
    while True:
        spans.append((begin, min(room, length - begin)))
        if begin + spans[-1][1] == length:
            break
        begin += min(spans[-1][1], stride)
    owner = {}
    for token in range(length):
        best = None
        for k, (start, size) in enumerate(spans):
            if start <= token < start + size:
                score = min(token - start, start + size - 1 - token) + 0.01 * size
                if best is None or score > best:
                    best, owner[token] = score, k
    return [
        (start, start + size, {t for t, k in owner.items() if k == n})
        for n, (start, size) in enumerate(spans)
    ]


@given(st.integers(0, 120), st.integers(1, 50), st.integers(1, 60))
def test_every_token_is_owned_by_the_window_that_shows_most_around_it(
    length: int, room: int, stride: int
):
    windows, own = owned(length, room, stride)
    found = [
        (begin, end, set(range(*tokens))) for (begin, end), tokens in zip(windows, own, strict=True)
    ]
    assert found == most_context(length, room, stride)


@given(length=st.integers(1, 90), room=st.integers(1, 20), stride=st.integers(1, 20))
def test_a_token_is_compared_with_the_windows_that_hold_it_alone(
    length: int, room: int, stride: int
) -> None:
    """With all of them, a book would take as long as its tokens times its windows."""
    windows = windows_over(length, room, stride)
    for token in range(length):
        holders = [w for w, (begin, end) in enumerate(windows) if begin <= token < end]
        assert list(holding(token, len(windows), room, stride)) == holders


def test_windows_and_targets_by_hand(zoo: Path):
    """[CLS] the film [SEP] leaves 8 of 13 tokens for a window; they begin every 3 tokens of 13. The
    last word, token 12, is the answer."""
    context = "it was one film the plot was bad and the film was good"
    told = Question("q", "the film", context, (Answer("good", context.index("good")),))
    silent = Question("r", "the film", context, ())
    for answerless in (False, True):
        problem = of(zoo, [told], length=13, stride=3, head="electra", answerless=answerless)
        assert problem.training([told]).targets.tolist() == [[0, 0, 0], [0, 0, 0], [10, 10, 0]], (
            "all windows are kept, of SQuAD 1.1 too"
        )
    assert problem.training([silent]).targets.tolist() == [[0, 0, 1]] * 3
    held = problem.held_out([told])
    assert [(w.begin, w.end, w.start, w.own) for w in held.spots] == [
        (0, 8, 4, (0, 6)),
        (3, 11, 4, (6, 9)),
        (6, 13, 4, (9, 13)),
    ]
    assert held.data.batch(torch.tensor([2])).places_BL.tolist() == [[False] * 4 + [True] * 8], (
        "the separator behind the context may be chosen"
    )
    nowhere = Question("n", "film", "\u200b film", (Answer("\u200b", 0),))
    rows = problem.training([nowhere, told])
    assert len(rows.targets) == 3, (
        "an answer that is in no token is left out, as in the public code"
    )


def test_which_of_the_beam_are_answers(zoo: Path):
    """A span must begin where its window shows most, stay in the context, and be neither backward
    nor too long; the class token is not an answer."""
    context = "it was one film the plot was bad and the film was good"
    question = Question("q", "the film", context, (Answer("good", context.index("good")),))
    problem = of(zoo, [question], length=13, stride=3, head="electra", answerless=True)
    held = problem.held_out([question])
    beam = [  # score, row, first and last token of the context
        (-0.1, 0, 7, 7),  # bad: the second window shows more of what is behind
        (-0.2, 0, 5, 6),  # plot was
        (-0.3, 1, 7, 7),  # bad
        (-0.4, 1, 8, 7),  # backward
        (-0.5, 2, 9, 13),  # the separator
        (-0.6, 2, 9, 12),  # the film was good
        (-0.7, 0, 0, 4),  # five tokens, longer than four
        (-0.8, 0, -4, -4),  # [CLS]
        (-0.9, 1, 6, 7),  # was bad
    ]
    scores, starts, ends = (torch.full((3, 9), fill) for fill in (-1e30, 0, 0))
    for k, (score, row, first, last) in enumerate(beam):
        shift = held.spots[row].start - held.spots[row].begin if first >= 0 else 4
        scores[row, k], starts[row, k], ends[row, k] = score, first + shift, last + shift
    answers = {
        "scores": scores,
        "starts": starts.int(),
        "ends": ends.int(),
        "null": torch.tensor([0.5, -2.0, 1.0]),
    }
    (guesses,) = problem.guesses(held, answers)
    assert [(g.text, round(g.score, 3)) for g in guesses] == [
        ("plot was", -0.2),
        ("bad", -0.3),
        ("the film was good", -0.6),
        ("was bad", -0.9),
    ]
    files = problem.files(held, answers, "x")
    assert json.loads(files["x.null_odds.json"]) == {"q": -2.0}, (
        "the least of its windows, the classifier's alone"
    )


def test_padding_does_not_change_an_answer(zoo: Path):
    every = list(questions(impossible=True)[:6])
    problem = of(zoo, every, length=32, stride=9, head="electra", answerless=True)
    torch.manual_seed(0)
    net = problem.model(dropout=0.0, std=None).eval()
    rows = problem.held_out(every).data
    with torch.no_grad():
        together = net.answers(rows.batch(torch.arange(len(rows.lengths_N))))
        for k in range(len(rows.lengths_N)):
            alone = net.answers(rows.batch(torch.tensor([k])))
            there = alone["scores"][0] > -1e29
            torch.testing.assert_close(
                together["scores"][k][there], alone["scores"][0][there], atol=1e-4, rtol=1e-4
            )
            torch.testing.assert_close(together["null"][k], alone["null"][0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("impossible", [False, True])
def test_it_learns_to_answer(zoo: Path, impossible: bool):
    data = task(impossible=impossible)
    settings: dict[str, Any] = THOROUGH | {"answer_head": "electra"}
    found = finetune_one(str(zoo / "electra"), data, seed=0, settings=FinetuneSettings(**settings))
    assert next(iter(found.scores.values())) > 0.9, found.curve
    predictions = json.loads(found.files["squad.predictions.json"])
    contexts = {q.id: q.context for q in data.validation if isinstance(q, Question)}
    assert all(text in contexts[key] for key, text in predictions.items())
    assert ("squad.null_odds.json" in found.files) == impossible
    if impossible:
        assert found.scores["no_answer_exact"] > 0.8


def test_it_learns_from_short_windows_where_the_answer_is_in_one(zoo: Path):
    """Contexts of three windows, the answer in one: the others point at the class token, and the
    best span over all windows is the right one."""
    every = []
    for k, a in enumerate(("good", "great", "fine", "bad", "awful", "poor") * 4):
        filler = ["it was one film and"] * 3
        filler.insert(k % 4, f"the plot is very {a} and")
        context = " ".join(filler)
        every.append(
            Question(f"q{k}", "plot", context, (Answer(f"very {a}", context.index("very")),))
        )
    data = answering_of("t", tuple(every), tuple(every), epochs=2)
    settings: dict[str, Any] = THOROUGH | {
        "answer_head": "electra",
        "max_seq_length": 16,
        "doc_stride": 6,
        "num_train_epochs": 12,
    }
    found = finetune_one(str(zoo / "electra"), data, seed=0, settings=FinetuneSettings(**settings))
    assert found.scores["exact"] > 0.9, found.curve


def test_the_published_protocol_takes_it(zoo: Path, tmp_path: Path):
    assert FinetuneSettings(protocol="published").filled().answer_head == "electra"
    rows = [
        {"context": q.context, "question": q.question, "answers": [q.answers[0].text]}
        for q in questions(impossible=False)
    ]
    for name in ("train", "held"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common: dict[str, Any] = {
        "train_file": str(tmp_path / "train.jsonl"),
        "validation_file": str(tmp_path / "held.jsonl"),
        "seeds": 1,
    }
    settings = FinetuneSettings(protocol="published", num_train_epochs=1, bf16="false")
    options = FinetuneConfig(
        models=(str(zoo / "bert"),), output_dir=str(tmp_path / "out"), settings=settings, **common
    )
    assert 0 <= finetune(options).rows[0].median <= 1
    with pytest.raises(
        UserError, match="--save-model with question answering needs --answer-head plain"
    ):
        finetune(dataclasses.replace(options, output_dir=str(tmp_path / "kept"), save_model=True))
