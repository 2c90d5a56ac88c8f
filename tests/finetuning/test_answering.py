"""Questions: windows of contexts, spans and their scores, and ELECTRA's own head by hand."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy import THOROUGH, Given, answering, reader_of
from zoo import predict

from electrify.finetuning import encoding
from electrify.finetuning.encoding import NEVER, Guess, Part, spans_of
from electrify.finetuning.loop import Answered, Batch
from electrify.finetuning.one_run import finetune_one
from electrify.finetuning.problems import Answering
from electrify.finetuning.published import ElectraHead, ElectraQuestions, owned
from electrify.finetuning.tasks import Answer, Question

CONTEXT = "it was one film the plot was bad and the film was good"
TOLD = Question("q", "the film", CONTEXT, (Answer("good", CONTEXT.index("good")),))
SILENT = Question("r", "the film", CONTEXT, ())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DOC_STRIDE": 3, "N_BEST": 5, "LONGEST_ANSWER": 4}.items():
        monkeypatch.setattr(encoding, name, value)


def reading(zoo: Path, *, electra: bool = False, answerless: bool = False) -> Any:
    made, reader = ElectraQuestions if electra else Answering, reader_of(zoo / "bert")
    return made(reader, "answering", (), answerless=answerless, max_seq_length=13)


def batch_of(places: list[int], targets: list[int] | None = None) -> Batch:
    """One row. places: 1 for the class token and the tokens of the context."""
    marks = torch.tensor([places], dtype=torch.bool)
    return Batch({}, torch.tensor([len(places)]), marks, torch.tensor([targets or [0, 0, 0]]))


def likely(outputs: list[Tensor]) -> dict[tuple[int, int], float]:
    """The spans of the first row that are not impossible, with their scores."""
    columns = (column[0].tolist() for column in outputs[:3])
    return {(s, e): v for v, s, e in zip(*columns, strict=True) if v > NEVER / 10}


def test_windows_by_hand(zoo: Path) -> None:
    """[CLS] the film [SEP] leaves 8 of 13 tokens for a window; they begin every 3 tokens of 13."""
    problem = reading(zoo)
    rows = problem.rows([TOLD])
    assert [(w.begin, w.end, w.start) for w in rows.spots] == [(0, 8, 4), (3, 11, 4), (6, 13, 4)]
    # Windows without the answer are left out where every question has one.
    assert problem.training([TOLD]).targets.tolist() == [[10, 10, 0]]
    every = reading(zoo, answerless=True).training([TOLD, SILENT])
    assert every.targets.tolist() == [[0, 0, 0], [0, 0, 0], [10, 10, 0], *[[0, 0, 1]] * 3]
    batch = rows.batch(torch.tensor([2]))
    assert batch.places_BL.int().tolist() == [[1, 0, 0, 0, *[1] * 7, 0]]
    tokens = problem.reader.tokenizer.convert_ids_to_tokens(batch.inputs["input_ids"][0])
    wanted = "[CLS] the film [SEP] was bad and the film was good [SEP]"
    assert tokens == wanted.split()


def test_windows_of_the_published_protocol_by_hand(zoo: Path) -> None:
    """All windows are kept, of SQuAD 1.1 too; those without the answer point at the class token."""
    for answerless in (False, True):
        problem = reading(zoo, electra=True, answerless=answerless)
        assert problem.training([TOLD]).targets.tolist() == [[0, 0, 0], [0, 0, 0], [10, 10, 0]]
    assert problem.training([SILENT]).targets.tolist() == [[0, 0, 1]] * 3
    rows = problem.rows([TOLD])
    assert owned([(w.begin, w.end) for w in rows.spots]) == [(0, 6), (6, 9), (9, 13)]
    # The separator after the context may be chosen.
    batch = rows.batch(torch.tensor([2]))
    assert batch.places_BL.int().tolist() == [[1, 0, 0, 0, *[1] * 8]]


def test_spans_and_their_loss_by_hand(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start logits 1 9 3 2 5, end logits 2 9 1 4 0; places 2, 3, 4; the class token is 0."""
    problem = reading(zoo, answerless=True)
    net = Given(torch.tensor([[[1.0, 2], [9, 9], [3, 1], [2, 4], [5, 0]]])).requires_grad_(False)
    places = [1, 0, 1, 1, 1]
    monkeypatch.setattr(encoding, "N_BEST", 3)
    monkeypatch.setattr(encoding, "LONGEST_ANSWER", 2)
    part = Part(0, 0, 3, 2, 0, [(0, 1)] * 3)
    scores, starts, ends, null = spans_of(part, net(None)[0].numpy())
    # (2, 3) 3+4, (3, 3) 2+4, (4, 4) 5+0. (2, 4) has more than 2 tokens, (4, 3) is backward.
    assert (scores.tolist(), starts.tolist(), ends.tolist()) == ([7, 6, 5], [2, 3, 4], [3, 3, 4])
    assert null == 3
    start, end = torch.tensor([1.0, 3, 2, 5]), torch.tensor([2.0, 1, 4, 0])
    for targets, first, last in (([2, 3, 0], 1, 2), ([0, 0, 1], 0, 0)):
        wanted = -(start.log_softmax(0)[first] + end.log_softmax(0)[last]) / 2
        torch.testing.assert_close(problem.loss(net, batch_of(places, targets)), wanted)


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def log_softmax(logits: list[float]) -> list[float]:
    total = math.log(sum(math.exp(x) for x in logits))
    return [x - total for x in logits]


