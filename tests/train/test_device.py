"""The machine: devices, what a run records about it, and its memory."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from electrify.errors import UserError
from electrify.train import machine

CPU = torch.device("cpu")


def test_pick_device() -> None:
    assert machine.pick_device("cpu") == CPU
    assert machine.pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "", "mps"])
def test_a_device_that_nobody_knows_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="known: auto, cpu, cuda"):
        machine.pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=f"device {name} was asked for and torch finds 0 GPUs"):
        machine.pick_device(name)


@pytest.mark.parametrize(("name", "number"), [("cuda", None), ("cuda:1", 1)])
def test_a_gpu_by_its_number(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = machine.pick_device(name)
    assert (found.type, found.index) == ("cuda", number)


def test_describe_says_what_a_result_depends_on_and_not_where_it_ran() -> None:
    facts = machine.describe(CPU)
    assert facts["device"] == "cpu"
    assert torch.__version__.startswith(facts["torch"])  # the package may lack "+cu130"
    assert facts["python"] == platform.python_version()
    assert facts["threads"] == torch.get_num_threads()
    assert 1 <= facts["cores"] <= (os.cpu_count() or 1)
    assert facts["transformers"]
    text = json.dumps(facts)
    assert platform.node() not in text
    assert str(Path.home()) + "/" not in text
    assert str(Path(__file__).parents[2]) not in text


def test_supports_bf16_answers() -> None:
    assert isinstance(machine.supports_bf16(CPU), bool)


def test_peak_memory_is_that_of_the_process_in_bytes() -> None:
    before = machine.peak_memory_bytes(CPU)
    size = before + 50_000_000  # more than was ever resident
    touched = torch.ones(size // 4)
    assert size <= machine.peak_memory_bytes(CPU) < size + before + 200_000_000
    del touched
    assert machine.peak_memory_bytes(CPU) >= size  # a peak stays


# --- commit


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_git_commit_of_tracked_changed_and_foreign_files(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("1")
    assert machine.git_commit(file) is None  # no repository
    git(tmp_path, "init", "-q")
    assert machine.git_commit(file) is None  # somebody's repository, but not its file
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-q", "-m", "x")
    git(tmp_path, "tag", "v1")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert machine.git_commit(file) == head
    file.write_text("2")
    assert machine.git_commit(file) == f"{head}-dirty"
