"""Links, pipes, devices and giants in the model folders of others, and records with odd content:
one sentence each, nothing followed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from electrify.downstream.options import FinetuneSettings
from electrify.downstream.records import settings_text
from small import mistake, pretrain_words, run

QUICK: dict[str, Any] = {"max_steps": 4, "save_steps": 2, "logging_steps": 1}
SECRET = "a line that nobody may publish\n"


@pytest.fixture(scope="module")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates with two checkpoints and its exported halves."""
    folder = tmp_path_factory.mktemp("files") / "run"
    assert run(*pretrain_words(small_data, folder, **QUICK)) == 0
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "secret.txt"
    path.parent.mkdir()
    path.write_text(SECRET, encoding="utf-8")
    return path


def replaced(path: Path, target: Path | str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


# ------------------------------------------------------------------ MODEL


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    """A model of others: an export without our mark."""
    folder = Path(shutil.copytree(finished / "discriminator", tmp_path / "model"))
    (folder / "electrify.json").unlink()
    return folder


def shard(model: Path, name: str) -> None:
    """The weights in two files, of which the index calls the second `name`."""
    named = load_file(model / "model.safetensors")
    half = len(named) // 2
    for file, keys in (
        ("a.safetensors", sorted(named)[:half]),
        ("b.safetensors", sorted(named)[half:]),
    ):
        save_file({k: named[k] for k in keys}, model / file, metadata={"format": "pt"})
    places = {k: "a.safetensors" if i < half else name for i, k in enumerate(sorted(named))}
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8"
    )


def verbs(model: Path, tmp_path: Path, data: Path) -> dict[str, list[str]]:
    (tmp_path / "a.csv").write_text("text,label\n" + "the one,1\nthe two,0\n" * 4, encoding="utf-8")
    (tmp_path / "pairs").mkdir(exist_ok=True)
    (tmp_path / "pairs" / "one.jsonl").write_text(
        '{"sentence_good": "the one", "sentence_bad": "one the"}\n', encoding="utf-8"
    )
    files = [
        "--train-file",
        str(tmp_path / "a.csv"),
        "--validation-file",
        str(tmp_path / "a.csv"),
        "--output-dir",
        str(tmp_path / "out"),
    ]
    return {
        "detect": ["detect", str(model), "the one"],
        "evaluate": [
            "evaluate",
            str(model),
            "--data-dir",
            str(tmp_path / "pairs"),
            "--device",
            "cpu",
        ],
        "finetune": ["finetune", str(model), *files, "--seeds", "1", "--device", "cpu"],
        "pretrain": pretrain_words(
            data, tmp_path / "out", init_discriminator=str(model), max_steps=1
        ),
    }


def test_shards_of_this_folder_are_taken(model: Path, tmp_path: Path, small_data: Path) -> None:
    shard(model, "b.safetensors")
    assert run(*verbs(model, tmp_path, small_data)["detect"]) == 0


SHARDS = [("../../dev/zero", "which is not a .safetensors file"), ("/etc/passwd", "which is not"),
 ("../b.safetensors", "which is not"),
          ("gone.safetensors", "names gone.safetensors, which is missing"),
          ("pipe.safetensors", "is a pipe, not a file"),
          ("zero.safetensors", "is a device, not a file"),
          ("out.safetensors", "leads out of its folder")]  # fmt: skip


@pytest.mark.parametrize(("name", "says"), SHARDS)
def test_shards_of_elsewhere(
    capsys: pytest.CaptureFixture[str],
    model: Path,
    secret: Path,
    tmp_path: Path,
    small_data: Path,
    name: str,
    says: str,
) -> None:
    shard(model, name)
    os.mkfifo(model / "pipe.safetensors") if "pipe" in name else None
    (model / "zero.safetensors").symlink_to("/dev/zero") if "zero.s" in name else None
    (model / "out.safetensors").symlink_to(secret) if "out" in name else None
    for verb, words in verbs(model, tmp_path, small_data).items():
        assert says in mistake(capsys, *words), verb


def giant_template(model: Path, secret: Path) -> None:
    with (model / "chat_template.jinja").open("wb") as f:
        f.truncate(3 << 30)


def giant_config(model: Path, secret: Path) -> None:
    with (model / "config.json").open("r+b") as f:
        f.truncate(3 << 30)


def piped_config(model: Path, secret: Path) -> None:
    pipe(model / "tokenizer_config.json")


def linked_vocabulary(model: Path, secret: Path) -> None:
    replaced(model / "vocab.txt", secret)


