"""Checkpoints: what is saved comes back to the bit, a failing disk harms nothing, and the newest
whole one is found."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.train import checkpoint
from electrify.train.checkpoint import Groups
from small import files_of_at_most

FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def content(step: int) -> Groups:
    weights = torch.arange(12.0).reshape(3, 4) + step
    return {
        "model": {"w": weights, "b": torch.tensor([step])},
        "optimizer": {"w.exp_avg": weights.t() / 3, "step": torch.tensor(float(step))},
    }


def save(
    run: Path, step: int, keep: int | None = None, spared: frozenset[int] = frozenset()
) -> Path:
    return checkpoint.save(run, step, content(step), {"loss": step / 7}, keep=keep, spared=spared)


def must_hold(path: Path, step: int) -> None:
    """Fails if the checkpoint is not what `save` wrote."""
    tensors, state = checkpoint.load(path)
    assert (state["step"], state["loss"]) == (step, step / 7)
    torch.testing.assert_close(tensors, content(step), rtol=0, atol=0)


def folders(run: Path) -> set[str]:
    return {p.name for p in run.iterdir() if p.is_dir()}


def test_save_then_newest_then_load(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    assert path == tmp_path / "checkpoint-5"
    assert sorted(p.name for p in path.iterdir()) == sorted(FILES)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[1]["step"] == 5
    must_hold(path, 5)
    assert len({p.stat().st_mode for p in path.iterdir()}) == 1, "whoever reads one reads all"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    state=st.dictionaries(st.text(), JSON, max_size=4),
    values=st.lists(st.floats(width=32), max_size=5),
)
def test_every_state_and_every_float_comes_back_to_the_bit(tmp_path, state, values):
    shutil.rmtree(tmp_path / "checkpoint-0", ignore_errors=True)
    values_N = torch.tensor(values, dtype=torch.float32)
    groups = {"g": {"x": values_N, "half": values_N.bfloat16()}}
    path = checkpoint.save(tmp_path, 0, groups, {"state": state}, keep=None)
    tensors, loaded = checkpoint.load(path)
    assert loaded["state"] == state
    for name, kind in (("x", torch.int32), ("half", torch.int16)):
        assert torch.equal(tensors["g"][name].view(kind), groups["g"][name].view(kind))


def test_a_full_disk_is_one_sentence_and_harms_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1)
    big = {"model": {"w": torch.zeros(100_000)}}
    says = r"checkpoint 2 could not be written .*too large"
    with files_of_at_most(50_000), pytest.raises(UserError, match=says):
        checkpoint.save(tmp_path, 2, big, {}, keep=1)
    assert folders(tmp_path) == {"checkpoint-1"}
    must_hold(tmp_path / "checkpoint-1", 1)
    checkpoint.save(tmp_path, 2, big, {}, keep=1)  # and there is space again
    assert folders(tmp_path) == {"checkpoint-2"}


def test_rotation_goes_by_step_and_not_by_time(tmp_path: Path) -> None:
    for step in (100, 9, 20):
        save(tmp_path, step)
    for step, when in ((100, 1), (20, 2), (9, 3)):
        os.utime(tmp_path / f"checkpoint-{step}", (when, when))
    save(tmp_path, 200, keep=2, spared=frozenset({9}))  # a milestone
    assert checkpoint.steps(tmp_path) == [9, 100, 200]


def test_rotation_never_takes_the_one_just_written(tmp_path: Path) -> None:
    save(tmp_path, 500)
    # A later one of the same run whose weights were damaged, so that resuming went back to before
    # it.
    weights = tmp_path / "checkpoint-500" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    save(tmp_path, 400, keep=1)
    assert checkpoint.steps(tmp_path) == [400, 500]
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[1]["step"] == 400
    save(tmp_path, 500, keep=1)  # written anew when the run gets there
    assert folders(tmp_path) == {"checkpoint-500"}
    must_hold(tmp_path / "checkpoint-500", 500)


def test_what_a_kill_has_left_is_removed_by_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1).rename(tmp_path / ".checkpoint-3.123.part")
    save(tmp_path, 4)
    assert folders(tmp_path) == {"checkpoint-4"}
