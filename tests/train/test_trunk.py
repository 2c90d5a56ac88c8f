"""A run that starts from the checkpoint of a longer one is the run from scratch, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from electrify.config.pretrain import PretrainConfig, load_recipe, override
from electrify.errors import UserError
from electrify.files.run_folder import numbered
from electrify.pretraining.pretrain import pretrain
from electrify.train.trunk import leaves_at
from small import SMALL, same_ending

LONG, SHORT = 40, 20


def recipe(name: str, **fields: Any) -> PretrainConfig:
    given = {"lr_scheduler_type": "wsd", "logging_steps": 3, "eval_steps": 8, "dropout": 0.1}
    return override(load_recipe(name), SMALL | given | {"max_steps": SHORT} | fields)


def trunk_of(data: Path, folder: Path, config: PretrainConfig) -> Path:
    """The long run, which keeps only its last checkpoint and the one where `config` leaves."""
    long = override(config, {"max_steps": LONG, "save_steps": 7, "save_total_limit": 1})
    step = leaves_at(config, long)
    pretrain(data, output_dir=folder, config=long, milestones=frozenset({step}))
    assert {c.step for c in numbered(folder)} == {step, LONG}
    return folder / f"checkpoint-{step}"


@pytest.mark.parametrize("name", ["bert-tiny", "electra-tiny"])
def test_the_same_bytes_as_from_scratch(small_data: Path, tmp_path: Path, name: str) -> None:
    config = recipe(name)
    trunk = trunk_of(small_data, tmp_path / "long", config)
    assert 0.75 * SHORT <= int(trunk.name.split("-")[1]) < SHORT
    pretrain(small_data, output_dir=tmp_path / "whole", config=config)
    pretrain(small_data, output_dir=tmp_path / "end", config=config, trunk=trunk)
    same_ending(tmp_path / "whole", tmp_path / "end", step=SHORT)
    # Its checkpoints are its own: it does not begin at the trunk again.
    pretrain(small_data, output_dir=tmp_path / "end", config=config, trunk=trunk)
    same_ending(tmp_path / "whole", tmp_path / "end", step=SHORT)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"seed": 1}, "another recipe.*seed"),
        ({"learning_rate": 1e-4}, "another recipe.*learning_rate"),
        ({"max_steps": 15}, "not the same as one of 40"),
        ({"lr_scheduler_type": "linear"}, "another recipe.*lr_scheduler_type"),
    ],
)
def test_another_run_does_not_start_there(
    small_data: Path, tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    trunk = trunk_of(small_data, tmp_path / "long", recipe("bert-tiny"))
    config = recipe("bert-tiny", **fields)
    with pytest.raises(UserError, match=says):
        pretrain(small_data, output_dir=tmp_path / "end", config=config, trunk=trunk)
    assert not (tmp_path / "end" / "config.yaml").exists()
