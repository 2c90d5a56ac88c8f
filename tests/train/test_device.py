"""The machine, and counters of energy in a made-up /sys."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from electrify.errors import UserError
from electrify.train import device

CPU = torch.device("cpu")


def test_pick_device() -> None:
    assert device.pick_device("cpu") == CPU
    assert device.pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "", "mps"])
def test_a_device_that_nobody_knows_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="known: auto, cpu, cuda"):
        device.pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=f"device {name} was asked for and .*; choose cpu or auto"):
        device.pick_device(name)


@pytest.mark.parametrize(("name", "number"), [("cuda", None), ("cuda:1", 1), ("cuda:01", 1)])
def test_a_gpu_by_its_number(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = device.pick_device(name)
    assert (found.type, found.index) == ("cuda", number)
    for odd in ("cuda:\u0663", f"cuda:{'0' * 5000}"):
        with pytest.raises(UserError, match="there is no device"):
            device.pick_device(odd)


def test_describe_says_what_a_result_depends_on_and_not_where_it_ran() -> None:
    facts = device.describe(CPU)
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
    assert isinstance(device.supports_bf16(CPU), bool)


def test_peak_memory_is_that_of_the_process_in_bytes() -> None:
    before = device.peak_memory_bytes(CPU)
    size = before + 50_000_000  # more than was ever resident
    touched = torch.ones(size // 4)
    assert size <= device.peak_memory_bytes(CPU) < size + before + 200_000_000
    del touched
    assert device.peak_memory_bytes(CPU) >= size  # a peak stays


# --- commit


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_git_commit_of_tracked_changed_and_foreign_files(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("1")
    assert device.git_commit(file) is None  # no repository
    git(tmp_path, "init", "-q")
    assert device.git_commit(file) is None  # somebody's repository, but not its file
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-q", "-m", "x")
    git(tmp_path, "tag", "v1")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert device.git_commit(file) == head
    file.write_text("2")
    assert device.git_commit(file) == f"{head}-dirty"


# --- energy


def zone(powercap: Path, folder: str, name: str, energy_uj: int, limit_uj: int) -> Path:
    path = powercap / folder
    path.mkdir(parents=True)
    for file, value in (
        ("name", name),
        ("energy_uj", energy_uj),
        ("max_energy_range_uj", limit_uj),
    ):
        (path / file).write_text(f"{value}\n")
    return path / "energy_uj"


def test_energy_sums_the_packages_and_survives_the_wrap(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000, 10_000_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 9_000_000, 10_000_000)
    for folder, name in (
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl-mmio:0", "package-0"),
    ):
        zone(tmp_path, folder, name, 0, 10_000_000)
    meter = device.EnergyMeter(CPU, powercap=tmp_path)
    assert meter.source == "rapl"
    assert meter.joules() == 0
    first.write_text("3000000\n")  # + 2 J
    second.write_text("500000\n")  # 1 J up to the wrap, .5 J after it
    (tmp_path / "intel-rapl:2" / "energy_uj").write_text("7000000\n")
    assert meter.joules() == pytest.approx(3.5)
    second.write_text("1500000\n")
    assert meter.joules() == pytest.approx(4.5)
    second.unlink()  # a counter that is gone is not a measurement, and not a crash
    assert meter.joules() is None
    assert meter.source is None


def test_no_counter_is_none_and_not_zero(tmp_path: Path) -> None:
    meter = device.EnergyMeter(CPU, powercap=tmp_path / "absent")
    assert (meter.source, meter.joules()) == (None, None)


def test_a_counter_that_may_not_be_read_is_none(tmp_path: Path) -> None:
    energy = zone(tmp_path, "intel-rapl:0", "package-0", 1, 2)
    energy.unlink()
    energy.mkdir()  # unreadable even for root
    meter = device.EnergyMeter(CPU, powercap=tmp_path)
    assert (meter.source, meter.joules()) == (None, None)
