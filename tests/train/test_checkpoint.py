"""Checkpoints under kills, full disks, flipped bytes and strange folders."""

from __future__ import annotations

import errno
import math
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoints import FILES, folders, holds, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.cli import ending_of
from electrify.config.pretrain import load_recipe
from electrify.errors import SpaceError, UserError
from electrify.oldfiles.lock import lock
from electrify.oldfiles.run_folder import Found
from electrify.train import checkpoint
from electrify.train.saved import current_names
from electrify.train.space import bytes_needed, require_space
from small import files_of_at_most

# --- round trip


def test_save_then_newest_then_load(tmp_path: Path) -> None:
    path = save(tmp_path / "run", 5)
    assert path == tmp_path / "run" / "checkpoint-5"
    assert sorted(p.name for p in path.iterdir()) == sorted(FILES)
    assert checkpoint.newest(tmp_path / "run") == Found(path, 5)
    assert holds(path, 5)


def test_nothing_written_names_a_folder_of_this_machine(tmp_path: Path) -> None:
    path = save(tmp_path, 5)
    assert not any(os.fsencode(tmp_path) in (path / name).read_bytes() for name in FILES)


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
    values_N = torch.tensor(values, dtype=torch.float32)
    path = checkpoint.save(
        run, 0, tensors={"g": {"x": values_N, "half": values_N.bfloat16()}}, state=state, keep=None
    )
    tensors, loaded = checkpoint.load(path)
    assert loaded == state
    assert torch.equal(tensors["g"]["x"].view(torch.int32), values_N.view(torch.int32))
    assert torch.equal(
        tensors["g"]["half"].view(torch.int16), values_N.bfloat16().view(torch.int16)
    )


def test_a_nan_in_the_state_survives(tmp_path: Path) -> None:
    path = checkpoint.save(
        tmp_path, 1, tensors={}, state={"best": math.nan, "worst": math.inf}, keep=None
    )
    state = checkpoint.load(path)[1]
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
        checkpoint.save(tmp_path, 2, tensors=big, state={}, keep=1)
    assert folders(tmp_path) == {"checkpoint-1"}
    assert holds(tmp_path / "checkpoint-1", 1)
    checkpoint.save(tmp_path, 2, tensors=big, state={}, keep=1)  # and there is space again
    assert folders(tmp_path) == {"checkpoint-2"}


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failing_device_is_one_sentence_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "rename")), broken)
        with pytest.raises(UserError, match="Input/output error"):
            save(tmp_path, 2, keep=1)
    assert folders(tmp_path) == {"checkpoint-1"}
    assert holds(tmp_path / "checkpoint-1", 1)


def test_a_bug_of_the_caller_leaves_no_folder_either(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        checkpoint.save(tmp_path, 2, tensors={}, state={"x": object()}, keep=1)
    assert folders(tmp_path) == set()


def test_too_little_space_is_refused_before_the_start(tmp_path: Path) -> None:
    require_space(tmp_path / "not" / "yet", 1)
    with pytest.raises(
        SpaceError, match=r"GB free, the checkpoints of this run need 1,000,000\.00 GB; free some"
    ):
        require_space(tmp_path / "not" / "yet", 10**15)


# --- folders


def test_newest_of_nothing(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "absent") is None


def test_strange_folders_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 7)
    for name in (
        "checkpoint-abc",
        "checkpoint-",
        "checkpoint-08",
        "checkpoint--9",
        "checkpoint-9.bak",
        "xcheckpoint-9",
    ):
        shutil.copytree(tmp_path / "checkpoint-7", tmp_path / name)
    (tmp_path / "checkpoint-10").mkdir()
    (tmp_path / "checkpoint-11").write_text("a file")
    (tmp_path / "checkpoint-12").symlink_to("checkpoint-12")
    (tmp_path / "checkpoint-13").mkdir()
    for name in FILES:
        (tmp_path / "checkpoint-13" / name).touch()
    (tmp_path / f"checkpoint-{10**60}").mkdir()
    assert checkpoint.newest(tmp_path) == Found(tmp_path / "checkpoint-7", 7)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in lines] == [
        f" passing over checkpoint-{n}" for n in (10**60, 13, 12, 11, 10)
    ]

    save(tmp_path, 8, keep=1)  # and they neither count nor vanish
    assert checkpoint.newest(tmp_path) == Found(tmp_path / "checkpoint-8", 8)
    assert {"checkpoint-abc", "checkpoint-08", "checkpoint-10", "checkpoint-13"} < folders(tmp_path)
    assert "checkpoint-7" not in folders(tmp_path)


def test_rotation_goes_by_step_and_not_by_time(tmp_path: Path) -> None:
    for step in (100, 9, 20):
        save(tmp_path, step)
    for step, when in ((100, 1), (20, 2), (9, 3)):
        os.utime(tmp_path / f"checkpoint-{step}", (when, when))
    save(tmp_path, 200, keep=3)
    assert folders(tmp_path) == {"checkpoint-20", "checkpoint-100", "checkpoint-200"}


def test_rotation_does_not_count_the_incomplete(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "checkpoint-3" / "state.json").unlink()
    save(tmp_path, 4, keep=2)
    assert folders(tmp_path) == {"checkpoint-2", "checkpoint-3", "checkpoint-4"}


def test_rotation_never_takes_the_one_just_written(tmp_path: Path) -> None:
    save(
        tmp_path,
        500,
        # A later one of the same run whose weights were damaged, so that resuming went back to
        # before it.
    )
    weights = tmp_path / "checkpoint-500" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    save(tmp_path, 400, keep=1)
    assert folders(tmp_path) == {"checkpoint-400", "checkpoint-500"}
    assert checkpoint.newest(tmp_path) == Found(tmp_path / "checkpoint-400", 400)
    save(tmp_path, 500, keep=1)  # written anew when the run gets there
    assert folders(tmp_path) == {"checkpoint-500"}
    assert holds(tmp_path / "checkpoint-500", 500)