def test_the_head_by_hand(zoo: Path) -> None:
    """Width 1; [CLS], a word of the question, three of the context. One hidden unit works: the
    start's state - 2 * the token's + 1."""
    problem = reading(zoo, electra=True, answerless=True)
    head: Any = ElectraHead(problem.reader, dropout=0.0)
    head.start, head.hidden = torch.nn.Linear(1, 1), torch.nn.Linear(2, 512)
    head.none = torch.nn.Sequential(
        torch.nn.Linear(2, 512), torch.nn.GELU(), torch.nn.Linear(512, 1)
    )
    head.encoder, head.states = None, lambda batch: head.given
    with torch.no_grad():
        for p in head.parameters():
            p.zero_()
        head.start.weight.fill_(2.0)
        head.hidden.weight[7] = torch.tensor([1.0, -2.0])  # the start's state comes first
        head.hidden.bias[7] = 1.0
        head.end.weight[0, 7] = 3.0
        head.none[0].weight[5] = torch.tensor([1.0, 4.0])  # the class token's state comes first
        head.none[2].weight[0, 5] = 1.0
        head.none[2].bias.fill_(-0.5)
    values = [0.3, 9.0, 0.1, 0.9, 0.5]
    head.given, places, allowed = torch.tensor(values)[None, :, None], [1, 0, 1, 1, 1], [0, 2, 3, 4]
    start = dict(zip(allowed, log_softmax([2 * values[k] for k in allowed]), strict=True))

    def end(first: int) -> dict[int, float]:
        logits = [3 * gelu(values[first] - 2 * values[k] + 1) for k in allowed]
        return dict(zip(allowed, log_softmax(logits), strict=True))

    mean = sum(math.exp(start[k]) * values[k] for k in allowed)
    none = gelu(values[0] + 4 * mean) - 0.5
    for first, last, impossible in ((3, 4, 0), (0, 0, 0), (0, 0, 1)):
        spans = -(start[first] + end(first)[last]) / 2
        wanted = spans + 0.5 * (math.log1p(math.exp(none)) - impossible * none)
        found = problem.loss(head, batch_of(places, [first, last, impossible]))
        assert found.item() == pytest.approx(wanted, abs=1e-5)
    with torch.no_grad():
        outputs = problem.beam(head, batch_of(places))
    assert outputs[3].item() == pytest.approx(none, abs=1e-5)
    # Whatever they are: the end before the start, and the class token.
    wanted = {(s, e): start[s] + end(s)[e] for s, e in itertools.product(allowed, allowed)}
    assert likely(outputs) == pytest.approx(wanted, abs=1e-5)


def test_which_of_the_beam_are_answers(zoo: Path) -> None:
    """A span must begin where its window shows most, stay in the context, and be neither backward
    nor too long; the class token is not an answer."""
    problem = reading(zoo, electra=True, answerless=True)
    rows = problem.rows([TOLD])
    beam = [  # score, row, first and last token of the context
        (-0.1, 0, 7, 7),  # bad: the second window shows more of what follows
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
        shift = rows.spots[row].start - rows.spots[row].begin if first >= 0 else 4
        scores[row, k], starts[row, k], ends[row, k] = score, first + shift, last + shift
    null, shortest = torch.tensor([0.5, -2.0, 1.0]), [2, 0, 1]
    problem.beam = lambda net, batch: [x[shortest] for x in (scores, starts, ends, null)]
    (found,) = problem.answers(torch.nn.Module(), Answered([TOLD], rows))
    assert [Guess(g.text, round(g.score, 3)) for g in found.guesses] == [
        Guess("plot was", -0.2),
        Guess("bad", -0.3),
        Guess("the film was good", -0.6),
        Guess("was bad", -0.9),
    ]
    assert found.none == -2.0  # the least of its windows, the classifier's alone


def test_answers_are_learnt(zoo: Path, tmp_path: Path) -> None:
    """And that there is none; predicted by the saved model as they were scored."""
    task = answering(impossible=True)
    settings = replace(THOROUGH, learning_rate=5e-3, num_train_epochs=30.0)
    saved = tmp_path / "saved"
    found = finetune_one(str(zoo / "electra"), task, seed=0, settings=settings, save_to=saved)
    assert next(iter(found.scores.values())) > 0.9, found.curve
    predictions = json.loads(found.files["squad.predictions.json"])
    every = [q for q in task.validation if isinstance(q, Question)]
    assert predictions.keys() == {q.id for q in every}
    assert all(predictions[q.id] in q.context for q in every)
    for guesses in json.loads(found.files["squad.nbest.json"]).values():
        assert [g["score"] for g in guesses] == sorted((g["score"] for g in guesses), reverse=True)
    assert "squad.null_odds.json" in found.files
    assert found.scores["no_answer_exact"] > 0.8
    assert "" in predictions.values()
    asked, contexts = [q.question for q in every], [q.context for q in every]
    again = predict(saved, asked, pairs=contexts, bf16="false", device="cpu")
    assert [one["predicted_answer"] for one in again] == [predictions[q.id] for q in every]
