from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from electrify.downstream.answer_heads import JointHead, SpanHead
from electrify.downstream.answers import score_answers
from electrify.downstream.encoder import load
from electrify.downstream.examples import Answer, Question
from electrify.downstream.finetune import finetune
from electrify.downstream.heads import Batch
from electrify.downstream.known_tasks import ANSWERING, NO_ANSWER_METRICS
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.problems.answering import Answering
from electrify.downstream.problems.windows import tokens_of
from electrify.downstream.read.task import answering_of, read_task
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

CPU = torch.device("cpu")
DATA = Path(__file__).parents[3] / "shared" / "data" / "squad"
ADJECTIVES = ("good", "great", "fine", "bad", "awful", "poor")


def questions(*, impossible: bool) -> tuple[Question, ...]:
    """What the film was: the adjective and the `very` before it. With impossible also contexts that
    do not tell."""
    found = []
    for k, a in enumerate(ADJECTIVES):
        for n, thing in enumerate(("film", "plot", "one")):
            for told in (
                "It is a {n} and the {n} was very {a}.",
                "Very {a} was the {n}, and it was one.",
            ):
                context = told.format(a=a, n=thing)
                answer = f"Very {a}" if told.startswith("Very") else f"very {a}"
                found.append(
                    Question(
                        f"q{len(found)}",
                        f"The {thing}?",
                        context,
                        (Answer(answer, context.index(answer)),),
                    )
                )
            if impossible:
                found.append(
                    Question(
                        f"q{len(found)}",
                        f"The {thing}?",
                        f"It is {'not ' * (k + n)}the {thing} and it was one.",
                        (),
                    )
                )
    return tuple(found)


def task(*, impossible: bool) -> TaskData:
    every = questions(impossible=impossible)
    return answering_of("squad", every, every[::2], epochs=2)


