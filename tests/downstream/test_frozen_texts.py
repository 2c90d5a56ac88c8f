"""Linear heads on the mean of a text's states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from electrify.downstream.encoder import load
from electrify.downstream.examples import Example
from electrify.downstream.finetune import finetune
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.problems.frozen_texts import FrozenTexts
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

CPU = torch.device("cpu")
THINGS = ("film", "plot", "one", "book", "song", "meal")
KINDS = (("good", "great", "fine"), ("bad", "awful", "poor"))


def task(kind: str, *, pairs: bool) -> TaskData:
    """The class is which kind of word the last text ends with; the value is how far it lies."""
    examples = []
    for thing in THINGS:
        for label, words in enumerate(KINDS):
            for k, word in enumerate(words):
                text = f"the {thing} was {word}"
                value = float(label * 10 + k) if kind == "regression" else label
                first = f"a {thing}" if pairs else text
                examples.append(Example(first, text if pairs else None, value))
    return TaskData(
        name="own",
        kind=kind,  # type: ignore[arg-type]
        labels=("no", "yes") if kind == "classification" else (),
        metrics=("accuracy",) if kind == "classification" else ("spearman",),
        epochs=3,
        train=tuple(examples[::2]),
        validation=tuple(examples[::2]),  # what random encoders tell of new words is little
    )


def features(problem: FrozenTexts) -> torch.Tensor:
    return problem.training(problem.task.train).states_NF  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", ["last", "last4", "all"])
def test_features_are_the_mean_of_a_texts_states(zoo: Path, layers: str) -> None:
    loaded = load(str(zoo / "electra"), device=CPU)
    own = task("classification", pairs=False)
    problem = FrozenTexts(own, loaded, max_seq_length=32, device=CPU, layers=layers, bf16=False)
    found_NF = features(problem)
    torch.testing.assert_close(found_NF.mean(0), torch.zeros(found_NF.shape[1]), atol=1e-4, rtol=0)
    assert problem.standard is not None
    mean_F, std_F = problem.standard
    ids = loaded.tokenizer(own.train[3].text, return_tensors="pt")  # type: ignore[union-attr]
    with torch.no_grad():
        states = loaded.encoder(**ids, output_hidden_states=True).hidden_states
    # Two blocks and the embeddings: four layers are not there.
    taken = states[-1:] if layers == "last" else states
    wanted_F = (torch.cat([s[0].mean(0) for s in taken]) - mean_F) / std_F
    torch.testing.assert_close(found_NF[3], wanted_F, atol=1e-4, rtol=1e-3)


def test_a_pair_is_two_texts(zoo: Path) -> None:
    loaded = load(str(zoo / "bert"), device=CPU)
    own = task("classification", pairs=True)
    problem = FrozenTexts(own, loaded, max_seq_length=32, device=CPU, layers="last", bf16=False)
    found_NF = features(problem)
    assert problem.standard is not None
    mean_F, std_F = problem.standard
    means = []
    for text in (own.train[0].text, own.train[0].pair):  # type: ignore[union-attr]
        with torch.no_grad():
            means.append(
                loaded.encoder(**loaded.tokenizer(text, return_tensors="pt"))[0][0].mean(0)
            )
    u, v = means
    wanted_F = (torch.cat([u, v, (u - v).abs(), u * v]) - mean_F) / std_F
    torch.testing.assert_close(found_NF[0], wanted_F, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("pairs", [False, True])
def test_the_head_learns_and_the_encoder_stays(zoo: Path, kind: str, pairs: bool) -> None:
    settings = FinetuneSettings(
        frozen_encoder="all", learning_rate=0.02, num_train_epochs=60, dropout=0.0, bf16="false"
    )
    model = str(zoo / "electra")
    before = load(model, device=CPU).encoder.state_dict()
    found = finetune_one(model, task(kind, pairs=pairs), seed=0, settings=settings)
    score = found.scores["accuracy" if kind == "classification" else "spearman"]
    assert score > (0.95 if kind == "classification" else 0.7), found.curve
    after = load(model, device=CPU).encoder.state_dict()
    assert all(torch.equal(t, after[name]) for name, t in before.items())
    # Only the head has parameters that are counted and learn.
    assert found.parameters < 2000


def test_it_is_a_function_of_the_seed(zoo: Path) -> None:
    settings = FinetuneSettings(frozen_encoder="last", num_train_epochs=2, bf16="false")
    one, again, other = (
        finetune_one(str(zoo / "bert"), task("regression", pairs=True), seed=s, settings=settings)
        for s in (0, 0, 1)
    )
    assert one.curve == again.curve
    assert one.curve != other.curve


def test_questions_are_refused(zoo: Path, tmp_path: Path) -> None:
    squad = tmp_path / "train.json"
    squad.write_text(
        '{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "the film was good",'
        ' "qas": [{"id": "a", "question": "what was good", "answers": [{"text": "film",'
        ' "answer_start": 4}]}]}]}]}'
    )
    config = FinetuneConfig(
        models=(str(zoo / "bert"),),
        train_file=str(squad),
        validation_file=str(squad),
        output_dir=str(tmp_path / "out"),
        settings=FinetuneSettings(frozen_encoder="last"),
    )
    with pytest.raises(UserError, match="--frozen-encoder is for tagging and texts, not for"):
        finetune(config)
