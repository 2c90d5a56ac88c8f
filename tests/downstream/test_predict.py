"""`predict` says of a saved model's validation examples what fine-tuning said of them, to the bit;
of models of others, what the library computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForTokenClassification,
)

from conftest import SHAPE, save_tokenizer
from electrify import PredictConfig, UserError, predict, predict_files
from electrify.downstream import loop
from electrify.downstream.examples import Answer, Example, Question, Sentence
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneSettings
from electrify.downstream.read.task import answering_of, tagging_of
from electrify.downstream.tasks import TaskData
from electrify.inference import source
from electrify.inference.predictions import Answered, Labelled, Several, Tagged, Value

THINGS = ("film", "plot", "one")
GOOD = ("good", "great", "fine")
BAD = ("bad", "awful", "poor")
LENGTH = 16


def settings(**more: Any) -> FinetuneSettings:
    given = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "max_seq_length": LENGTH}
    return FinetuneSettings(**(given | more))  # type: ignore[arg-type]


def texts_task(kind: str, *, pairs: bool = False) -> TaskData:
    """The first text decides; every third is longer than LENGTH."""
    examples = []
    for k, word in enumerate((*GOOD, *BAD) * 4):
        good = word in GOOD
        text = f"the {THINGS[k % 3]} was {'very ' * (14 if k % 3 == 0 else k % 2)}{word}"
        label: Any = {
            "classification": float(good),
            "multilabel": (0, 2) if good else (1,) if k % 2 else (),
            "regression": (4.5 if good else 1.0) + 0.01 * k,
        }[kind]
        examples.append(Example(text, "it is not very fine" if pairs else None, label))
    labels = {"classification": ("no", "yes"), "multilabel": ("a", "b", "c"), "regression": ()}
    metrics = {"classification": ("accuracy",), "multilabel": ("micro_f1",)}.get(kind, ("pearson",))
    many = tuple(examples)
    return TaskData("task", kind, labels[kind], metrics, 1, many, many[:13])  # type: ignore


def trained(
    monkeypatch: pytest.MonkeyPatch, model: Path, task: TaskData, folder: Path, **more: Any
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The answers to the validation examples after the last update, and the files of the run."""
    seen: list[dict[str, torch.Tensor]] = []
    real = loop.predict

    def spy(*args: Any, **named: Any) -> dict[str, torch.Tensor]:
        seen.append(real(*args, **named))
        return seen[-1]

    monkeypatch.setattr(loop, "predict", spy)
    outcome = finetune_one(str(model), task, seed=0, settings=settings(**more), save_to=folder)
    monkeypatch.undo()
    return seen[-1], outcome.files


@pytest.mark.parametrize("bf16", ["false", "true"])
@pytest.mark.parametrize(
    ("name", "kind", "pairs"),
    [
        ("electra", "classification", False),
        ("bert", "classification", True),
        ("roberta", "multilabel", False),
        ("electra", "regression", True),
        ("bert", "regression", False),
        ("modernbert", "classification", True),
        ("modernbert", "multilabel", False),
        ("modernbert", "regression", False),
        ("deberta", "classification", True),
        ("deberta", "regression", False),
    ],
)
def test_texts_are_predicted_as_in_validation(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, kind: str, pairs: bool, bf16: str,
) -> None:  # fmt: skip
    task = texts_task(kind, pairs=pairs)
    saved = tmp_path / "saved"
    answers, _ = trained(monkeypatch, zoo / name, task, saved, bf16=bf16)
    logits_NC = answers["logits"]
    held: Any = task.validation
    found = predict(
        str(saved),
        [e.text for e in held],
        pairs=[e.pair for e in held] if pairs else None,
        bf16=bf16,
    )
    if kind == "regression":
        values = [float(e.label) for e in task.train]  # type: ignore[union-attr]
        center = sum(values) / len(values)
        scale = torch.tensor(values).double().std(correction=0).item()
        wanted = [v * scale + center for v in logits_NC[:, 0].tolist()]
        assert [p.value for p in found if isinstance(p, Value)] == pytest.approx(wanted, rel=1e-6)
    elif kind == "classification":
        assert all(isinstance(p, Labelled) for p in found)
        assert [list(p.probabilities.values()) for p in found] == logits_NC.softmax(-1).tolist()  # type: ignore
        assert [p.label for p in found] == [task.labels[k] for k in logits_NC.argmax(-1)]  # type: ignore
    else:
        assert all(isinstance(p, Several) for p in found)
        assert [list(p.probabilities.values()) for p in found] == logits_NC.sigmoid().tolist()  # type: ignore
        wanted_labels = [
            tuple(label for label, x in zip(task.labels, row, strict=True) if x > 0)
            for row in logits_NC.tolist()
        ]
        assert [p.labels for p in found] == wanted_labels  # type: ignore


