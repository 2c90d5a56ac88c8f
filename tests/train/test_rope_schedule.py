"""A run whose rotary base belongs to the length of its rows: short rows first, then long ones. (It
resumes: test_resume.py.)"""

import json
from pathlib import Path

import pytest
import torch
from running import ROPE, recipe

from electrify.exporting.folder import export
from electrify.model.positions import Rotary, Turn
from electrify.train.run import pretrain
from small import SMALL

STEPS, CHANGE = 12, 6
SHORT, LONG = 8, 32
FIRST, LAST = 20.0, 700.0


def test_every_update_turns_by_the_base_of_its_rows(small_data, tmp_path, monkeypatch):
    """Both networks, and validation like the update before it."""
    seen: dict[float, list[tuple[int, int]]] = {FIRST: [], LAST: [], 3.0: []}
    real = Rotary.turn

    def spy(self: Rotary, pos_T: torch.Tensor, dtype: torch.dtype) -> Turn:
        seen[self.theta].append((sum(map(len, seen.values())), len(pos_T)))
        return real(self, pos_T, dtype)

    config = recipe("electra-modernbert-tiny", **ROPE, local_rope_theta=3.0, eval_steps=CHANGE)
    monkeypatch.setattr(Rotary, "turn", spy)
    pretrain(small_data, output_dir=tmp_path / "run", recipe=config)
    first, last, rows = seen[FIRST], seen[LAST], SMALL["train_batch_size"]
    assert first[-1] < last[0]
    sizes = [size for _, size in first]
    assert sizes[: 2 * CHANGE] == [rows * SHORT] * (2 * CHANGE)
    assert {*sizes[2 * CHANGE :]} == {rows * LONG}, "of validation"
    assert len(last) >= 2 * (STEPS - CHANGE)
    assert SHORT * rows not in {size for _, size in last}


@pytest.fixture(scope="module")
def whole(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("length") / "whole"
    kept = {"save_steps": 3, "save_total_limit": None}
    config = recipe("electra-modernbert-tiny", **ROPE, **kept)
    pretrain(small_data, output_dir=folder, recipe=config)
    return folder


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