def test_a_complete_step_is_not_written_again(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    inode = (path / "model.safetensors").stat().st_ino
    assert (
        checkpoint.save(tmp_path, 3, tensors={"model": {"w": torch.zeros(1)}}, state={}, keep=1)
        == path
    )
    assert (path / "model.safetensors").stat().st_ino == inode
    assert holds(path, 3)


def test_only_our_own_temporaries_are_removed(tmp_path: Path) -> None:
    for name in (".tmp-3-" + "0" * 32, ".tmp-3-mine", ".tmp"):
        (tmp_path / name).mkdir()
    save(tmp_path, 4)
    assert folders(tmp_path) == {".tmp-3-mine", ".tmp", "checkpoint-4"}


# --- the lock

HOLDER = """
    import sys, time
    from pathlib import Path
    from electrify.oldfiles.lock import lock
    with lock(Path(sys.argv[1])):
        print("in", flush=True)
        time.sleep(60)
"""


def test_a_second_run_in_the_folder_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        with (
            pytest.raises(UserError, match=f"in use by process {holder.pid};"),
            lock(tmp_path / "run"),
        ):
            pass
        holder.kill()
        holder.wait()
    with lock(tmp_path / "run", keep=True):
        assert (tmp_path / "run" / ".lock").read_text() == f"electrify {os.getpid()}\n"
        with (
            pytest.raises(UserError, match="this very process"),
            lock(tmp_path / "run" / ".." / "run"),
        ):
            pass
    assert (tmp_path / "run" / ".lock").read_text() == ""
    with lock(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"), lock(tmp_path / "file" / "run"):
        pass
    with pytest.raises(UserError, match="could not be written"):
        save(tmp_path / "file" / "run", 1)


def test_only_names_of_the_first_version_are_changed() -> None:
    """An objective with a part `lm` of its own keeps it."""
    old = {"model": {"lm.encoder.a": torch.zeros(1), "corruptor.lm.b": torch.zeros(1)}}
    assert set(current_names(old)["model"]) == {"encoder.a", "corruptor.lm.b"}
    new = {"model": {"encoder.a": torch.zeros(1), "lm.b": torch.zeros(1)}}
    assert set(current_names(new)["model"]) == set(new["model"])


def must_have_room(folder: Path, config: Any, **given: Any) -> None:
    require_space(folder, bytes_needed(folder, config, **given))


def test_checkpoints_that_will_be_replaced_have_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_recipe("electra-tiny").train  # keeps two
    config = replace(config, max_steps=100, save_steps=10, save_total_limit=2)
    weights = {"model": {"w": torch.zeros(30_000)}}
    one = 12 * 10_000
    given = {"parameters": 10_000, "milestones": frozenset[int]()}
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1.5 * one))
    with pytest.raises(UserError, match="the checkpoints of this run need"):
        must_have_room(tmp_path, config, step=0, **given)
    for step in (10, 20):
        checkpoint.save(tmp_path, step, tensors=weights, state={"step": step}, keep=2)
    must_have_room(tmp_path, config, step=20, **given)
    # What a kill in a save has left is removed by the next one.
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0.5 * one))
    with pytest.raises(UserError, match="the checkpoints of this run need"):
        must_have_room(tmp_path, config, step=20, **given)
    shutil.copytree(tmp_path / "checkpoint-20", tmp_path / f".tmp-30-{'a' * 32}")
    must_have_room(tmp_path, config, step=20, **given)
    shutil.rmtree(tmp_path / f".tmp-30-{'a' * 32}")
    must_have_room(tmp_path, config, step=20, **given | {"frozen": 8_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1.5 * one))
    with pytest.raises(UserError, match="the checkpoints of this run need"):
        must_have_room(tmp_path, config, step=20, **given | {"milestones": frozenset({10, 20})})
    later = given | {"milestones": frozenset({10, 20, 30, 40})}  # two of which are still to come
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4.5 * one))
    with pytest.raises(UserError, match="the checkpoints of this run need"):
        must_have_room(tmp_path, config, step=20, **later)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5.5 * one))
    must_have_room(tmp_path, config, step=20, **later)
    # The last one is among those that are counted, and none comes after it.
    at_end = given | {"milestones": frozenset({10, 20, 100, 300})}
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3.5 * one))
    must_have_room(tmp_path, config, step=20, **at_end)
    every = replace(config, save_total_limit=None)
    must_have_room(tmp_path, every, step=70, **given | {"milestones": frozenset({80, 90, 100})})
    with pytest.raises(UserError, match="the checkpoints of this run need"):
        must_have_room(tmp_path, every, step=70, **given | {"milestones": frozenset({75})})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1.5 * one))
    must_have_room(tmp_path / "finished", config, step=100, **given)
    every = replace(config, save_total_limit=None)
    must_have_room(tmp_path, every, step=90, **given)
    with pytest.raises(UserError, match="the checkpoints of this run need"):
        must_have_room(tmp_path, every, step=20, **given)


def test_memory_that_runs_out_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, tensors={"model": {"w": torch.zeros(3)}}, state={}, keep=1)

    def full(path: Path) -> None:
        raise RuntimeError("unable to mmap 12 bytes from file <w>: Cannot allocate memory (12)")

    monkeypatch.setattr(checkpoint, "load_file", full)
    with pytest.raises(RuntimeError) as raised:
        checkpoint.load(tmp_path / "checkpoint-1")
    ending = ending_of(raised.value, "pretrain")
    assert ending is not None
    assert (ending.status, ending.sentence.partition(":")[0]) == (2, "memory ran out")
