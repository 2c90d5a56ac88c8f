from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForTokenClassification, AutoTokenizer

from electrify.downstream import loop, metrics
from electrify.downstream.encoder import load
from electrify.downstream.examples import Sentence
from electrify.downstream.finetune import finetune
from electrify.downstream.known_tasks import TAGGING
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.problems.frozen import FrozenTagging
from electrify.downstream.problems.tagging import Tagging, windows
from electrify.downstream.read.task import read_task, tagging_of
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

CPU = torch.device("cpu")
DATA = Path(__file__).parents[3] / "shared" / "data" / "tagging"
ADJECTIVES = ("good", "great", "fine", "bad", "awful", "poor")
NOUNS = ("film", "plot")


def sentence(*words: str) -> Sentence:
    """B-X on an adjective before a noun, I-X on that noun, O elsewhere: the tag of a noun needs the
    word before it."""
    tags = []
    for k, word in enumerate(words):
        before, after = words[k - 1] if k else "", words[k + 1] if k + 1 < len(words) else ""
        chunk = (word in ADJECTIVES and after in NOUNS) or (word in NOUNS and before in ADJECTIVES)
        tags.append("O" if not chunk else "I-X" if word in NOUNS else "B-X")
    return Sentence(words, tuple(tags))


def chunks() -> TaskData:
    frames = [
        ("the", "{a}", "{n}", "was", "not", "{a}"),
        ("{a}", "and", "{a}", "{n}"),
        ("it", "is", "a", "{n}"),
        ("{n}", "{a}", "{n}", "very", "{a}"),
    ]
    made = [
        sentence(*(w.format(a=a, n=n) for w in frame))
        for frame in frames
        for a in ADJECTIVES
        for n in NOUNS
    ]
    return tagging_of("chunks", made[::2] + made[1::2], made[::3], metrics=None, epochs=3)


THOROUGH = FinetuneSettings(
    learning_rate=1e-2,
    layerwise_lr_decay=1.0,
    num_train_epochs=30,
    per_device_train_batch_size=8,
    bf16="false",
    dropout=0.0,
)


@pytest.mark.parametrize("name", ["electra", "roberta"])
def test_it_learns_chunks(zoo: Path, name: str):
    found = finetune_one(str(zoo / name), chunks(), seed=0, settings=THOROUGH)
    assert found.scores["f1"] > 0.9, found.curve
    lines = found.files["chunks.txt"].split("\n\n")[0].splitlines()
    words = chunks().validation[0]
    assert isinstance(words, Sentence)
    assert [line.split()[:2] for line in lines] == [
        list(pair) for pair in zip(words.words, words.tags, strict=True)
    ]


