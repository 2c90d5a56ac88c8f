"""Models that finetune cannot train: one sentence before the first update, whatever they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from electrify.downstream.attention import plain_attention
from electrify.downstream.examples import Answer, Question
from electrify.downstream.finetune import finetune
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.read.task import answering_of
from electrify.downstream.trial import width_of
from electrify.errors import UserError

SIZE: dict[str, Any] = {
    "vocab_size": 26,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
TEXT = {k: SIZE[k] for k in ("vocab_size", "hidden_size")}
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "ViT": ({**SIZE, "image_size": 8, "patch_size": 4}, "reads no tokens of a text"),
    "Canine": (SIZE, "reads no tokens of a text"),
    "Wav2Vec2": (
        {**SIZE, "conv_dim": (8,), "conv_kernel": (3,), "conv_stride": (2,), "pad_token_id": 0},
        "reads no tokens of a text",
    ),
    "Bros": (SIZE, "cannot be fine-tuned here"),
}


@pytest.fixture
def asked(zoo: Path, reviews: tuple[str, str], tmp_path: Path) -> Callable[[Path], FinetuneConfig]:
    def options(model: Path) -> FinetuneConfig:
        return FinetuneConfig(
            models=(str(model),),
            output_dir=str(tmp_path / "out"),
            train_file=reviews[0],
            validation_file=reviews[1],
            seeds=1,
            settings=FinetuneSettings(num_train_epochs=1, max_seq_length=16, bf16="false"),
        )

    return options


def tokenizer(zoo: Path, folder: Path) -> Path:
    return Path(
        shutil.copytree(
            zoo / "bert", folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json")
        )
    )


@pytest.mark.parametrize("kind", MODELS)
def test_models_that_are_no_text_encoders(
    zoo: Path, tmp_path: Path, asked: Callable[[Path], FinetuneConfig], kind: str
) -> None:
    fields, says = MODELS[kind]
    model = tokenizer(zoo, tmp_path / "model")
    config = getattr(transformers, f"{kind}Config")(**fields)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(model)
    with pytest.raises(UserError, match=says) as e:
        finetune(asked(model))
    assert len(str(e.value)) < 600
    assert not (tmp_path / "out" / "scores.jsonl").exists()


def test_a_table_of_tokens_of_another_class(
    zoo: Path, tmp_path: Path, asked: Callable[[Path], FinetuneConfig]
) -> None:
    model = tokenizer(zoo, tmp_path / "model")
    config = transformers.IBertConfig(**SIZE, pad_token_id=0)
    transformers.IBertModel(config).save_pretrained(model)
    assert finetune(asked(model)).rows


def test_a_complaint_of_several_lines(
    zoo: Path, tmp_path: Path, asked: Callable[[Path], FinetuneConfig]
) -> None:
    """It ended at the colon of its first line."""
    model = Path(shutil.copytree(zoo / "bert", tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"pad_token_id": "x"}))
    with pytest.raises(UserError, match=r"for field 'pad_token_id': .*'x' doesn't match") as e:
        finetune(asked(model))
    assert "\n" not in str(e.value)


def test_a_type_with_two_models(
    zoo: Path, tmp_path: Path, asked: Callable[[Path], FinetuneConfig]
) -> None:
    """The library has two for Funnel; the first is the one that keeps every token."""
    model = tokenizer(zoo, tmp_path / "model")
    small = {"block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 16, "n_head": 2}
    config = transformers.FunnelConfig(vocab_size=26, d_head=8, d_inner=32, **small)
    transformers.FunnelModel(config).save_pretrained(model)
    assert finetune(asked(model)).rows


@pytest.mark.parametrize("value", [2.0, -1])
def test_a_dropout_that_is_none(
    zoo: Path, tmp_path: Path, asked: Callable[[Path], FinetuneConfig], value: object
) -> None:
    model = Path(shutil.copytree(zoo / "bert", tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"classifier_dropout": value}))
    with pytest.raises(UserError, match=f"says classifier_dropout {value}, .* is 0 to 1"):
        finetune(asked(model))


def test_first_questions_of_which_nothing_can_be_learned(zoo: Path) -> None:
    """Their answers fit into no window; the next one's do."""
    long = " ".join(["the film was very good"] * 4)
    made = [Question(str(k), "it ?", long, (Answer(long, 0),)) for k in range(2)]
    made.append(Question("2", "it ?", "the film", (Answer("film", 4),)))
    task = answering_of("squad", made, made, epochs=1)
    settings = FinetuneSettings(max_seq_length=16, answer_head="plain")
    assert width_of(str(zoo / "bert"), [task], settings, torch.device("cpu")) == 16


def test_attention_where_only_the_values_are_in_16_bits() -> None:
    """A model turns queries and keys by float32 angles; autocast leaves the values in bfloat16."""
    query, key = torch.randn(2, 1, 2, 3, 4)
    value: Tensor = torch.randn(1, 2, 3, 4).bfloat16()
    found, _ = plain_attention(torch.nn.Module(), query, key, value, None)
    want, _ = plain_attention(torch.nn.Module(), query, key, value.float(), None)
    assert torch.equal(found, want)