THOROUGH = {
    "learning_rate": 5e-3, "layerwise_lr_decay": 1.0, "num_train_epochs": 30,
    "per_device_train_batch_size": 8, "bf16": "false", "dropout": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("head", ["joint", "plain"])
@pytest.mark.parametrize("impossible", [False, True])
def test_it_learns_to_answer(zoo: Path, head: str, impossible: bool):
    data = task(impossible=impossible)
    found = finetune_one(
        str(zoo / "electra"), data, seed=0, settings=FinetuneSettings(**THOROUGH, answer_head=head)
    )  # type: ignore[arg-type]
    assert next(iter(found.scores.values())) > 0.9, found.curve
    predictions = json.loads(found.files["squad.predictions.json"])
    assert predictions.keys() == {q.id for q in data.validation if isinstance(q, Question)}
    contexts = {q.id: q.context for q in data.validation if isinstance(q, Question)}
    assert all(text in contexts[key] for key, text in predictions.items()), (
        "characters of the context, not of the tokens"
    )
    nbest = json.loads(found.files["squad.nbest.json"])
    assert all(
        [g["score"] for g in found] == sorted((g["score"] for g in found), reverse=True)
        for found in nbest.values()
    )
    if impossible:
        assert found.scores["no_answer_exact"] > 0.8
        assert "" in predictions.values()
        assert json.loads(found.files["squad.null_odds.json"]).keys() == predictions.keys()
    else:
        assert "squad.null_odds.json" not in found.files


def of(
    zoo: Path,
    every: list[Question],
    *,
    length: int,
    stride: int,
    head: str = "plain",
    answerless: bool = False,
) -> Answering:
    data = answering_of(
        "t",
        tuple(every),
        (*every, *([Question("none", "film", "film", ())] if answerless else [])),
        epochs=1,
    )
    loaded = load(str(zoo / "bert"), device=CPU)
    return Answering(
        data,
        loaded,
        max_seq_length=length,
        device=CPU,
        doc_stride=stride,
        head=head,
        n_best=5,
        beam=3,
        longest_answer=4,
    )


def test_windows_by_hand(zoo: Path):
    """[CLS] the film ? [SEP] leaves 8 of 14 tokens for a window; they begin every 3 tokens. `?` and
    `.` are unknown here."""
    context = "it was one film the plot was bad and the film was good"
    question = Question("q", "the film", context, (Answer("good", context.index("good")),))
    problem = of(zoo, [question], length=13, stride=3)
    held = problem.held_out([question])
    assert [(w.begin, w.end, w.start) for w in held.spots] == [(0, 8, 4), (3, 11, 4), (6, 13, 4)]
    data = problem.training([question])
    assert len(data.lengths_N) == 1, (
        "windows without the answer are left out where every question has one"
    )
    assert data.targets.tolist() == [[10, 10, 0]]
    assert (
        len(of(zoo, [question], length=13, stride=3, answerless=True).training([question]).targets)
        == 3
    )
    batch = held.data.batch(torch.tensor([2]))
    assert batch.places_BL.tolist() == [[False] * 4 + [True] * 7 + [False]]
    text = problem.loaded.tokenizer.convert_ids_to_tokens(batch.inputs["input_ids"][0])
    assert text == [
        "[CLS]",
        "the",
        "film",
        "[SEP]",
        "was",
        "bad",
        "and",
        "the",
        "film",
        "was",
        "good",
        "[SEP]",
    ]


@given(
    st.lists(
        st.sampled_from(["film", "films", "Bad", "plot,", "é", "the\u00a0", "-", "Was", "x"]),
        min_size=1,
        max_size=12,
    ),
    st.data(),
)
def test_an_answer_survives_the_way_to_tokens_and_back(
    zoo: Path, words: list[str], data: st.DataObject
):
    """Any run of words, with capitals, accents and marks, is found again as characters of the
    context that hold it."""
    context = " ".join(words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start = len(" ".join(words[:first])) + (1 if first else 0)
    answer = Answer(context[start : len(" ".join(words[: last + 1]))], start)
    tokenizer = load(str(zoo / "bert"), device=CPU).tokenizer if not TOKENIZER else TOKENIZER[0]
    TOKENIZER[:] = [tokenizer]
    offsets = tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    found = tokens_of(answer, offsets)
    assert found is not None
    text = context[offsets[found[0]][0] : offsets[found[1]][1]]
    assert text.strip() == answer.text.strip()


TOKENIZER: list = []


def batch_of(places: list[int], targets: list[list[int]] | None = None) -> Batch:
    marks = torch.tensor([places], dtype=torch.bool)
    return Batch({}, torch.tensor([len(places)]), marks, torch.tensor(targets or [[0, 0, 0]]))


def test_the_plain_head_by_hand():
    head = SpanHead(2, dropout=0.0, std=0.02, last=False, keep=3, longest_answer=2)
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(2))
    # start logits 1 9 3 2 5, end logits 2 9 1 4 0; places 2, 3, 4; the class token is 0
    states = torch.tensor([[[1.0, 2], [9, 9], [3, 1], [2, 4], [5, 0]]])
    found = head.answers(states, batch_of([0, 0, 1, 1, 1]))
    # (2,3) 3+4, (3,3) 2+4, (4,4) 5+0; (2,4) is longer than 2 tokens, (4,3) ends before it begins
    assert found["scores"].tolist() == [[7, 6, 5]]
    assert (found["starts"].tolist(), found["ends"].tolist()) == ([[2, 3, 4]], [[3, 3, 4]])
    assert found["null"].tolist() == [3]
    start, end = torch.tensor([1.0, 3, 2, 5]), torch.tensor([2.0, 1, 4, 0])
    wanted = -(start.log_softmax(0)[1] + end.log_softmax(0)[2]) / 2
    torch.testing.assert_close(head.loss(states, batch_of([0, 0, 1, 1, 1], [[2, 3, 0]])), wanted)
    none = -(start.log_softmax(0)[0] + end.log_softmax(0)[0]) / 2
    torch.testing.assert_close(head.loss(states, batch_of([0, 0, 1, 1, 1], [[2, 2, 1]])), none)


def joint(*, answerable: bool, beam: int = 4, std: float = 1.0) -> JointHead:
    torch.manual_seed(0)
    return JointHead(
        3,
        dropout=0.0,
        std=std,
        last=False,
        keep=30,
        longest_answer=9,
        beam=beam,
        answerable=answerable,
    )


def test_the_joint_head_is_a_distribution_over_spans():
    """With every start in the beam: log P(start) + log P(end | start), which sum to one over all
    pairs when ends before starts are allowed."""
    head, states = joint(answerable=False), torch.randn(1, 6, 3)
    batch = batch_of([0, 0, 1, 1, 1, 1])
    found = head.answers(states, batch)
    kept = {
        (s, e): v
        for s, e, v in zip(
            *(found[k][0].tolist() for k in ("starts", "ends", "scores")), strict=True
        )
        if v > -1e29
    }
    assert set(kept) == {(s, e) for s in range(2, 6) for e in range(s, 6)}
    start = head._starts(states, batch).log_softmax(-1)[0]
    total = 0.0
    for s in range(2, 6):
        ends = head._ends(head.from_state(states), states[:, s], batch).log_softmax(-1)[0]
        for e in range(2, 6):
            total += (start[s] + ends[e]).exp().item()
            if e >= s:
                assert kept[s, e] == pytest.approx((start[s] + ends[e]).item(), abs=1e-5)
                mine = Batch(
                    batch.inputs, batch.lengths_B, batch.places_BL, torch.tensor([[s, e, 0]])
                )
                assert head.loss(states, mine).item() == pytest.approx(
                    -(start[s] + ends[e]).item() / 2, abs=1e-5
                )
    assert total == pytest.approx(1, abs=1e-5)


def test_a_question_without_an_answer_teaches_the_spans_nothing():
    head, states = joint(answerable=True, std=0.1), torch.randn(1, 6, 3)
    head.loss(states, batch_of([0, 0, 1, 1, 1, 1], [[2, 2, 1]])).backward()
    assert float(head.end.weight.grad.abs().sum()) == 0
    assert head.none is not None
    assert all(float(p.grad.abs().sum()) > 0 for p in head.none.parameters())
    with torch.no_grad():
        before = head.answers(states, batch_of([0, 0, 1, 1, 1, 1]))["null"]
        for p in head.parameters():
            if p.grad is not None:
                p -= 0.5 * p.grad
        assert head.answers(states, batch_of([0, 0, 1, 1, 1, 1]))["null"] > before


def test_a_beam_narrower_than_the_context_keeps_the_likeliest_starts():
    head, states = joint(answerable=False, beam=2), torch.randn(1, 6, 3)
    found = head.answers(states, batch_of([0, 0, 1, 1, 1, 1]))
    best = head._starts(states, batch_of([0, 0, 1, 1, 1, 1]))[0].topk(2).indices.tolist()
    assert {
        s
        for s, v in zip(found["starts"][0].tolist(), found["scores"][0].tolist(), strict=True)
        if v > -1e29
    } == set(best)


def test_padding_does_not_change_an_answer(zoo: Path):
    every = list(questions(impossible=True)[:6])
    for head in ("plain", "joint"):
        problem = of(zoo, every, length=32, stride=9, head=head, answerless=True)
        torch.manual_seed(0)
        net = problem.model(dropout=0.0, std=0.5).eval()
        rows = problem.held_out(every).data
        with torch.no_grad():
            together = net.answers(rows.batch(torch.arange(len(rows.lengths_N))))
            for k in range(len(rows.lengths_N)):
                alone = net.answers(rows.batch(torch.tensor([k])))
                there = alone["scores"][0] > -1e29
                for name in ("scores", "starts", "ends"):
                    torch.testing.assert_close(
                        together[name][k][there], alone[name][0][there], atol=1e-4, rtol=1e-4
                    )
                torch.testing.assert_close(
                    together["null"][k], alone["null"][0], atol=1e-4, rtol=1e-4
                )


def test_a_saved_reader(zoo: Path, tmp_path: Path):
    data = task(impossible=False)
    settings = FinetuneSettings(**THOROUGH, answer_head="plain")  # type: ignore[arg-type]
    found = finetune_one(
        str(zoo / "electra"), data, seed=0, settings=settings, save_to=tmp_path / "saved"
    )
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "saved").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    predictions = json.loads(found.files["squad.predictions.json"])
    same = 0
    for q in data.validation[:10]:
        assert isinstance(q, Question)
        inputs = tokenizer(q.question, q.context, return_tensors="pt", return_offsets_mapping=True)
        offsets, asked = (
            inputs.pop("offset_mapping")[0],
            torch.tensor([part != 1 for part in inputs.sequence_ids(0)]),
        )
        with torch.no_grad():
            out = model(**inputs)
        first, last = (
            int(logits[0].masked_fill(asked, -1e9).argmax())
            for logits in (out.start_logits, out.end_logits)
        )
        same += q.context[offsets[first][0] : offsets[last][1]] == predictions[q.id]
    assert same == 10