@given(
    st.lists(st.one_of(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=60),
    st.integers(9, 30),
)
def test_windows_tag_every_word_once_and_fit(pieces: list[int], room: int):
    found = windows(pieces, room)
    assert [k for w in found for k in range(w.first, w.last)] == list(range(len(pieces)))
    for w in found:
        assert w.begin <= w.first <= w.last <= w.end
        assert sum(pieces[w.begin : w.end]) <= room
    for w, following in itertools.pairwise(found):
        assert sum(pieces[w.begin : w.end + 1]) > room, "as full as it gets"
        assert w.end < following.end, "each reads on"
    assert all(w.first < w.last for w in found), (
        "a window without a word to tag would be a row without a loss"
    )


def test_windows_by_hand():
    # 10 words of one piece, room for 6, half of it overlaps: 0-5, 3-8, 6-9; a word is tagged where
    # it stands farther from an edge
    assert [(w.begin, w.end, w.first, w.last) for w in windows([1] * 10, 6)] == [
        (0, 6, 0, 5),
        (3, 9, 5, 8),
        (6, 10, 8, 10),
    ]
    assert [(w.begin, w.end) for w in windows([6, 6], 6)] == [(0, 1), (1, 2)], "no room to overlap"


def test_pieces_by_hand(zoo: Path):
    """The first piece stands for a word of two; a word of none is [UNK]; words beyond the
    length are still tagged."""
    words = ("films", "the", "\u200b", "plot", "was", "film", "film", "bad", "films")
    one = Sentence(words, ("A", "B", "A", "B", "A", "B", "A", "B", "A"))
    problem = Tagging(
        tagging_of("t", [one], [one], metrics=None, epochs=1),
        load(str(zoo / "bert"), device=CPU),
        max_seq_length=8,
        device=CPU,
    )
    held = problem.held_out([one])
    rows = held.data
    inputs = rows.batch(torch.tensor([0]))
    # [CLS] film ##s the [UNK] plot was [SEP]
    assert inputs.inputs["input_ids"].tolist() == [[2, 13, 24, 11, 1, 14, 15, 3]]
    assert inputs.places_BL is not None
    assert inputs.places_BL.tolist() == [[False, True, False, True, True, True, False, False]], (
        "`was` is tagged in the window behind"
    )
    assert [spot.word for spot in held.spots] == list(range(9))
    answers = {"classes": torch.zeros(len(rows.lengths_N), 8, dtype=torch.int32)}
    for spot in held.spots:
        answers["classes"][spot.row, spot.place] = spot.word % 2
    assert problem.tags(held, answers) == [one.tags]
    assert problem.score(held, answers) == {"accuracy": 1.0}


def test_a_tag_that_training_never_showed_is_a_mistake(zoo: Path):
    task = tagging_of(
        "t",
        [Sentence(("the", "film"), ("D", "N"))],
        [Sentence(("the", "film"), ("D", "X"))],
        metrics=None,
        epochs=1,
    )
    assert (
        finetune_one(str(zoo / "bert"), task, seed=0, settings=FinetuneSettings()).scores[
            "accuracy"
        ]
        <= 0.5
    )


@pytest.mark.parametrize("head", ["linear", "bilstm"])
@pytest.mark.parametrize("layers", ["last", "last4", "all"])
def test_a_frozen_encoder(zoo: Path, layers: str, head: str):
    """The encoder's own states, standardised over the training words; the head learns, and the
    encoder's weights are not among those that do."""
    settings = FinetuneSettings(
        frozen_encoder=layers,
        tagging_head=head,
        learning_rate=0.02,
        num_train_epochs=40,
        dropout=0.0,
        bf16="false",
    )  # type: ignore[arg-type]
    found = finetune_one(str(zoo / "electra"), chunks(), seed=0, settings=settings)
    if head == "bilstm":
        assert found.scores["f1"] > 0.9, found.curve
    else:  # what two random layers tell a linear head is more than the commonest tag
        tags = [tag for s in chunks().validation if isinstance(s, Sentence) for tag in s.tags]
        assert found.scores["accuracy"] > tags.count("O") / len(tags) + 0.05, found.curve


def test_features_are_the_states_of_first_pieces(zoo: Path):
    task = chunks()
    loaded = load(str(zoo / "electra"), device=CPU)
    problem = FrozenTagging(
        task, loaded, max_seq_length=16, device=CPU, layers="all", head="linear", bf16=False
    )
    words = problem.training(task.train)  # type: ignore[arg-type]
    assert problem.standard is not None
    mean_F, std_F = problem.standard
    torch.testing.assert_close(words.states_WF.mean(0), torch.zeros(48), atol=1e-4, rtol=0)
    one = task.train[3]
    assert isinstance(one, Sentence)
    ids = loaded.tokenizer(" ".join(one.words), return_tensors="pt")
    with torch.no_grad():
        states = loaded.encoder(**ids, output_hidden_states=True).hidden_states
    wanted_WF = (torch.cat([s[0, 1:-1] for s in states], -1) - mean_F) / std_F
    start = int(words.starts_N[3])
    torch.testing.assert_close(
        words.states_WF[start : start + len(one.words)], wanted_WF, atol=1e-4, rtol=1e-4
    )
    held = problem.held_out(task.validation)  # type: ignore[arg-type]
    net = problem.model(dropout=0.0, std=0.5)
    tags = problem.tags(held, loop.predict(net, held.data, bf16=False))
    assert [len(t) for t in tags] == [len(s.words) for s in task.validation]  # type: ignore[union-attr]


def test_a_whole_run_from_files(zoo: Path, tmp_path: Path):
    data = tmp_path / "data" / "conll2003"
    data.mkdir(parents=True)
    made = [s for s in chunks().train if isinstance(s, Sentence)]
    for name in ("eng.train", "eng.testa", "eng.testb"):
        iob1 = "\n\n".join(
            "\n".join(
                f"{w} X X {t.replace('B-', 'I-')}" for w, t in zip(s.words, s.tags, strict=True)
            )
            for s in made
        )
        (data / name).write_text(iob1 + "\n")
    out = tmp_path / "out"
    options = FinetuneConfig(
        models=(str(zoo / "bert"),),
        task=("conll2003",),
        data_dir=str(tmp_path / "data"),
        output_dir=str(out),
        seeds=1,
        settings=THOROUGH,
    )
    report = finetune(options)
    medians = {row.metric: row.median for row in report.rows}
    assert medians["f1_test"] == medians["f1"] > 0.9
    (predictions,) = out.glob("predictions/*/conll2003-seed0/conll2003.txt")
    assert {line.split()[1] for line in predictions.read_text().splitlines() if line} == {
        "O",
        "B-X",
        "I-X",
    }, "IOB1 became IOB2"
    assert json.loads((out / "scores.jsonl").read_text())["scores"]["f1"] > 0.9


def test_tagging_needs_no_library_of_metrics(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(metrics, "need", absent)
    for name in ("train.conll", "dev.conll"):
        (tmp_path / name).write_text("the D\nfilm N\n")
    files = {
        "train_file": str(tmp_path / "train.conll"),
        "validation_file": str(tmp_path / "dev.conll"),
    }
    report = finetune(
        FinetuneConfig(
            models=(str(zoo / "bert"),), output_dir=str(tmp_path / "out"), seeds=1, **files
        )
    )
    assert report.rows[0].metric == "accuracy"


def test_a_saved_tagger(zoo: Path, tmp_path: Path):
    task = chunks()
    found = finetune_one(
        str(zoo / "electra"), task, seed=0, settings=THOROUGH, save_to=tmp_path / "saved"
    )
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "saved").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    right = total = 0
    for s in task.validation:
        assert isinstance(s, Sentence)
        with torch.no_grad():
            logits = model(**tokenizer(" ".join(s.words), return_tensors="pt")).logits
        said = [model.config.id2label[int(k)] for k in logits[0, 1:-1].argmax(-1)]
        right += sum(a == b for a, b in zip(said, s.tags, strict=True))
        total += len(said)
    assert right / total == pytest.approx(found.scores["accuracy"])


def test_what_is_refused(zoo: Path, tmp_path: Path, reviews: tuple[str, str]):
    own = {
        "train_file": reviews[0],
        "validation_file": reviews[1],
        "models": (str(zoo / "bert"),),
        "output_dir": str(tmp_path / "out"),
    }
    with pytest.raises(UserError, match="--doc-stride is for question answering"):
        finetune(FinetuneConfig(**own, settings=FinetuneSettings(doc_stride=64)))
    with pytest.raises(UserError, match="tagging_head bilstm needs frozen_encoder"):
        FinetuneSettings(tagging_head="bilstm")
    with pytest.raises(UserError, match="no folder conll2003"):
        read_task(TAGGING["conll2003"], str(tmp_path))
    with pytest.raises(UserError, match="--data-dir is missing"):
        read_task(TAGGING["conll2003"], None)
    for name in ("ud_a", "ud_b"):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match="several folders for task 'ud': ud_a, ud_b"):
        read_task(TAGGING["ud"], str(tmp_path))
    assert not (tmp_path / "out").exists()


OFFICIAL = [
    ("conll2000", 8936, 2012, 0), ("conll2003", 14041, 3250, 3453), ("wnut17", 3394, 1009, 1287),
    ("wikiann", 20000, 10000, 10000),
    ("ud", 12544, 2001, 2077),
]  # fmt: skip


@pytest.mark.parametrize(("name", "train", "dev", "test"), OFFICIAL)
def test_the_official_files(name: str, train: int, dev: int, test: int):
    if not DATA.is_dir():
        pytest.skip("no ../shared/data/tagging")
    task = read_task(TAGGING[name], str(DATA))
    assert (len(task.train), len(task.validation), [len(e) for _, e in task.also]) == (
        train,
        dev,
        [test] if test else [],
    )
    assert (
        len(task.labels)
        == {"conll2000": 22, "conll2003": 9, "wnut17": 13, "wikiann": 7, "ud": 17}[name]
    )
    assert task.notes == (
        ("there is no development set: scored on test.txt",) if name == "conll2000" else ()
    )
