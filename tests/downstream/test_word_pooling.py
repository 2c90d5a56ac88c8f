"""Words of several tokens: their first token, or the mean of all, stands for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForTokenClassification, AutoTokenizer

from electrify.downstream.encoder import load
from electrify.downstream.examples import Sentence
from electrify.downstream.heads import NO_WORD, Batch, TagHead, grade_class, states_of_words
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneSettings, WordPooling
from electrify.downstream.problems.frozen import FrozenTagging
from electrify.downstream.problems.tagging import Tagging
from electrify.downstream.read.task import tagging_of
from electrify.downstream.tasks import TaskData
from electrify.inference.options import PredictConfig
from electrify.inference.predictor import Predictor
from electrify.inference.sentences import Untagged

CPU = torch.device("cpu")
SETTINGS = FinetuneSettings(
    learning_rate=1e-2,
    layerwise_lr_decay=1.0,
    num_train_epochs=60,
    per_device_train_batch_size=8,
    bf16="false",
    dropout=0.0,
)


def one_word_or_two() -> TaskData:
    """The encoder sees the same tokens, whether they are a compound or an adjective and a noun."""
    made = [
        sentence
        for a in ("good", "great", "fine", "bad", "awful", "poor")
        for b in ("film", "plot")
        for sentence in (
            Sentence(("the", a, b), ("DET", "ADJ", "NOUN")),
            Sentence(("the", f"{a} {b}"), ("DET", "COMPOUND")),
        )
    ]
    return tagging_of("words", made, made[::3], metrics=None, epochs=1)


def problem_of(model: Path, pooling: WordPooling, task: TaskData, length: int = 16) -> Tagging:
    loaded = load(str(model), device=CPU)
    return Tagging(task, loaded, max_seq_length=length, device=CPU, word_pooling=pooling)


def test_rows_by_hand(zoo: Path):
    """[CLS] film ##s the plot ##ly ##s [SEP], of which the last word is tagged behind."""
    one = Sentence(("films", "the", "plotlys"), ("A", "B", "A"))
    task = tagging_of("t", [one], [one], metrics=None, epochs=1)
    held = problem_of(zoo / "bert", "mean", task).held_out([one])
    batch = held.data.batch(torch.tensor([0]))
    assert batch.places_BL is not None
    assert batch.places_BL.int().tolist() == [[0, 1, 1, 1, 1, 1, 1, 0]]
    assert batch.targets.tolist() == [[NO_WORD, 0, NO_WORD, 1, 0, NO_WORD, NO_WORD, NO_WORD]]
    assert [tuple(spot) for spot in held.spots] == [(0, 1, 2, 0), (0, 3, 1, 1), (0, 4, 3, 2)]


def batch_by_hand() -> Batch:
    """Row 0: a word of tokens 1 and 2, one of token 3. Row 1: one of token 1; 3 is not tagged."""
    places = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 0]], dtype=torch.bool)
    no = NO_WORD
    targets = torch.tensor([[no, 1, no, 0, no], [no, 1, no, no, no]])
    return Batch({}, torch.tensor([4, 4]), places, targets)


def test_means_by_hand():
    states_BLD = torch.arange(16.0).view(2, 4, 2) ** 2
    # the squares of 2 3 | 4 5 | 6 7 in row 0, of 10 11 in row 1
    wanted = [[(4 + 16) / 2, (9 + 25) / 2], [36, 49], [100, 121]]
    assert states_of_words(states_BLD, batch_by_hand()).tolist() == wanted


def test_the_mean_of_states_is_the_mean_of_logits():
    torch.manual_seed(0)
    head = TagHead(8, 3, dropout=0.0, std=0.5, grade=grade_class)
    batch = batch_by_hand()
    states_BLD = torch.randn(2, 4, 8, requires_grad=True)
    each_BLC = head.out(states_BLD)
    wanted_WC = torch.stack([(each_BLC[0, 1] + each_BLC[0, 2]) / 2, each_BLC[0, 3], each_BLC[1, 1]])
    wanted = torch.nn.functional.cross_entropy(wanted_WC, torch.tensor([1, 0, 1]))
    loss = head.loss(states_BLD, batch)
    torch.testing.assert_close(loss, wanted)
    assert head.weight(batch) == 3
    found_BL = head.answers(states_BLD, batch)["classes"]
    assert found_BL.shape == batch.targets.shape
    at = ([0, 0, 1], [1, 3, 1])
    assert found_BL[at].tolist() == wanted_WC.argmax(-1).tolist()
    assert int(found_BL.sum()) == int(found_BL[at].sum()), "0 where no word begins"
    loss.backward()
    assert states_BLD.grad is not None
    assert bool((states_BLD.grad[0, 1] == states_BLD.grad[0, 2]).all())
    assert not states_BLD.grad[1, 2:].any()