def test_official_json_from_end_to_end(zoo: Path, tmp_path: Path):
    def official(every: tuple[Question, ...]) -> str:
        rows = []
        for q in every:
            answers = [{"text": a.text, "answer_start": a.start} for a in q.answers]
            rows.append(
                {
                    "context": q.context,
                    "qas": [
                        {
                            "id": q.id,
                            "question": q.question,
                            "is_impossible": not q.answers,
                            "answers": answers,
                        }
                    ],
                }
            )
        return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": rows}]})

    every = questions(impossible=True)
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad" / "train-v2.0.json").write_text(official(every))
    (tmp_path / "squad" / "dev-v2.0-subset.json").write_text(official(every[::2]))
    out = tmp_path / "out"
    settings = FinetuneSettings(num_train_epochs=1)
    options = FinetuneConfig(
        models=(str(zoo / "bert"),),
        task=("squad2",),
        data_dir=str(tmp_path),
        output_dir=str(out),
        seeds=1,
        settings=settings,
    )
    report = finetune(options)
    assert [r.metric for r in report.rows] == list(NO_ANSWER_METRICS)
    notes = report.notes()
    assert (
        notes[0]
        == "squad2: dev-v2.0-subset.json (27 questions) stands in for the official dev-v2.0.json"
    )
    assert "contexts of the validation questions are among the training contexts" in notes[1]
    (predictions,) = out.glob("predictions/*/squad2-seed0/squad2.predictions.json")
    assert len(json.loads(predictions.read_text())) == 27
    text = (out / "report.md").read_text()
    assert "ELECTRA-Small++ 70.1" in text
    with pytest.raises(
        UserError, match="--save-model with question answering needs --answer-head plain"
    ):
        finetune(
            FinetuneConfig(
                models=(str(zoo / "bert"),),
                task=("squad2",),
                data_dir=str(tmp_path),
                output_dir=str(tmp_path / "o2"),
                save_model=True,
            )
        )