def piped_generation(model: Path, secret: Path) -> None:
    pipe(model / "generation_config.json")


def templates(model: Path, secret: Path) -> None:
    (model / "additional_chat_templates").mkdir()
    pipe(model / "additional_chat_templates" / "a.jinja")


def other_configuration(model: Path, secret: Path) -> None:
    change(model, configuration_files=["config.4.0.0.json", "../../x.json"])


def other_weights(model: Path, secret: Path) -> None:
    change(model, transformers_weights="../x.safetensors")


def quantised(model: Path, secret: Path) -> None:
    change(model, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})


def adapter(model: Path, secret: Path) -> None:
    (model / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "../x"}', encoding="utf-8"
    )


def long_texts(model: Path, secret: Path) -> None:
    path = model / "tokenizer_config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"model_max_length": "many"}),
        encoding="utf-8",
    )


def change(model: Path, **fields: Any) -> None:
    raw = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(raw | fields), encoding="utf-8")


def as_type(dtype: torch.dtype) -> Callable[[Path, Path], None]:
    def spoil(model: Path, secret: Path) -> None:
        named = load_file(model / "model.safetensors")
        save_file(
            {k: t.to(dtype) for k, t in named.items()},
            model / "model.safetensors",
            metadata={"format": "pt"},
        )

    spoil.__name__ = str(dtype).removeprefix("torch.")
    return spoil


MODELS: list[tuple[Callable[[Path, Path], None], str]] = [
    (giant_template, "chat_template.jinja has 3,072 MB"),
    (giant_config, "config.json has 3,072 MB"),
    (piped_config, "tokenizer_config.json is a pipe"),
    (linked_vocabulary, "vocab.txt is a link that leads out"),
    (piped_generation, "generation_config.json is a pipe"), (templates, "holds chat templates"),
    (other_configuration, "names other files"),
    (other_weights, "names other files"), (quantised, "says that the weights are quantised"),
    (adapter, "is of an adapter"),
    (long_texts, "model_max_length is 'many', a number is needed"),
    *((as_type(t), "and weights are numbers of")
     for t in (torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.int64)),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "says"), MODELS, ids=[spoil.__name__ for spoil, _ in MODELS])
def test_a_model_of_others(
    capsys: pytest.CaptureFixture[str],
    model: Path,
    secret: Path,
    tmp_path: Path,
    small_data: Path,
    spoil: Callable[[Path, Path], None],
    says: str,
) -> None:
    spoil(model, secret)
    for verb, words in verbs(model, tmp_path, small_data).items():
        sentence = mistake(capsys, *words)
        assert says in sentence, verb
        assert "secret" not in sentence
    assert not (tmp_path / "out").exists()


def test_a_snapshot_of_the_hubs_cache(model: Path, tmp_path: Path, small_data: Path) -> None:
    """Its files are links to ../../blobs, which belong to it."""
    top = tmp_path / "hub" / "models--somebody--electra"
    snapshot = top / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (top / "blobs").mkdir()
    for path in model.iterdir():
        name = hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copy(path, top / "blobs" / name)
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", name))
    assert run(*verbs(snapshot, tmp_path, small_data)["detect"]) == 0


# ------------------------------------------------------------------ records of finetune


@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        "5\n",
        "[]\n",
        '{"model": "m"}\n',
        "",
        "\n",
        '{"a": 1}',
        "[" * 100_000 + "\n",
        "NaN\n",
    ],
)
def test_scores_that_are_not_records(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, small_data: Path, text: str
) -> None:
    (tmp_path / "out").mkdir()
    asked = {k: v for k, v in asdict(FinetuneSettings().filled()).items() if k != "device"}
    (tmp_path / "out" / "finetune.json").write_text(settings_text(asked), encoding="utf-8")
    (tmp_path / "out" / "scores.jsonl").write_text(text, encoding="utf-8")
    words = verbs(model, tmp_path, small_data)["finetune"]
    assert "scores.jsonl" in mistake(capsys, *words)
    assert (tmp_path / "out" / "scores.jsonl").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "5",
        '{"learning_rate": "fast"}',
        '{"num_train_epochs": []}',
        '{"nobody": 1}',
        "[" * 100_000,
        '{"a": 1, "a": 1}',
    ],
)
def test_settings_that_are_not_settings(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, small_data: Path, text: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "finetune.json").write_text(text, encoding="utf-8")
    assert "finetune.json" in mistake(capsys, *verbs(model, tmp_path, small_data)["finetune"])