@pytest.mark.parametrize("name", ["electra", "modernbert", "deberta"])
def test_tags_are_predicted_as_in_validation(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also of a sentence that is read through windows; the file is the one that was validated."""
    sentences = [
        Sentence(("the", word, "film", "was", "not") * times, ("O", tag, "O", "O", "O") * times)
        for times in (1, 2, 6)
        for word, tag in (("good", "X"), ("bad", "Y"), ("fine", "X"), ("poor", "Y"))
    ]
    task = tagging_of("words", sentences, sentences[3:], metrics=None, epochs=1)
    saved = tmp_path / "saved"
    _, files = trained(monkeypatch, zoo / name, task, saved, num_train_epochs=4)
    said = [line.split(" ") for line in files["words.txt"].splitlines()]
    path = tmp_path / "held.conll"
    path.write_text("".join(" ".join(row[:2]) + "\n" for row in said), encoding="utf-8")
    out = tmp_path / "out.tsv"
    predict_files(PredictConfig(model=str(saved), files=(str(path),), output_file=str(out)))
    found = [line.split("\t") for line in out.read_text("utf-8").splitlines()]
    assert [row for row in found if row != [""]] == [row for row in said if row != [""]]
    assert len({row[-1] for row in found if row != [""]}) > 1  # not one tag for all
    again = predict(str(saved), [s.words for s in sentences[3:]])
    assert [tag for p in again if isinstance(p, Tagged) for tag in p.tags] == [
        row[2] for row in said if row != [""]
    ]


@pytest.mark.parametrize("name", ["bert", "modernbert", "deberta"])
@pytest.mark.parametrize("unanswerable", [False, True])
def test_answers_are_predicted_as_in_validation(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unanswerable: bool, name: str
) -> None:
    """Also from contexts that are read through windows, and with the threshold that was best."""
    made = []
    for k, word in enumerate((*GOOD, *BAD)):
        context = "it was not one " * (k + 1) + f"the film was {word}"
        none = unanswerable and k % 2 == 0
        answers = () if none else (Answer(word, len(context) - len(word)),)
        made.append(Question(f"q{k}", "it is ?", context, answers))
    task = answering_of("squad", made, made, epochs=1)
    saved = tmp_path / "saved"
    _, files = trained(
        monkeypatch, zoo / name, task, saved,
        answer_head="plain", max_seq_length=24, doc_stride=5, num_train_epochs=3,
    )  # fmt: skip
    wanted = json.loads(files["squad.predictions.json"])
    paragraphs = [
        {"context": q.context, "qas": [{"id": q.id, "question": q.question}]} for q in made
    ]
    path = tmp_path / "new.json"  # without answers
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    out = tmp_path / "out.jsonl"
    predict_files(PredictConfig(model=str(saved), files=(str(path),), output_file=str(out)))
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert {row["id"]: row["predicted_answer"] for row in rows} == wanted
    found = predict(
        str(saved), [q.question for q in made], pairs=[q.context for q in made],
        no_answer_threshold=-1e20,
    )  # fmt: skip
    assert [p.answer for p in found if isinstance(p, Answered)] == [""] * len(made)


@pytest.mark.parametrize("trained_at", [256, 512])
def test_a_tagger_reads_longer_rows_than_by_default(tmp_path: Path, trained_at: int) -> None:
    """Of more than 256 tokens, where it was trained on them and where it is told to."""
    size = save_tokenizer(tmp_path / "long")
    torch.manual_seed(1)
    config = BertConfig(vocab_size=size, **(SHAPE | {"max_position_embeddings": 512}))
    BertForMaskedLM(config).save_pretrained(tmp_path / "long")
    short = Sentence(("good", "film"), ("X", "O"))
    long = Sentence(("the", "good", "film", "was") * 100, ("O", "X", "O", "O") * 100)
    task = tagging_of("words", [short, long], [long, short], metrics=None, epochs=1)
    how = settings(max_seq_length=trained_at, bf16="false")
    saved = tmp_path / "saved"
    outcome = finetune_one(str(tmp_path / "long"), task, seed=0, settings=how, save_to=saved)
    said = [line.split(" ")[2] for line in outcome.files["words.txt"].splitlines() if line]
    found = predict(str(saved), [long.words, short.words], max_seq_length=512, bf16="false")
    tags = [tag for one in found if isinstance(one, Tagged) for tag in one.tags]
    assert len(tags) == 402
    assert tags == said or trained_at == 256
    if trained_at == 512:
        assert predict(str(saved), [long.words, short.words], bf16="false") == found


@pytest.mark.parametrize(("longest", "words"), [(2, 5), (34, 32)])
def test_the_longest_answer_is_that_of_the_fine_tuning(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int, words: int
) -> None:
    """Neither is 30, which is taken where nothing is given."""
    context = "good " + "very " * (words - 2) + "bad"
    answers = (Answer(context, 0),)
    made = [Question(f"q{k}", "it is ?", context, answers) for k in range(8)]
    task = answering_of("squad", made, made[:1], epochs=1)
    saved = tmp_path / "saved"
    how: dict[str, Any] = {"max_seq_length": 40, "num_train_epochs": 20, "learning_rate": 5e-3}
    how |= {"answer_head": "plain", "bf16": "false", "max_answer_length": longest}
    _, files = trained(monkeypatch, zoo / "bert", task, saved, **how)
    (wanted,) = json.loads(files["squad.predictions.json"]).values()
    assert len(wanted.split()) <= longest
    assert (wanted == context) == (longest >= words)
    (found,) = predict(str(saved), ["it is ?"], pairs=[context], bf16="false")
    assert isinstance(found, Answered)
    assert found.answer == wanted


# ------------------------------------------------------------------ models of others


@pytest.fixture
def foreign(tmp_path: Path, zoo: Path) -> Any:
    """A model of the library with a head of its own, whose weights are large enough to decide."""

    def made(cls: Any, **labels: Any) -> tuple[Path, Any, Any]:
        torch.manual_seed(3)
        model = cls.from_pretrained(zoo / "bert", **labels)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "classifier" in name or "qa_outputs" in name:
                    parameter.normal_(std=0.5)
        tokenizer = AutoTokenizer.from_pretrained(zoo / "bert")
        folder = tmp_path / "foreign"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder, model.eval(), tokenizer

    return made


TEXTS = ["the film was good", "the plot", "", "it is one very very bad film and not fine"]


def test_a_classifier_of_the_library(foreign: Any) -> None:
    folder, model, tokenizer = foreign(AutoModelForSequenceClassification, num_labels=3)
    with torch.inference_mode():
        wanted = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.softmax(-1)
    found = predict(str(folder), TEXTS, bf16="false")
    for prediction, row in zip(found, wanted, strict=True):
        assert isinstance(prediction, Labelled)
        assert list(prediction.probabilities.values()) == pytest.approx(row.tolist(), abs=1e-5)
        assert prediction.label == f"LABEL_{int(row.argmax())}"


def test_a_tagger_of_the_library_and_one_with_another_head(foreign: Any, tmp_path: Path) -> None:
    """ModernBERT has layers between encoder and classifier."""
    folder, model, tokenizer = foreign(AutoModelForTokenClassification, num_labels=4)
    modern = tmp_path / "modern"
    size = save_tokenizer(modern)
    torch.manual_seed(0)
    shape = {k: v for k, v in SHAPE.items() if k != "max_position_embeddings"}
    special = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2}
    config = ModernBertConfig(
        vocab_size=size, **shape, **special, eos_token_id=3, num_labels=4,
        max_position_embeddings=40, reference_compile=False, initializer_range=0.5,
    )  # fmt: skip
    other = ModernBertForTokenClassification(config).eval()
    other.save_pretrained(modern)
    for place, net in ((folder, model), (modern, other)):
        with torch.inference_mode():
            ids = tokenizer("the film was good", return_tensors="pt").input_ids
            wanted = net(input_ids=ids).logits[0, 1:-1].argmax(-1)
        (found,) = predict(str(place), [["the", "film", "was", "good"]], bf16="false")
        assert isinstance(found, Tagged)
        assert found.tags == tuple(f"LABEL_{int(k)}" for k in wanted)


def test_words_for_a_tagger_are_words(foreign: Any) -> None:
    folder, _, _ = foreign(AutoModelForTokenClassification, num_labels=4)
    for texts, says in (
        ([5], "text 1 must be a list of words"),
        ([["a"], None], "text 2 must be a list of words"),
        ([["a"], "a film"], "text 2 must be a list of words"),
        ([["a\ud800"]], "text 1 holds half a surrogate pair"),
        ("a film", "texts must be a list"),
    ):
        with pytest.raises(UserError, match=says):
            predict(str(folder), texts)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="pairs are for texts, and this model tags words"):
        predict(str(folder), [["a", "film"]], pairs=["one"])
    words: Any = [(word for word in ("a", "film")), np.array(["one"])]
    assert [found.words for found in predict(str(folder), words)] == [("a", "film"), ("one",)]  # type: ignore[union-attr]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_second_text_is_read_by_models_of_pairs(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], pairs: bool
) -> None:
    """Others take the column sentence2 only where it is named."""
    saved = tmp_path / "saved"
    task = texts_task("classification", pairs=pairs)
    finetune_one(str(zoo / "bert"), task, seed=0, settings=settings(bf16="false"), save_to=saved)
    path = tmp_path / "new.csv"
    path.write_text("sentence1,sentence2\nthe film was good,it is not very fine\n")
    out = tmp_path / "out.jsonl"
    common = {"model": str(saved), "files": (str(path),), "output_file": str(out), "bf16": "false"}
    for column in (None, "sentence2"):
        predict_files(PredictConfig(**common, pair_column=column, overwrite=True))  # type: ignore[arg-type]
        second = ["it is not very fine"] if pairs or column else None
        said = capsys.readouterr().err
        (found,) = predict(str(saved), ["the film was good"], pairs=second, bf16="false")
        assert ("warning:" in capsys.readouterr().err) == ((second is not None) != pairs)
        (row,) = map(json.loads, out.read_text("utf-8").splitlines())
        assert row["probability"] == pytest.approx(found.probability, abs=1e-5)  # type: ignore[union-attr]
        assert row["sentence2"] == "it is not very fine"
        assert ("sentence2 is not read" in said) == (not pairs and column is None)
        assert ("warning:" in said) == (not pairs and column is not None)
    predict(str(saved), ["the film was good"], bf16="false")
    assert ("warning: the model was trained on pairs" in capsys.readouterr().err) == pairs
    if not pairs:  # the column that is read is not said to be left out
        predict_files(PredictConfig(**common, text_column="sentence2", overwrite=True))  # type: ignore[arg-type]
        assert "is not read" not in capsys.readouterr().err


def test_answers_of_the_library(foreign: Any) -> None:
    folder, model, tokenizer = foreign(AutoModelForQuestionAnswering)
    context = "the film was good and it is not one very bad plot"
    encoded = tokenizer(
        "it is ?", context, return_tensors="pt", return_offsets_mapping=True,
        return_token_type_ids=True,
    )  # fmt: skip
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.inference_mode():
        output = model(**encoded)
    inside = [k for k, s in enumerate(encoded.sequence_ids(0)) if s == 1]
    scores = {
        (a, b): float(output.start_logits[0, a] + output.end_logits[0, b])
        for a in inside
        for b in inside
        if a <= b
    }
    a, b = max(scores, key=lambda span: scores[span])
    (found,) = predict(str(folder), ["it is ?"], pairs=[context], bf16="false")
    assert isinstance(found, Answered)
    assert found.answer == context[offsets[a][0] : offsets[b][1]]
    assert found.score == pytest.approx(scores[a, b], abs=1e-4)


def test_a_head_that_the_checkpoint_lacks(zoo: Path, tmp_path: Path, foreign: Any) -> None:
    folder, model, _ = foreign(AutoModelForTokenClassification, num_labels=4)
    state = {k: v for k, v in model.state_dict().items() if "classifier" not in k}
    model.save_pretrained(folder, state_dict=state)
    with pytest.raises(UserError, match=r"lacks weights of the head: classifier\.bias"):
        predict(str(folder), [["a"]])
    with pytest.raises(UserError, match="is a BertForMaskedLM; predictions need a fine-tuned one"):
        predict(str(zoo / "bert"), ["a"])


def test_the_discriminator_of_a_run_is_no_tagger(foreign: Any, tmp_path: Path) -> None:
    """The library's class for tags holds the head that detects, where it has no other class."""
    _, model, tokenizer = foreign(AutoModelForTokenClassification)

    def predicted(identity: dict[str, str]) -> int:
        folder = tmp_path / identity["part"]
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "electrify.json").write_text(json.dumps(identity))
        return len(predict(str(folder), [["a"]]))

    assert predicted({"part": "fine-tuned", "task": "detection"}) == 1
    with pytest.raises(
        UserError, match=r"the model is the discriminator of a run; .* --save-model"
    ):
        predicted({"part": "discriminator", "objective": "rtd"})


def test_blocks_do_not_change_labels(
    foreign: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = foreign(AutoModelForSequenceClassification, num_labels=3)
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS * 5), encoding="utf-8")
    found = []
    for k, size in enumerate((1, 7, 8192)):
        monkeypatch.setattr(source, "BLOCK_ITEMS", size)
        out = tmp_path / f"{k}.jsonl"
        predict_files(
            PredictConfig(model=str(folder), files=(str(path),), output_file=str(out), bf16="false")
        )
        found.append([json.loads(line) for line in out.read_text("utf-8").splitlines()])
    assert [row["text"] for row in found[0]] == TEXTS * 5
    for rows in found[1:]:
        assert [r["predicted_label"] for r in rows] == [r["predicted_label"] for r in found[0]]
        assert [r["probability"] for r in rows] == pytest.approx(
            [r["probability"] for r in found[0]], abs=1e-5
        )
