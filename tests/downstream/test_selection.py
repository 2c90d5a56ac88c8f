"""The best evaluation by examples held out of the training set, early stopping, the minimum of
updates, and the weights of classes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from electrify.downstream import one_run
from electrify.downstream.class_weights import class_weights
from electrify.downstream.curve import Best, Curve
from electrify.downstream.epochs import (
    MOST_EPOCHS,
    epochs_of,
    examples_of,
    training_examples,
    updates_of,
)
from electrify.downstream.examples import Answer, Example, Partly, Question, Sentence
from electrify.downstream.finetune import finetune
from electrify.downstream.heads import grade_class, grade_each
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.read.own import read_own
from electrify.downstream.read.task import answering_of, tagging_of
from electrify.downstream.tasks import MIN_UPDATES, Examples, Kind, TaskData
from electrify.errors import UserError

SELECTING = FinetuneSettings(
    num_train_epochs=6,
    max_seq_length=16,
    bf16="false",
    per_device_train_batch_size=8,
    learning_rate=2e-3,
    load_best_model_at_end=True,
    selection_fraction=0.2,
    eval_steps=4,
)


def task(train: Examples, kind: Kind = "classification", labels: int = 2) -> TaskData:
    return TaskData("t", kind, tuple("abc"[:labels]), ("accuracy",), 3, train, train)


def test_the_chosen_evaluation_is_the_one_that_is_scored_and_saved(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The held-out scores are made up: the third evaluation is the best. The scores, the answers
    and the saved weights are those of a run that ends there."""
    scores = iter([0.1, 0.2, 0.9, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])
    see = Best.see

    def made_up(self: Best, number: int, score: float, *rest: object) -> None:
        see(self, number, next(scores), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Best, "see", made_up)
    own = read_own(*reviews)
    model = str(zoo / "electra")
    found = finetune_one(model, own, seed=0, settings=SELECTING, save_to=tmp_path / "saved")
    assert [p.chosen for p in found.curve].index(True) == 2
    assert found.scores == found.curve[2].metrics
    # The rate of the first twelve updates is that of the whole run, so a run that is cut off there
    # ends with the same weights.
    after = Curve.after

    def cut(self: Curve, step: int, *rest: object) -> bool:
        return after(self, step, *rest) and step < 12  # type: ignore[arg-type]

    scores = iter([0.1, 0.2, 0.9])
    monkeypatch.setattr(Curve, "after", cut)
    ended = finetune_one(model, own, seed=0, settings=SELECTING, save_to=tmp_path / "cut")
    assert ended.files == found.files
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("saved", "cut")]
    assert weights[0] == weights[1]