@pytest.mark.parametrize("head", ["plain", "joint"])
def test_contexts_of_nothing_and_spans_of_blanks(zoo: Path, head: str):
    """A context that the tokenizer drops has no answer, and an answer of blanks is none."""
    every = [
        Question("q0", "film", "\u200b", ()),
        Question("q1", "film", "film  \n plot", (Answer("film", 0),)),
    ]
    problem = of(zoo, every, length=32, stride=9, head=head, answerless=True)
    held = problem.held_out(every)
    net = problem.model(dropout=0.0, std=0.5).eval()
    with torch.no_grad():
        answers = net.answers(held.data.batch(torch.tensor([0, 1])))
    guesses = problem.guesses(held, answers)
    assert guesses[0] == []
    assert {g.text for g in guesses[1]} == {"film", "plot", "film  \n plot"}
    window = held.spots[1]
    blank = dataclasses.replace(
        window, offsets=[(4, 6), *window.offsets[1:]]
    )  # as of a token that is two blanks
    guesses = problem.guesses(dataclasses.replace(held, spots=[held.spots[0], blank]), answers)
    assert "" not in {g.text for g in guesses[1]}
    scores = problem.score(held, answers)
    assert scores["no_answer_exact"] == 1.0


def test_a_tokenizer_without_offsets_is_refused(zoo: Path):
    loaded = load(str(zoo / "bert"), device=CPU)
    slow = dataclasses.replace(loaded, tokenizer=type("SlowTokenizer", (), {"is_fast": False})())
    with pytest.raises(UserError, match="SlowTokenizer does not tell where its tokens are"):
        Answering(
            task(impossible=False),
            slow,
            max_seq_length=32,
            device=CPU,
            doc_stride=9,
            head="plain",
            n_best=5,
            beam=3,
            longest_answer=4,
        )


