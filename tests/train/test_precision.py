"""In which numbers a run computes: as asked, as it began, or as the machine can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from electrify.recipe import load
from electrify.train import machine as machine_module
from electrify.train.dist import World
from small import pretrain_words, run, same_ending, steps_of

QUICK = {"max_steps": 4, "warmup_steps": 1, "save_steps": 2}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether this machine has arithmetic in bfloat16."""

    def has(able: bool) -> None:
        monkeypatch.setattr(machine_module, "supports_bf16", lambda device: able)

    return has


def words(data: Path, folder: Path, *more: str, **fields: object) -> list[str]:
    """Those of a small run that does not say in what it computes."""
    given = pretrain_words(data, folder, **QUICK | fields)
    at = given.index("--bf16")
    return [*given[:at], *given[at + 2 :], *more]


def written(folder: Path) -> bool:
    return yaml.safe_load((folder / "config.yaml").read_text())["train"]["bf16"]


@pytest.mark.parametrize("able", [False, True])
def test_as_the_machine_can(
    small_data: Path, tmp_path: Path, machine: Callable[[bool], None], able: bool
) -> None:
    machine(able)
    assert run(*words(small_data, tmp_path / "run")) == 0
    assert written(tmp_path / "run") is able


@pytest.mark.parametrize("able", [True])
def test_a_run_goes_on_as_it_began_on_another_machine(
    small_data: Path,
    tmp_path: Path,
    machine: Callable[[bool], None],
    capsys: pytest.CaptureFixture[str],
    able: bool,
) -> None:
    machine(able)
    assert run(*words(small_data, tmp_path / "whole")) == 0
    assert run(*words(small_data, tmp_path / "run", "--max-minutes", "1e-9")) == 75
    assert steps_of(tmp_path / "run") == [1]
    machine(not able)
    capsys.readouterr()
    assert run(*words(small_data, tmp_path / "run")) == 0
    assert ("emulates bfloat16" in capsys.readouterr().err) is able
    same_ending(tmp_path / "whole", tmp_path / "run", step=4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_products_of_float32_on_a_gpu_use_tf32(
    machine: Callable[[bool], None], device: str
) -> None:
    machine(True)
    matmul = torch.backends.cuda.matmul
    assert not matmul.allow_tf32
    world = World(0, 1, torch.device(device))
    try:
        machine_module.with_precision(load("electra-tiny"), world, begun=None)
        assert matmul.allow_tf32 is (device == "cuda")
    finally:
        matmul.allow_tf32 = False