def test_patience(zoo: Path, reviews: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After the best evaluation, so many others end the run; the bar is full all the same."""
    scores = iter([0.1, 0.5, 0.4, 0.5, 0.9])
    see = Best.see
    monkeypatch.setattr(
        Best, "see", lambda self, n, score, *rest: see(self, n, next(scores), *rest)
    )
    done: list[float] = []

    class Bar:
        def advance(self, count: float, note: str) -> None:
            done.append(count)

    settings = replace(SELECTING, early_stopping_patience=2)
    own = read_own(*reviews)
    found = finetune_one(str(zoo / "electra"), own, seed=0, settings=settings, progress=Bar())  # type: ignore[arg-type]
    assert [p.selection for p in found.curve[:2]] != []
    assert found.updates == found.curve[-1].step == 16
    assert found.scores == found.curve[1].metrics
    assert sum(done) == pytest.approx(updates_of(own, settings))


def test_a_rare_class_is_held_out_too(reviews: tuple[str, str]) -> None:
    """4 of 200: by its share none would be, and an area under a curve would not exist."""
    tenth = replace(SELECTING, selection_fraction=None)
    for rare, seed in itertools.product((2, 4), range(5)):
        for rows in (range(200), range(199, -1, -1)):
            own = task(tuple(Example(f"t{k}", None, int(k < rare)) for k in rows))
            shown = examples_of(own, seed=seed, settings=tenth)
            held = [e.label for e in shown.selection]
            assert (held.count(1), held.count(0)) == (1, 20)
            assert sum(e.label for e in shown.examples) == rare - 1
    alone = task(tuple(Example(f"t{k}", None, int(k < 1)) for k in range(200)))
    assert all(e.label == 0 for e in examples_of(alone, seed=0, settings=tenth).selection)
    several = tuple(Example(f"t{k}", None, (0,) if k < 4 else ()) for k in range(200))
    shown = examples_of(task(several, "multilabel"), seed=0, settings=tenth)
    assert [e.label for e in shown.selection].count((0,)) == 1
    many = task(tuple(Example(f"t{k}", None, k % 100) for k in range(200)))
    assert len(examples_of(many, seed=0, settings=tenth).selection) <= 30


def test_held_out_values_among_which_nothing_can_be_chosen(zoo: Path, tmp_path: Path) -> None:
    """The validation file is not to blame; and seeds after the first are looked at before it is
    trained."""
    values = [0.0, 1.0, 2.0, 3.0, 4.0, *[5.5] * 15]
    tenth = replace(SELECTING, selection_fraction=0.1)
    rows = tuple(Example(f"t{k}", None, value) for k, value in enumerate(values))
    own = task(rows, "regression")
    found: list[str] = []
    for seed in range(10):
        try:
            assert len(examples_of(own, seed=seed, settings=tenth).selection) == 2
            found.append("")
        except UserError as e:
            found.append(str(e))
    odd = [text for text in found if text]
    assert 0 < len(odd) < 10
    says = "with --selection-fraction 0.1, every label of the 2 training examples that are held out"
    assert all(says in text for text in odd)
    first = next(k for k in range(9) if not found[k] and found[k + 1])
    path = tmp_path / "values.csv"
    path.write_text("text,label\n" + "".join(f"t{k},{v}\n" for k, v in enumerate(values)))
    asked = FinetuneConfig(
        models=(str(zoo / "bert"),),
        output_dir=str(tmp_path / "out"),
        train_file=str(path),
        validation_file=str(path),
        seed=first,
        seeds=2,
        settings=tenth,
    )
    with pytest.raises(UserError, match=says):
        finetune(asked)
    assert not (tmp_path / "out" / "scores.jsonl").exists()


def test_an_evaluation_without_a_score_is_not_preferred() -> None:
    """The last one counts, a run is not stopped for it, and a note says so."""
    model = torch.nn.Linear(1, 1)
    best = Best(None, "roc_auc", 2)  # type: ignore[arg-type]
    for number in range(4):
        best.see(number, math.nan, model, {"logits": torch.tensor(number)})
        assert (best.number, best.enough) == (number, False)
    assert best.restore(model)["logits"] == 3
    assert "roc_auc is not a number" in best.notes()[0]
    best.see(4, 0.1, model, {})
    best.see(5, math.nan, model, {})
    assert (best.number, best.worse, best.notes()) == (4, 1, ())


def test_held_out_examples_are_not_trained_on(reviews: tuple[str, str]) -> None:
    own = read_own(*reviews)
    shown = examples_of(own, seed=0, settings=SELECTING)
    assert len(shown.selection) == pytest.approx(0.2 * len(own.train), abs=1)
    assert not {e.text for e in shown.examples} & {e.text for e in shown.selection}
    assert sorted([*shown.examples, *shown.selection], key=own.train.index) == list(own.train)
    assert examples_of(own, seed=1, settings=SELECTING).selection != shown.selection


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"early_stopping_patience": 3}, "early_stopping_patience needs load_best"),
        ({"selection_fraction": 0.2}, "selection_fraction needs load_best"),
        ({"load_best_model_at_end": True, "selection_fraction": 1.0}, "selection_fraction "),
        ({"load_best_model_at_end": True, "selection_fraction": 0.0}, "selection_fraction "),
        (
            {"min_train_steps": 5, "num_train_epochs": 2.0},
            "min_train_steps and num_train_epochs",
        ),
        ({"min_train_steps": -1}, "min_train_steps "),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        FinetuneSettings(**given)  # type: ignore[arg-type]


def test_a_small_set_is_shown_more_often() -> None:
    """100 examples are 4 batches of 32."""
    small = replace(task(tuple(Example("a", None, k % 2) for k in range(100))), min_updates=100)
    plain = FinetuneSettings()
    assert epochs_of(small, plain, examples=100) == 25
    assert updates_of(small, plain) == 100
    assert epochs_of(small, plain, examples=10_000) == 3
    assert epochs_of(small, replace(plain, min_train_steps=0), examples=100) == 3
    assert epochs_of(small, replace(plain, min_train_steps=40), examples=100) == 10
    assert epochs_of(small, replace(plain, num_train_epochs=2.0), examples=100) == 2
    assert epochs_of(small, FinetuneSettings(protocol="published"), examples=100) == 3
    assert epochs_of(replace(small, min_updates=0), plain, examples=100) == 3
    assert epochs_of(small, replace(plain, min_train_steps=10**6), examples=1) == MOST_EPOCHS


def test_own_sets_and_tags_have_a_minimum(reviews: tuple[str, str], tmp_path: Path) -> None:
    assert read_own(*reviews).min_updates == MIN_UPDATES
    tags = [Sentence(("x", "y"), ("a", "b"))]
    assert tagging_of("t", tags, tags, metrics=None, epochs=3).min_updates == MIN_UPDATES
    path = tmp_path / "own.jsonl"
    path.write_text('{"context": "a film", "question": "what?", "answers": ["film"]}\n')
    assert read_own(str(path), str(path)).min_updates == MIN_UPDATES
    asked = (Question("q", "what?", "a film", (Answer("film", 2),)),)
    assert answering_of("squad1", asked, asked, epochs=2).min_updates == 0


def test_a_held_out_pair_is_not_trained_on_in_its_other_order() -> None:
    rows = tuple(Example(f"a{k}", f"b{k}", k % 2) for k in range(40))
    pairs = replace(task(rows), symmetric=True)
    shown = examples_of(pairs, seed=0, settings=replace(SELECTING, double_unordered=True))
    assert len(shown.examples) == 2 * (40 - len(shown.selection)) < 80
    trained = {frozenset((e.text, e.pair)) for e in shown.examples}
    assert not trained & {frozenset((e.text, e.pair)) for e in shown.selection}


def test_what_is_not_known_stays_so_in_the_other_order() -> None:
    rows = (Partly("a", "b", (0,), (1,)), Example("c", "d", (1,)))
    pairs = replace(task(rows, "multilabel"), symmetric=True)
    found = training_examples(pairs, seed=0, settings=FinetuneSettings(double_unordered=True))
    assert found[2:] == [Partly("b", "a", (0,), (1,)), Example("d", "c", (1,))]


def test_many_classes_have_areas_on_request_only(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("text,label\n" + "".join(f"t{k},c{k}\n" for k in range(101)))
    assert "roc_auc" not in read_own(str(path), str(path)).metrics
    asked = read_own(str(path), str(path), metrics=("roc_auc",))
    assert asked.metrics == ("roc_auc",)


def test_weights_that_another_metric_chose_are_not_taken_for_these(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
) -> None:
    """The first metric decides which evaluation is kept; its scores are all there either way."""

    def asked(*metrics: str, chosen: bool = True) -> FinetuneConfig:
        return FinetuneConfig(
            models=(str(zoo / "bert"),),
            output_dir=str(tmp_path / f"out-{chosen}"),
            train_file=reviews[0],
            validation_file=reviews[1],
            seeds=1,
            metrics=metrics,
            settings=SELECTING
            if chosen
            else replace(SELECTING, load_best_model_at_end=False, selection_fraction=None),
        )

    finetune(asked("accuracy", "ece"))
    with pytest.raises(UserError, match=r"chosen by accuracy, now ece is the first of --metrics"):
        finetune(asked("ece", "accuracy"))
    finetune(asked("accuracy", "ece"))
    finetune(asked("accuracy", "ece", chosen=False))
    finetune(asked("ece", "accuracy", chosen=False))  # the last evaluation, whatever the metric


def test_texts_that_are_cut_are_told(zoo: Path, tmp_path: Path) -> None:
    """The share, and the length that holds all: 30 words and two special tokens."""
    path = tmp_path / "texts.csv"
    rows = [(f"{'very ' * (30 if k % 4 == 0 else 3)}".strip(), k % 2) for k in range(40)]
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    settings = replace(
        SELECTING, load_best_model_at_end=False, selection_fraction=None, num_train_epochs=1
    )
    own = read_own(str(path), str(path))
    (note,) = finetune_one(str(zoo / "electra"), own, seed=0, settings=settings).notes
    assert note == (
        "training: 25.0 % of the texts (10 of 40) were cut to 16 tokens; --max-seq-length 32 holds "
        "all of them"
    )
    longer = replace(settings, max_seq_length=40)
    assert finetune_one(str(zoo / "electra"), own, seed=0, settings=longer).notes == ()
    frozen = replace(settings, frozen_encoder="last")
    assert finetune_one(str(zoo / "electra"), own, seed=0, settings=frozen).notes == (note,)


def test_weights_of_classes_by_hand() -> None:
    """Nine of a, three of b: 12 / (2 * 9) and 12 / (2 * 3)."""
    rows = tuple(Example("t", None, int(k >= 9)) for k in range(12))
    weights = class_weights(task(rows), "balanced")
    assert weights is not None
    torch.testing.assert_close(weights, torch.tensor([2 / 3, 2.0]))
    assert class_weights(task(rows), "none") is None
    tags = (Sentence(("x", "y", "z", "w"), ("a", "a", "a", "b")),)
    torch.testing.assert_close(class_weights(task(tags, "tagging"), "balanced"), weights)
    several = tuple(Example("t", None, (0, 1) if k < 3 else (1,)) for k in range(12))
    found = class_weights(task(several, "multilabel"), "balanced")
    torch.testing.assert_close(found, torch.tensor([[2 / 3, 2.0], [6.5, 13 / 24]]))


def test_the_loss_with_weights() -> None:
    logits, targets = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    weights = torch.tensor([1.0, 0.5, 2.0])
    each = F.cross_entropy(logits, targets, reduction="none") * torch.tensor([1.0, 2.0, 0.5, 0.5])
    torch.testing.assert_close(grade_class(logits, targets, weights), each.mean())
    nan = float("nan")
    several = torch.tensor([[1.0, nan, 0.0], [nan, nan, 1.0]])
    pairs = torch.tensor([[1.0, 4.0], [1.0, 1.0], [3.0, 1.0]])
    one = F.binary_cross_entropy_with_logits
    losses = [4 * one(logits[0, 0], several[0, 0]), 3 * one(logits[0, 2], several[0, 2])]
    losses.append(one(logits[1, 2], several[1, 2]))
    found = grade_each(logits[:2], several, pairs)
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_class_weights_need_classes(zoo: Path, tmp_path: Path) -> None:
    from electrify.downstream.finetune import finetune
    from electrify.downstream.options import FinetuneConfig

    path = tmp_path / "values.csv"
    path.write_text("text,label\n" + "".join(f"film {k},{k / 7}\n" for k in range(20)))
    options = FinetuneConfig(
        models=(str(zoo / "electra"),),
        output_dir=str(tmp_path / "out"),
        train_file=str(path),
        validation_file=str(path),
        settings=FinetuneSettings(class_weights="balanced"),
    )
    with pytest.raises(UserError, match="--class-weights is for classes and tags"):
        finetune(options)


def test_nothing_is_held_out_unless_it_is_asked_for(
    zoo: Path, reviews: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_run, "Best", None)
    settings = replace(SELECTING, load_best_model_at_end=False, selection_fraction=None)
    found = finetune_one(str(zoo / "electra"), read_own(*reviews), seed=0, settings=settings)
    assert found.scores == found.curve[-1].metrics
    assert not any(p.chosen for p in found.curve)


def test_the_order_of_own_pairs_is_the_users_to_know(zoo: Path, tmp_path: Path) -> None:
    """A premise is not a hypothesis: no protocol shows own pairs the other way round."""
    path = tmp_path / "nli.csv"
    path.write_text("sentence1,sentence2,label\n" + "a man sleeps,a person rests,0\nx,y,1\n" * 3)
    own = read_own(str(path), str(path))
    known = replace(own, symmetric=True)
    few = FinetuneSettings(num_train_epochs=1, max_seq_length=16)
    published = replace(few, protocol="published")
    for settings, count in (
        (published, 6),
        (replace(few, double_unordered=True), 12),
        (replace(published, double_unordered=False), 6),
    ):
        assert len(training_examples(own, seed=0, settings=settings)) == count
        found = finetune_one(str(zoo / "electra"), own, seed=0, settings=settings)
        assert found.train_examples == count
    assert len(training_examples(known, seed=0, settings=published)) == 12
    assert len(training_examples(replace(own, symmetric=False), seed=0, settings=published)) == 6
