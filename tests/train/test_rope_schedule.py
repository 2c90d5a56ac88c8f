"""A run whose rotary base belongs to the length of its rows: short rows first, then long ones."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify.exporting.folder import export
from electrify.model.positions import Rotary, Turn
from electrify.recipe import Recipe, load, override
from electrify.train.run import pretrain
from small import SMALL, same_ending

STEPS, CHANGE = 12, 6
SHORT, LONG = 8, 32
FIRST, LAST = 20.0, 700.0
OWN: dict[str, Any] = {
    "num_hidden_layers": 2,
    "global_attn_every_n_layers": 2,
    "local_attention": 4,
    "generator_size": 1.0,
    "max_steps": STEPS,
    "max_seq_length": LONG,
    "seq_length_schedule": {SHORT: 0.5},
    "global_rope_theta": LAST,
    "global_rope_theta_schedule": {SHORT: FIRST},
    "logging_steps": 1,
    "eval_steps": 0,
    "save_steps": 3,
    "save_total_limit": None,
    "dropout": 0.1,
}


def recipe(**fields: Any) -> Recipe:
    return override(load("electra-modernbert-tiny"), SMALL | OWN | fields)


@pytest.fixture(scope="module")
def whole(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("length") / "whole"
    pretrain(small_data, output_dir=folder, config=recipe())
    return folder


def again(data: Path, whole: Path, broken: Path, *, stop: int, config: Recipe) -> None:
    """A copy of a run goes on from an earlier checkpoint and ends as the run did."""
    shutil.copytree(whole, broken)
    for path in broken.glob("checkpoint-*"):
        if int(path.name.split("-")[1]) > stop:
            shutil.rmtree(path)
    for name in ("discriminator", "generator"):
        shutil.rmtree(broken / name)
    pretrain(data, output_dir=broken, config=config, resume="auto")
    same_ending(whole, broken, step=config.train.max_steps)


def test_every_update_turns_by_the_base_of_its_rows(small_data, tmp_path, monkeypatch):
    """Both networks, and validation like the update before it."""
    seen: list[tuple[float, int]] = []
    real = Rotary.turn

    def spy(self: Rotary, pos_T: torch.Tensor, dtype: torch.dtype) -> Turn:
        seen.append((self.theta, len(pos_T)))
        return real(self, pos_T, dtype)

    config = recipe(local_rope_theta=3.0, eval_steps=CHANGE)
    with monkeypatch.context() as patch:
        patch.setattr(Rotary, "turn", spy)
        pretrain(small_data, output_dir=tmp_path / "run", config=config)
    bases = {FIRST: [], LAST: []}  # type: ignore[var-annotated]
    for k, (theta, size) in enumerate(one for one in seen if one[0] != 3.0):
        bases[theta].append((k, size))
    assert max(k for k, _ in bases[FIRST]) < min(k for k, _ in bases[LAST])
    rows = SMALL["train_batch_size"]
    assert [size for _, size in bases[FIRST]][: 2 * CHANGE] == [rows * SHORT] * (2 * CHANGE)
    assert {size for _, size in bases[FIRST][2 * CHANGE :]} == {rows * LONG}, "of validation"
    assert len(bases[LAST]) >= 2 * (STEPS - CHANGE)
    assert SHORT * rows not in {size for _, size in bases[LAST]}


@pytest.mark.parametrize("stop", [3, 6])
def test_resumes_to_the_bit_on_either_side_of_the_change(small_data, whole, tmp_path, stop):
    again(small_data, whole, tmp_path / "broken", stop=stop, config=recipe())


@pytest.mark.parametrize(("step", "theta"), [(6, FIRST), (9, LAST), (None, LAST)])
def test_an_export_has_the_base_of_its_moment(whole, tmp_path, step, theta):
    """Every export was compared with transformers on the same input when it was written."""
    for part in ("discriminator", "generator"):
        folder = whole / part
        if step is not None:
            folder = export(whole, output_dir=tmp_path / part, part=part, step=step)
        config = json.loads((folder / "config.json").read_text())
        assert config["rope_parameters"]["full_attention"]["rope_theta"] == theta
        assert config["global_rope_theta"] == theta