def test_words_of_one_token_are_the_same_either_way(zoo: Path):
    one = Sentence(("the", "film", "was", "bad"), ("A", "B", "A", "B"))
    task = tagging_of("t", [one], [one], metrics=None, epochs=1)
    found = []
    for pooling in ("first", "mean"):
        problem = problem_of(zoo / "bert", pooling, task)
        torch.manual_seed(3)
        net = problem.model(dropout=0.0, std=0.5).eval()
        found.append(net.loss(problem.training([one]).batch(torch.tensor([0]))))
    assert found[0] == found[1]


def test_the_mean_knows_where_a_word_ends(zoo: Path):
    """The first tokens of `good film` as one word and as two have the same states."""
    scores = {
        pooling: finetune_one(
            str(zoo / "electra"),
            one_word_or_two(),
            seed=0,
            settings=FinetuneSettings(**vars(SETTINGS) | {"word_pooling": pooling}),
        ).scores["accuracy"]
        for pooling in ("first", "mean")
    }
    assert scores["mean"] > 0.99
    assert scores["first"] <= 0.8 + 1e-9, "of two sentences one word of five cannot be told"


def test_the_mean_is_the_default_and_published_takes_the_first():
    assert FinetuneSettings().filled().word_pooling == "mean"
    assert FinetuneSettings(protocol="published").filled().word_pooling == "first"


def test_features_of_a_frozen_encoder(zoo: Path):
    one = Sentence(("films", "the", "plotlys"), ("A", "B", "A"))
    task = tagging_of("t", [one, one], [one], metrics=None, epochs=1)
    loaded = load(str(zoo / "electra"), device=CPU)
    problem = FrozenTagging(
        task,
        loaded,
        max_seq_length=16,
        device=CPU,
        layers="last",
        head="linear",
        bf16=False,
        word_pooling="mean",
    )
    found_WF = problem._words([one]).states_WF
    ids = loaded.tokenizer(" ".join(one.words), return_tensors="pt")
    with torch.no_grad():
        states_LD = loaded.encoder(**ids).last_hidden_state[0]
    wanted = torch.stack([states_LD[1:3].mean(0), states_LD[3], states_LD[4:7].mean(0)])
    torch.testing.assert_close(found_WF, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_a_saved_tagger_reads_as_it_was_scored(zoo: Path, tmp_path: Path, pooling: WordPooling):
    task = one_word_or_two()
    settings = FinetuneSettings(
        **vars(SETTINGS) | {"word_pooling": pooling, "num_train_epochs": 3.0}
    )
    finetuned = finetune_one(
        str(zoo / "electra"), task, seed=0, settings=settings, save_to=tmp_path / "saved"
    )
    scored = [
        line.split()[-1] for line in finetuned.files["words.txt"].splitlines() if line.strip()
    ]
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["electrify"]["word_pooling"] == pooling
    predictor = Predictor(PredictConfig(model=str(tmp_path / "saved"), files=(), device="cpu"))
    held = [Untagged(s.words, {}) for s in task.validation if isinstance(s, Sentence)]
    predicted = [tag for one in predictor.predict(held) for tag in one.tags]
    assert predicted == scored
    assert by_the_library(tmp_path / "saved", held, pooling) == scored


def by_the_library(folder: Path, held: list[Untagged], pooling: WordPooling) -> list[str]:
    """The tags of words by the library alone: logits of tokens, of the first one of a word or their
    mean."""
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for sentence in held:
        pieces = [tokenizer(w, add_special_tokens=False)["input_ids"] for w in sentence.words]
        ids = torch.tensor([[2, *(i for ids in pieces for i in ids), 3]])
        with torch.no_grad():
            logits_LC = model(input_ids=ids).logits[0]
        at = 1
        for ids in pieces:
            mine_PC = logits_LC[at : at + (1 if pooling == "first" else len(ids))]
            found.append(model.config.id2label[int(mine_PC.mean(0).argmax())])
            at += len(ids)
    return found


def test_a_tagger_of_others_is_read_by_first_tokens(zoo: Path, tmp_path: Path):
    """A folder that does not say how it was scored."""
    torch.manual_seed(0)
    electra = AutoModel.from_pretrained(zoo / "electra")
    model = AutoModelForTokenClassification.from_config(electra.config)
    model.save_pretrained(tmp_path / "ner")
    AutoTokenizer.from_pretrained(zoo / "electra").save_pretrained(tmp_path / "ner")
    predictor = Predictor(PredictConfig(model=str(tmp_path / "ner"), files=(), device="cpu"))
    held = [Untagged(("films", "the plot", "plotlys"), {})]
    (found,) = predictor.predict(held)
    assert list(found.tags) == by_the_library(tmp_path / "ner", held, "first")