WRONG = [
    ("squad1", True, "has unanswerable questions"),
    ("squad2", False, "has no unanswerable question"),
]


@pytest.mark.parametrize(("name", "impossible", "said"), WRONG)
def test_the_wrong_squad_is_told(tmp_path: Path, name: str, impossible: bool, said: str):
    answers = [] if impossible else [{"text": "film", "answer_start": 0}]
    rows = [
        {
            "context": "film",
            "qas": [
                {"id": "q", "question": "what", "answers": answers, "is_impossible": impossible}
            ],
        }
    ]
    version = {"squad1": "v1.1", "squad2": "v2.0"}[name]
    for part in ("train", "dev"):
        (tmp_path / f"{part}-{version}.json").write_text(
            json.dumps({"data": [{"title": "t", "paragraphs": rows}]})
        )
    with pytest.raises(UserError, match=said):
        read_task(ANSWERING[name], str(tmp_path))


def test_no_answer_fits(zoo: Path):
    context = "one film " * 20
    question = Question("q", "the film", context, (Answer(context.strip(), 0),))
    with pytest.raises(UserError, match="no training answer fits into 20 tokens"):
        of(zoo, [question], length=20, stride=5).training([question])


@pytest.mark.parametrize(
    ("name", "train", "dev", "notes"), [("squad1", 11_877, 2_910, 2), ("squad2", 15_853, 2_102, 2)]
)
def test_the_shared_files(name: str, train: int, dev: int, notes: int):
    if not DATA.is_dir():
        pytest.skip("no ../shared/data/squad")
    data = read_task(ANSWERING[name], str(DATA.parent))
    assert (len(data.train), len(data.validation), len(data.notes)) == (train, dev, notes)


@pytest.mark.parametrize("head", ["joint", "plain"])
def test_a_part_without_one_kind_of_questions(zoo: Path, head: str) -> None:
    """The metrics are those of the whole set; a part of it may have no question of one kind."""
    good = (Answer("good", 13),)
    some = [Question(f"q{k}", "film", "the film was good", good) for k in range(4)]
    problem = of(zoo, some, length=16, stride=4, head=head, answerless=True)
    every = [q for q in problem.task.validation if isinstance(q, Question)]
    net = problem.model(dropout=0.0, std=0.5).eval()
    scores = {}
    for name, part in (("answered", every[:4]), ("unanswered", every[4:]), ("both", every)):
        held = problem.held_out(part)
        with torch.no_grad():
            answers = net.answers(held.data.batch(torch.arange(len(held.spots))))
        scores[name] = problem.score(held, answers)
        written = json.loads(problem.files(held, answers, "t")["t.predictions.json"])
        of_file = score_answers(part, written)
        assert of_file["f1"] == pytest.approx(scores[name]["best_f1"]), name
        at = problem.threshold(held, answers)
        assert at in (scores[name]["best_f1_threshold"], -math.inf)
        assert [key for key in scores[name] if key in problem.task.metrics] == [
            *problem.task.metrics
        ]
    found = scores["answered"]
    assert math.isnan(found["no_answer_exact"])
    assert found["f1"] <= found["best_f1"]
    assert math.isnan(scores["unanswered"]["has_answer_f1"])
    assert scores["unanswered"]["no_answer_exact"] == scores["unanswered"]["exact"]
    assert all(map(math.isfinite, scores["both"].values()))
