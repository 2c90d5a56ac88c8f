"""Model folders of others as they occur: in shards, quantised, adapters, in the Hub's cache; and
records that are none: one sentence each."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from small import mistake, pretrain_words, run

QUICK: dict[str, Any] = {"max_steps": 4, "save_steps": 2, "logging_steps": 1}


@pytest.fixture(scope="module")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates with two checkpoints and its exported halves."""
    folder = tmp_path_factory.mktemp("files") / "run"
    assert run(*pretrain_words(small_data, folder, **QUICK)) == 0
    return folder


# ------------------------------------------------------------------ DATA


# ------------------------------------------------------------------ RUN


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
        "finetune": ["finetune", str(model), *files, "--baselines", "false", "--device", "cpu"],
        "pretrain": pretrain_words(
            data, tmp_path / "out", init_discriminator=str(model), max_steps=1
        ),
    }


def test_shards_of_this_folder_are_taken(model: Path, tmp_path: Path, small_data: Path) -> None:
    shard(model, "b.safetensors")
    assert run(*verbs(model, tmp_path, small_data)["detect"]) == 0


def change(model: Path, **fields: Any) -> None:
    raw = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(raw | fields), encoding="utf-8")


def test_a_shard_that_is_missing(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, small_data: Path
) -> None:
    shard(model, "gone.safetensors")
    for verb, words in verbs(model, tmp_path, small_data).items():
        assert "gone.safetensors" in mistake(capsys, *words), verb


@pytest.mark.parametrize("kind", ["quantised", "an adapter"])
def test_weights_that_are_not_whole(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, small_data: Path, kind: str
) -> None:
    if kind == "quantised":
        change(model, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    else:
        (model / "adapter_config.json").write_text('{"base_model_name_or_path": "../x"}')
    for verb, words in verbs(model, tmp_path, small_data).items():
        assert kind in mistake(capsys, *words), verb
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


# ---------------------------------------------------------- records of finetune, unfinished folders
