"""A tensor that a folder holds twice with different values: which of the two the library takes is
chance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from electrify.errors import UserError
from electrify.oldfiles.models import INDEX, WEIGHTS, look_over

ONE, OTHER = torch.zeros(2, 3), torch.ones(2, 3)


def folder_of(tmp_path: Path, **files: dict[str, torch.Tensor]) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "electra"}')
    for name, named in files.items():
        tensors = {key: t.clone() for key, t in named.items()}
        save_file(tensors, tmp_path / f"{name}.safetensors", metadata={"format": "pt"})
    return tmp_path


def index(folder: Path, places: dict[str, str]) -> None:
    written = {"metadata": {}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(written))


def test_a_copy_in_a_shard_that_the_index_does_not_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a={"x.w": ONE, "x.b": ONE}, b={"x.w": OTHER, "x.c": ONE})
    index(folder, {"x.w": "a.safetensors", "x.b": "a.safetensors", "x.c": "b.safetensors"})
    with pytest.raises(UserError, match=r"b\.safetensors holds x\.w, .* is in a\.safetensors"):
        look_over(folder)


def test_shards_that_are_as_the_index_says(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a={"x.w": ONE}, b={"x.c": ONE})
    index(folder, {"x.w": "a.safetensors", "x.c": "b.safetensors"})
    look_over(folder)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("electra.embeddings.word.weight", "embeddings.word.weight"),
        ("electra.LayerNorm.gamma", "electra.LayerNorm.weight"),
        ("electra.LayerNorm.beta", "LayerNorm.bias"),
        ("a.layer_norm.beta", "a.layer_norm.bias"),
    ],
)
def test_two_names_of_one_tensor(tmp_path: Path, name: str, other: str) -> None:
    folder = folder_of(tmp_path, model={name: ONE, other: OTHER})
    with pytest.raises(UserError, match="two names of one weight, with different values") as e:
        look_over(folder)
    assert name in str(e.value)
    assert f"{WEIGHTS}" in str(e.value)


@pytest.mark.parametrize(
    "tensors",
    [
        {"electra.x.weight": ONE, "x.weight": ONE},
        {"electra.position_ids": ONE, "position_ids": OTHER},
        {"encoder.layer.weight": ONE, "decoder.layer.weight": OTHER},
        {"block.gamma": ONE, "block.weight": OTHER},
        {"head.weight": ONE, "weight": torch.ones(4)},
    ],
    ids=["the same values", "counted", "two parts", "no LayerNorm", "another shape"],
)
def test_what_is_not_the_same_twice(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    look_over(folder_of(tmp_path, model=tensors))


def test_two_names_in_two_shards(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a={"electra.w": ONE}, b={"w": OTHER})
    index(folder, {"electra.w": "a.safetensors", "w": "b.safetensors"})
    with pytest.raises(UserError, match="two names of one weight"):
        look_over(folder)
