"""What --save-model leaves: the float32 model that was scored, whatever dtype config.json names,
and never at the price of the score."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedModel,
)

from electrify import PredictConfig, predict_files
from electrify.architectures import fine_tuned_modernbert
from electrify.architectures.fine_tuned import LinearOutput
from electrify.architectures.fine_tuned_modernbert import ModernBertHead
from electrify.downstream import saving
from electrify.downstream.encoder import load
from electrify.downstream.examples import Answer, Question, Sentence
from electrify.downstream.finetune import finetune
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.read.task import answering_of, tagging_of
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError
from electrify.export.folders import load_config, load_weights

QUICK = FinetuneSettings(num_train_epochs=1, per_device_train_batch_size=4, bf16="false")

KINDS = ("film", "plot", "one", "two", "three")


def says(folder: Path, model: Path, dtype: str) -> Path:
    """A copy of a model whose config.json names another dtype than its weights have."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": dtype}))
    return folder


def options(model: Path, reviews: tuple[str, str], out: Path, **more: object) -> FinetuneConfig:
    given = {
        "models": (str(model),),
        "output_dir": str(out),
        "train_file": reviews[0],
        "validation_file": reviews[1],
        "seeds": 1,
        "settings": QUICK,
    }
    return FinetuneConfig(**given | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_whose_config_says_16_bits(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, dtype: str
) -> None:
    model = says(tmp_path / "model", zoo / "bert", dtype)
    finetune(options(model, reviews, tmp_path / "out", save_model=True))
    (saved,) = (tmp_path / "out" / "models").iterdir()
    assert json.loads((saved / "config.json").read_text())["dtype"] == "float32"
    assert {t.dtype for t in load_file(saved / "model.safetensors").values()} == {torch.float32}


def test_models_for_comparison_are_not_kept(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
) -> None:
    more = {"random_baseline": True, "baselines": True, "save_model": True}
    finetune(options(zoo / "bert", reviews, tmp_path / "out", **more))
    assert len(list((tmp_path / "out" / "models").iterdir())) == 1
    more = {"random_weights": True, "save_model": True}
    finetune(options(zoo / "bert", reviews, tmp_path / "random", **more))
    assert len(list((tmp_path / "random" / "models").iterdir())) == 1


def test_random_weights_alone_are_kept(zoo: Path, reviews: tuple[str, str], tmp_path: Path) -> None:
    """They are no row for comparison where there is nothing to compare them with."""
    asked = options(zoo / "bert", reviews, tmp_path / "out", save_model=True)
    finetune(dataclasses.replace(asked, models=(f"random:{zoo / 'bert'}",)))
    assert len(list((tmp_path / "out" / "models").glob("*/config.json"))) == 1


def tagging() -> TaskData:
    made = [Sentence(("the", w, "film"), ("O", "X", "O")) for w in ("good", "bad", "fine", "poor")]
    return tagging_of("chunks", made, made[:2], metrics=None, epochs=1)


def answering() -> TaskData:
    made = [
        Question(str(k), "it is ?", f"the film was {word}", (Answer(word, 13),))
        for k, word in enumerate(("good", "bad", "fine", "poor"))
    ]
    return answering_of("squad", made, made[:2], epochs=1)


@pytest.mark.parametrize("kind", ["tagging", "answering"])
def test_what_was_scored_is_what_is_saved(zoo: Path, tmp_path: Path, kind: str) -> None:
    """It was rounded to 16 bits."""
    model = says(tmp_path / "model", zoo / "bert", "bfloat16")
    settings = QUICK if kind == "tagging" else FinetuneSettings(
        num_train_epochs=1, per_device_train_batch_size=4, bf16="false", answer_head="plain"
    )  # fmt: skip
    task = tagging() if kind == "tagging" else answering()
    finetune_one(str(model), task, seed=0, settings=settings, save_to=tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "float32"
    assert all(
        t.dtype is torch.float32
        for t in load_file(tmp_path / "saved" / "model.safetensors").values()
    )


@pytest.mark.parametrize("kind", ["tagging", "answering"])
def test_a_saved_head_that_computes_something_else(
    zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    real = saving._with_head

    def odd(*args: object, **more: object) -> object:
        model = real(*args, **more)  # type: ignore[arg-type]
        with torch.no_grad():
            next(model.base_model.parameters()).mul_(2)
        return model

    monkeypatch.setattr(saving, "_with_head", odd)
    settings = FinetuneSettings(num_train_epochs=1, answer_head="plain")
    task = tagging() if kind == "tagging" else answering()
    with pytest.raises(UserError, match="the saved head computes other numbers"):
        finetune_one(str(zoo / "bert"), task, seed=0, settings=settings, save_to=tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_score_outlives_a_model_that_could_not_be_saved(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", full)
        with pytest.raises(UserError, match="could not be written"):
            finetune(options(zoo / "bert", reviews, out, save_model=True))
    kept = json.loads((out / "scores.jsonl").read_text())
    assert not list(out.glob("models/*"))
    finetune(options(zoo / "bert", reviews, out, save_model=True))  # the model is still missing
    assert len(list(out.glob("models/*"))) == 1
    assert json.loads((out / "scores.jsonl").read_text())["scores"] == kept["scores"]


def test_float32_weights_are_not_rounded(zoo: Path, tmp_path: Path) -> None:
    """The dtype of config.json is how somebody would compute, and not what the weights are."""
    from transformers import ElectraForPreTraining

    model = says(tmp_path / "model", zoo / "electra", "bfloat16")
    name = "embeddings.word_embeddings.weight"
    want = load_file(model / "model.safetensors")[f"electra.{name}"]
    config = load_config(str(model))
    read, _ = load_weights(ElectraForPreTraining, str(model), config)
    assert torch.equal(read.electra.state_dict()[name], want)
    found = load(str(model), device=torch.device("cpu"))
    assert torch.equal(found.encoder.state_dict()[name], want)


@pytest.mark.parametrize("bf16", ["false", "true"])
@pytest.mark.parametrize("kind", ["electra", "bert", "roberta", "modernbert", "deberta"])
def test_more_classes_than_the_library_has_hidden_units(
    zoo: Path, tmp_path: Path, kind: str, bf16: Literal["false", "true"]
) -> None:
    """The library's class computes what fine-tuning's head did, also where the encoder computes in
    bfloat16, which holds for the encoder alone."""
    texts = [f"{word} {more}" for word in ("good", "bad", "fine", "poor") for more in KINDS]
    rows = [{"text": text, "label": f"class {i}"} for i, text in enumerate(texts)]
    assert len(rows) > load_config(str(zoo / kind)).hidden_size
    for name, times in (("train", 3), ("valid", 1)):
        lines = "".join(json.dumps(row) + "\n" for row in rows * times)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    valid = str(tmp_path / "valid.jsonl")
    files = (str(tmp_path / "train.jsonl"), valid)
    settings = dataclasses.replace(QUICK, learning_rate=0.01, num_train_epochs=8, bf16=bf16)
    out = tmp_path / "out"
    more = {"save_model": True, "settings": settings}
    finetune(options(zoo / kind, files, out, **more))
    (table,) = out.glob("predictions/*/*/*-validation.csv")
    with table.open(newline="") as f:
        scored = list(csv.DictReader(f))
    new = str(tmp_path / "new.csv")
    predict_files(
        PredictConfig(
            model=str(out), files=(valid,), output_file=new, probabilities=True, bf16=bf16
        )
    )
    with open(new, newline="") as f:
        predicted = list(csv.DictReader(f))
    (saved,) = (out / "models").iterdir()
    model = AutoModelForSequenceClassification.from_pretrained(saved).eval()
    tokenizer = AutoTokenizer.from_pretrained(saved)
    for row, was, now in zip(rows, scored, predicted, strict=True):
        with torch.no_grad():
            theirs = model(**tokenizer(row["text"], return_tensors="pt")).logits.softmax(-1)[0]
        for c in range(len(rows)):
            expected = float(was[f"probability of class {c}"])
            assert float(now[f"probability_class {c}"]) == pytest.approx(expected, abs=1e-5)
            at = model.config.label2id[f"class {c}"]
            near = 1e-5 if bf16 == "false" else 5e-3  # the library's own is float32
            assert theirs[at].item() == pytest.approx(expected, abs=near)
    assert len({row["predicted_label"] for row in predicted}) > 1


def modernbert_with(layer: torch.nn.Linear) -> tuple[ModernBertHead, PreTrainedModel]:
    """The form of its head, and a model that has one of this layer."""
    torch.manual_seed(0)
    torch.nn.init.normal_(layer.weight, std=0.8)
    sizes = {"vocab_size": 100, "intermediate_size": 32, "num_hidden_layers": 1}
    ids = {f"{name}_token_id": 0 for name in ("pad", "cls", "sep", "bos", "eos")}
    config = ModernBertConfig(
        hidden_size=layer.in_features,
        num_attention_heads=2,
        num_labels=layer.out_features,
        **sizes,  # type: ignore[arg-type]
        **ids,  # type: ignore[arg-type]
    )
    head = ModernBertHead()
    head.configure(config)
    model = ModernBertForSequenceClassification(config).eval()
    head.write(model, LinearOutput(layer), whole=True)
    return head, model


@pytest.mark.parametrize("classes", [2, 42, 43, 62, 63])
def test_sharp_logits_of_as_many_classes_as_the_library_has_room_for(classes: int) -> None:
    """ModernBERT's norm divides by a deviation that is the same for all texts, almost."""
    layer = torch.nn.Linear(128, classes)
    head, model = modernbert_with(layer)
    read = head.read(model, whole=True)
    assert read is not None
    assert torch.equal(read.layer.weight, layer.weight)
    tokens_BL = torch.randint(1, 100, (16, 20))
    with torch.inference_mode():
        wanted_BC = layer(model.base_model(tokens_BL).last_hidden_state[:, 0])
        found_BC = model(tokens_BL).logits
    assert wanted_BC.abs().max() > 8
    assert torch.allclose(found_BC, wanted_BC, atol=1e-4, rtol=1e-5)


def test_a_head_that_an_earlier_version_saved_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the same constants for any number of classes."""
    monkeypatch.setattr(fine_tuned_modernbert, "_LARGE_CONSTANT", 2.0**12)
    layer = torch.nn.Linear(128, 63)
    head, model = modernbert_with(layer)
    monkeypatch.undo()
    read = head.read(model, whole=True)
    assert read is not None
    assert torch.equal(read.layer.weight, layer.weight)
