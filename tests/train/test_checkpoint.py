"""Checkpoints: what is saved comes back to the bit, a failing disk harms nothing, and the newest
whole one is found."""

from __future__ import annotations

import errno
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import FILES, content, folders, holds, newest_step, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.cli import ending
from electrify.errors import UserError
from electrify.train import checkpoint
from small import files_of_at_most

# --- round trip


def test_save_then_newest_then_load(tmp_path: Path) -> None:
    path = save(tmp_path / "run", 5)
    assert path == tmp_path / "run" / "checkpoint-5"
    assert sorted(p.name for p in path.iterdir()) == sorted(FILES)
    found = checkpoint.newest(tmp_path / "run")
    assert found is not None
    assert found[0] == path
    assert holds(path, 5)
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
def test_every_state_and_every_float_comes_back_to_the_bit(
    tmp_path: Path, state: dict[str, Any], values: list[float]
) -> None:
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    values_N = torch.tensor(values, dtype=torch.float32)
    groups = {"g": {"x": values_N, "half": values_N.bfloat16()}}
    tensors, loaded = checkpoint.load(checkpoint.save(run, 0, groups, {"state": state}, keep=None))
    assert loaded["state"] == state
    assert torch.equal(tensors["g"]["x"].view(torch.int32), values_N.view(torch.int32))
    assert torch.equal(
        tensors["g"]["half"].view(torch.int16), values_N.bfloat16().view(torch.int16)
    )


def test_a_nan_in_the_state_survives(tmp_path: Path) -> None:
    state = {"best": math.nan, "worst": math.inf}
    state = checkpoint.load(checkpoint.save(tmp_path, 1, {}, state, keep=None))[1]
    assert math.isnan(state["best"])
    assert state["worst"] == math.inf


# --- failing disks


def test_a_full_disk_is_one_sentence_and_harms_nothing(tmp_path: Path) -> None:
    save(tmp_path, 1)
    big = {"model": {"w": torch.zeros(100_000)}}
    with (
        files_of_at_most(50_000),
        pytest.raises(UserError, match=r"checkpoint 2 could not be written .*too large"),
    ):
        checkpoint.save(tmp_path, 2, big, {}, keep=1)
    assert folders(tmp_path) == {"checkpoint-1"}
    assert holds(tmp_path / "checkpoint-1", 1)
    checkpoint.save(tmp_path, 2, big, {}, keep=1)  # and there is space again
    assert folders(tmp_path) == {"checkpoint-2"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_device_is_one_sentence_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), broken)
        with pytest.raises(UserError, match="Input/output error"):
            save(tmp_path, 2, keep=1)
    assert folders(tmp_path) == {"checkpoint-1"}
    assert holds(tmp_path / "checkpoint-1", 1)


def test_a_bug_of_the_caller_leaves_no_folder_either(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        checkpoint.save(tmp_path, 2, {}, {"x": object()}, keep=1)
    assert folders(tmp_path) == set()


def test_memory_that_runs_out_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, {"model": {"w": torch.zeros(3)}}, {}, keep=1)

    def full(path: Path) -> None:
        raise RuntimeError("unable to mmap 12 bytes from file <w>: Cannot allocate memory (12)")

    monkeypatch.setattr(checkpoint, "load_file", full)
    with pytest.raises(RuntimeError) as raised:
        checkpoint.newest(tmp_path)
    sentence, status = ending(raised.value, "pretrain")
    assert (status, "memory ran out" in str(sentence)) == (2, True)


# --- folders


def test_newest_of_nothing(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "absent") is None


def test_strange_folders_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 7)
    for name in ("checkpoint-abc", "checkpoint-", "checkpoint-08", "checkpoint-9.bak"):
        shutil.copytree(tmp_path / "checkpoint-7", tmp_path / name)
    (tmp_path / "checkpoint-10").mkdir()
    (tmp_path / "checkpoint-11").write_text("a file")
    assert newest_step(tmp_path) == 7
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" is ")[0].rpartition("/")[2] for line in lines] == [
        f"checkpoint-{n}" for n in (11, 10)
    ]


def test_rotation_goes_by_step_and_not_by_time(tmp_path: Path) -> None:
    for step in (100, 9, 20):
        save(tmp_path, step)
    for step, when in ((100, 1), (20, 2), (9, 3)):
        os.utime(tmp_path / f"checkpoint-{step}", (when, when))
    save(tmp_path, 200, keep=3)
    assert folders(tmp_path) == {"checkpoint-20", "checkpoint-100", "checkpoint-200"}


def test_rotation_spares_milestones(tmp_path: Path) -> None:
    for step in range(1, 7):
        checkpoint.save(tmp_path, step, *content(step), keep=2, spared=frozenset({2, 5}))
    assert checkpoint.steps(tmp_path) == [2, 4, 5, 6]


def test_rotation_never_takes_the_one_just_written(tmp_path: Path) -> None:
    save(tmp_path, 500)
    # A later one of the same run whose weights were damaged, so that resuming went back to before
    # it.
    weights = tmp_path / "checkpoint-500" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    save(tmp_path, 400, keep=1)
    assert folders(tmp_path) == {"checkpoint-400", "checkpoint-500"}
    assert newest_step(tmp_path) == 400
    save(tmp_path, 500, keep=1)  # written anew when the run gets there
    assert folders(tmp_path) == {"checkpoint-500"}
    assert holds(tmp_path / "checkpoint-500", 500)


def test_what_a_kill_has_left_is_removed_by_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1).rename(tmp_path / ".checkpoint-3.123.part")
    save(tmp_path, 4)
    assert folders(tmp_path) == {"checkpoint-4"}


def test_a_folder_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run \(No such file or directory\)"):
        checkpoint.save(tmp_path / "run", 1, *content(1), keep=1)
