"""A run whose rotary base belongs to the length of its rows: short rows first, then long ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify.exporting.folder import export
from electrify.model.positions import Rotary, Turn
from electrify.recipe import Recipe, load, override
from electrify.rules import check
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


@pytest.mark.parametrize("stop", [3, 6, 9])
def test_resumes_to_the_bit_on_either_side_of_the_change(small_data, whole, tmp_path, stop):
    again(small_data, whole, tmp_path / "broken", stop=stop, config=recipe())


@pytest.mark.parametrize(("step", "theta"), [(3, FIRST), (6, FIRST), (9, LAST), (None, LAST)])
def test_an_export_has_the_base_of_its_moment(whole, tmp_path, step, theta):
    """Every export was compared with transformers on the same input when it was written."""
    for part in ("discriminator", "generator"):
        folder = whole / part
        if step is not None:
            folder = export(whole, output_dir=tmp_path / part, part=part, step=step)
        config = json.loads((folder / "config.json").read_text())
        assert config["rope_parameters"]["full_attention"]["rope_theta"] == theta
        assert config["global_rope_theta"] == theta


@pytest.mark.parametrize("objective", ["bert", "electra", "corrective"])
@pytest.mark.parametrize("size", ["base", "small"])
def test_the_recipes_for_long_texts(objective: str, size: str) -> None:
    """2412.13663, section 2.2; batches of as many tokens in both phases as without. Otherwise the
    recipe for short texts."""
    short = load(f"{objective}-modernbert-{size}")
    config = load(f"{objective}-modernbert-{'' if size == 'base' else 'small-'}long")
    check(config)
    m = config.model
    assert (m.global_rope_theta_schedule, m.global_rope_theta) == (
        {1024: 10_000.0},
        160_000.0,
    )
    assert config.data.seq_length_schedule == {1024: 0.85}
    (rows,) = config.train.batch_size_schedule
    tokens = short.train.train_batch_size * short.data.max_seq_length
    assert rows * 1024 == config.train.train_batch_size * 8192 == tokens
    again = {
        "max_position_embeddings": 512,
        "global_rope_theta": 10_000.0,
        "global_rope_theta_schedule": {},
        "max_seq_length": short.data.max_seq_length,
        "seq_length_schedule": {},
        "train_batch_size": short.train.train_batch_size,
        "batch_size_schedule": {},
    }
    assert override(config, again) == short


# ---------------------------------------------------------------- as long as the recipes

LENGTHS = {512: 10_000.0, 1024: 20_000.0, 8192: 160_000.0}
PHASES = (3, 6, 8)  # the updates at which each ends


def long_recipe() -> Recipe:
    first, second, last = LENGTHS
    schedule = {length: LENGTHS[length] for length in (first, second)}
    return recipe(
        max_position_embeddings=last,
        max_seq_length=last,
        seq_length_schedule={first: PHASES[0] / PHASES[2], second: (PHASES[1] - PHASES[0]) / 8},
        global_rope_theta=LENGTHS[last],
        global_rope_theta_schedule=schedule,
        local_attention=128,
        train_batch_size=1,
        batch_size_schedule={16: 0.375, 8: 0.375},
        max_steps=PHASES[2],
        save_steps=1,
        eval_rows=1,
    )


@pytest.fixture(scope="module")
def long(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 512, of 1,024 and of 8,192 tokens, with as many tokens in every update."""
    folder = tmp_path_factory.mktemp("up_to_8192") / "whole"
    pretrain(small_data, output_dir=folder, config=long_recipe())
    return folder
