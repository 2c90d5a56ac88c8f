"""Rotary bases: a run that goes on from a folder with longer rows and another base than it says,
and a run that begins with short rows, whose base belongs to their length."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import running
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from electrify.exporting.folder import export
from electrify.model.attention import Rotary, Turn
from electrify.recipe import Recipe
from electrify.train.run import pretrain
from small import SMALL

SHORT, LONG = 16, 48
THETA = 900.0
BOTH = ("discriminator", "generator")
OWN: dict[str, Any] = {
    "num_hidden_layers": 2,
    "global_attn_every_n_layers": 2,
    "local_attention": 4,
    "global_rope_theta": 50.0,
    "max_position_embeddings": SHORT,
    "max_steps": 4,
}
MORE: dict[str, Any] = {
    "max_seq_length": LONG,
    "extend_positions": LONG,
    "extend_rope_theta": THETA,
    # What a rate of nothing leaves of the weights is what the folder holds.
    "learning_rate": 1e-12,
    "weight_decay": 0.0,
}


def recipe(**fields: Any) -> Recipe:
    return running.recipe("electra-modernbert-tiny", **OWN | fields)


@pytest.fixture(scope="module")
def begun(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with short rows."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    pretrain(small_data, output_dir=folder, recipe=recipe())
    return folder


def starts(run: Path) -> dict[str, str]:
    return {f"init_{name}": str(run / name) for name in BOTH}


def test_goes_on_with_the_same_weights(small_data, begun, tmp_path, exports):
    """Both networks: every weight is the folder's, the exported numbers are the new ones, and the
    base changes what a row gives. The export has compared rows of 33 tokens, more than the folder
    could read, with transformers."""
    run = tmp_path / "run"
    pretrain(small_data, output_dir=run, recipe=recipe(**MORE, **starts(begun)))
    for name in BOTH:
        old, new = (load_file(r / name / "model.safetensors") for r in (begun, run))
        assert old.keys() == new.keys()
        for key, value in old.items():
            torch.testing.assert_close(new[key], value, rtol=0, atol=1e-6)
        had, has = (json.loads((r / name / "config.json").read_text()) for r in (begun, run))
        assert (had["max_position_embeddings"], has["max_position_embeddings"]) == (SHORT, LONG)
        said = json.loads((run / name / "tokenizer_config.json").read_text())
        assert said["model_max_length"] == LONG
        ropes = [c["rope_parameters"] for c in (had, has)]
        assert [r["full_attention"]["rope_theta"] for r in ropes] == [50.0, THETA]
        assert ropes[0]["sliding_attention"] == ropes[1]["sliding_attention"]
    ids_BL = torch.arange(LONG).remainder(90)[None] + 5
    old, new = (AutoModelForMaskedLM.from_pretrained(r / "generator") for r in (begun, run))
    with torch.no_grad():
        assert not torch.allclose(old(ids_BL).logits, new(ids_BL).logits, atol=1e-4), "the base"


def test_goes_on_when_the_folders_are_gone(small_data: Path, begun: Path, tmp_path: Path) -> None:
    """The extended shape is that of the run from then on."""
    copy = tmp_path / "copy"
    shutil.copytree(begun, copy)
    run = tmp_path / "run"
    given = MORE | starts(copy)
    pretrain(small_data, output_dir=run, recipe=recipe(**given, save_steps=2))
    shutil.rmtree(copy)
    shutil.rmtree(run / "checkpoint-4")
    pretrain(small_data, output_dir=run, recipe=recipe(**given, save_steps=2), resume="must")
    for shape in json.loads((run / "run.json").read_text())["shapes"].values():
        assert (shape["max_position_embeddings"], shape["global_rope_theta"]) == (LONG, THETA)


# running.ROPE: 12 updates, rows of 8 tokens for 6 of them, then of 32.
CHANGE, STEPS = 6, 12
FIRST, LAST = 20.0, 700.0


def test_every_update_turns_by_the_base_of_its_rows(small_data, tmp_path, monkeypatch):
    """Both networks, and validation like the update before it."""
    seen: dict[float, list[tuple[int, int]]] = {FIRST: [], LAST: [], 3.0: []}
    real = Rotary.turn

    def spy(self: Rotary, pos_T: torch.Tensor, dtype: torch.dtype) -> Turn:
        seen[self.theta].append((sum(map(len, seen.values())), len(pos_T)))
        return real(self, pos_T, dtype)

    config = running.recipe(
        "electra-modernbert-tiny", **running.ROPE, local_rope_theta=3.0, eval_steps=CHANGE
    )
    monkeypatch.setattr(Rotary, "turn", spy)
    pretrain(small_data, output_dir=tmp_path / "run", recipe=config)
    first, last, rows = seen[FIRST], seen[LAST], SMALL["train_batch_size"]
    assert first[-1] < last[0]
    sizes = [size for _, size in first]
    assert sizes[: 2 * CHANGE] == [rows * 8] * (2 * CHANGE)
    assert {*sizes[2 * CHANGE :]} == {rows * 32}, "of validation"
    assert len(last) >= 2 * (STEPS - CHANGE)
    assert 8 * rows not in {size for _, size in last}


@pytest.fixture(scope="module")
def whole(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("length") / "whole"
    kept = {"save_steps": 3, "save_total_limit": None}
    config = running.recipe("electra-modernbert-tiny", **running.ROPE, **kept)
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
