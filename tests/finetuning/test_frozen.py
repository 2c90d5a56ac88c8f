"""Linear probes of texts and words."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import CPU, chunks, outputs_of, reader_of, task_of

from electrify.finetuning.frozen import FrozenTagging, FrozenTexts, cosine_score
from electrify.finetuning.metrics import spearman
from electrify.finetuning.one_run import finetune_one, problem_of
from electrify.finetuning.options import FinetuneSettings
from electrify.finetuning.tasks import Example, Sentence, TaskData

THINGS = ("film", "plot", "one", "book", "song", "meal")
KINDS = (("good", "great", "fine"), ("bad", "awful", "poor"))
PROBE = FinetuneSettings(
    frozen_encoder="all", learning_rate=0.02, num_train_epochs=60, dropout=0.0, bf16="false"
)


def task(kind: str, *, pairs: bool) -> TaskData:
    """The class is which kind of word the last text ends with, and so is the value."""
    examples = []
    for thing in THINGS:
        for label, words in enumerate(KINDS):
            for k, word in enumerate(words):
                text = f"the {thing} was {word}"
                value = float(label * 10 + k) if kind == "regression" else label
                first, second = (f"a {thing}", text) if pairs else (text, None)
                examples.append(Example(first, second, value))
    return task_of(kind, examples[::2])


def probe_of(zoo: Path, name: str, own: TaskData, layers: Any) -> Any:
    settings = replace(PROBE, frozen_encoder=layers)
    return problem_of(own, reader_of(zoo / name), settings, CPU, bf16=False)


def states_of(problem: Any, text: str) -> tuple[torch.Tensor, ...]:
    """The hidden states [L, D] of every layer."""
    ids = problem.reader.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        found = problem.reader.encoder(**ids, output_hidden_states=True)
    return tuple(states_1LD[0] for states_1LD in found.hidden_states)


@pytest.mark.parametrize(
    ("name", "layers"), [("electra", "last"), ("modernbert", "last4"), ("deberta", "all")]
)
def test_features_are_the_mean_of_a_texts_states(zoo: Path, name: str, layers: str) -> None:
    """Special tokens included. Two blocks and the embeddings: there are no four layers."""
    own = task("classification", pairs=False)
    problem = probe_of(zoo, name, own, layers)
    assert isinstance(problem, FrozenTexts)
    found_NF = problem.training(own.train).features_RF
    torch.testing.assert_close(found_NF.mean(0), torch.zeros(found_NF.shape[1]), atol=1e-4, rtol=0)
    torch.testing.assert_close(found_NF.std(0, correction=0), torch.ones(found_NF.shape[1]))
    states = states_of(problem, own.train[3].text)  # type: ignore[union-attr]
    taken = states[-1:] if layers == "last" else states
    raw_F = torch.cat([states_LD.mean(0) for states_LD in taken])
    wanted_F = (raw_F - problem.mean_F) / problem.std_F
    torch.testing.assert_close(found_NF[3], wanted_F, atol=1e-3, rtol=1e-3)


def test_a_pair_is_two_texts(zoo: Path) -> None:
    own = task("classification", pairs=True)
    problem = probe_of(zoo, "bert", own, "last")
    found_NF = problem.training(own.train).features_RF
    first: Any = own.train[0]
    u, v = (states_of(problem, text)[-1].mean(0) for text in (first.text, first.pair))
    raw_F = torch.cat([u, v, (u - v).abs(), u * v])
    wanted_F = (raw_F - problem.mean_F) / problem.std_F
    torch.testing.assert_close(found_NF[0], wanted_F, atol=1e-3, rtol=1e-3)


def test_features_of_words_are_the_mean_states_of_their_tokens(zoo: Path) -> None:
    """In windows, too, in the order of the words, standardised by the training words."""
    made = [Sentence(("films", "the", "plotlys"), ("A", "B", "A")), *chunks().train]
    own = task_of("tagging", made)
    problem = probe_of(zoo, "electra", own, "all")
    assert isinstance(problem, FrozenTagging)
    words = problem.training(made)
    assert words.features_RF.shape == (sum(len(s.words) for s in made), 3 * 16)  # type: ignore[union-attr]
    torch.testing.assert_close(words.features_RF.mean(0), torch.zeros(48), atol=1e-4, rtol=0)
    states = states_of(problem, "films the plotlys")
    raw_WF = torch.cat([torch.stack([s[1:3].mean(0), s[3], s[4:7].mean(0)]) for s in states], -1)
    wanted_WF = (raw_WF - problem.mean_F) / problem.std_F
    torch.testing.assert_close(words.features_RF[:3], wanted_WF, atol=1e-3, rtol=1e-3)
    net = problem.net(dropout=0.0)
    torch.nn.init.normal_(net.out.weight)
    tags = problem.tags(made, words, outputs_of(problem, net.eval(), words))
    assert [len(t) for t in tags] == [len(s.words) for s in made]  # type: ignore[union-attr]
    flat = net({"features": words.features_RF}).argmax(-1).tolist()
    assert [own.labels.index(t) for one in tags for t in one] == flat


@pytest.mark.parametrize(("kind", "pairs"), [("classification", True), ("regression", False)])
def test_the_head_learns_and_the_encoder_stays(zoo: Path, kind: str, pairs: bool) -> None:
    model = str(zoo / "electra")
    before = reader_of(model).encoder.state_dict()
    found = finetune_one(model, task(kind, pairs=pairs), seed=0, settings=PROBE)
    metric, least = ("accuracy", 0.95) if kind == "classification" else ("spearman", 0.7)
    assert found.scores[metric] > least, found.curve
    after = reader_of(model).encoder.state_dict()
    assert all(torch.equal(t, after[name]) for name, t in before.items())
    assert found.parameters < 2000  # only the head's


def test_cosines_without_training(zoo: Path) -> None:
    """Spearman's correlation of the cosines of mean states with the values."""
    texts = ["good", "the bad film", "it is one fine film", "plot"]
    made = [Example(a, b, float(k)) for k, (a, b) in enumerate(itertools.pairwise(texts))]
    own = task_of("regression", made)
    problem = probe_of(zoo, "bert", own, "last")
    cosines = [
        float(
            torch.cosine_similarity(
                *(states_of(problem, t)[-1].mean(0) for t in (e.text, e.pair)), dim=0
            )
        )
        for e in made
    ]
    wanted = spearman([e.label for e in made], cosines)  # type: ignore[arg-type]
    assert cosine_score(own, str(zoo / "bert"), device="cpu") == pytest.approx(wanted)
