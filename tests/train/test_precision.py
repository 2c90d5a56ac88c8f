"""In which numbers a run computes: as asked, as it began, or as the machine can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from electrify.recipe import load, override
from electrify.train import machine as machine_module
from electrify.train.dist import World
from electrify.train.run import pretrain
from small import SMALL, electrify, pretrain_words, records, run, same_ending, steps_of

QUICK = {"max_steps": 4, "warmup_steps": 1, "save_steps": 2}
ALONE = World(0, 1, torch.device("cpu"))


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


@pytest.mark.parametrize("able", [False, True])
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


def test_both_stages_alike(
    small_data: Path, tmp_path: Path, machine: Callable[[bool], None]
) -> None:
    """The second one begins on another machine than the first."""
    fields = {"recipe": "two-stage-tiny", "generator_steps": 2}
    machine(True)
    assert run(*words(small_data, tmp_path / "run", "--max-minutes", "1e-9", **fields)) == 75
    machine(False)
    assert run(*words(small_data, tmp_path / "run", **fields)) == 0
    assert written(tmp_path / "run") is True
    assert written(tmp_path / "run" / "generator-stage") is True


def test_what_is_asked_for_wins(
    small_data: Path,
    tmp_path: Path,
    machine: Callable[[bool], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine(False)
    assert run(*words(small_data, tmp_path / "run", "--bf16")) == 0
    assert written(tmp_path / "run") is True
    assert "this processor emulates bfloat16" in capsys.readouterr().err
    machine(True)
    assert run(*words(small_data, tmp_path / "other", "--no-bf16")) == 0
    assert written(tmp_path / "other") is False


@pytest.mark.slow
def test_a_run_that_leaves_a_prefix_computes_as_that(
    small_data: Path, tmp_path: Path, machine: Callable[[bool], None]
) -> None:
    machine(True)
    assert run(*words(small_data, tmp_path / "prefix")) == 0
    machine(False)
    config = override(load("electra-tiny"), SMALL | QUICK | {"bf16": None})
    prefix = tmp_path / "prefix" / "checkpoint-2"
    pretrain(small_data, output_dir=tmp_path / "new", config=config, prefix=prefix)
    assert written(tmp_path / "new") is True
    asked = override(config, {"bf16": False})
    assert machine_module.with_precision(asked, ALONE, begun=True) is asked


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


@pytest.mark.slow
def test_both_numbers_on_this_machine(small_data: Path, tmp_path: Path) -> None:
    """Whatever it can: the loss is nearly the same."""
    for flag in ("--bf16", "--no-bf16"):
        electrify(words(small_data, tmp_path / flag, flag, logging_steps=1), tmp_path)
    first, second = (
        [r["generator"] + r["rtd"] for r in records(tmp_path / flag, "train")]
        for flag in ("--bf16", "--no-bf16")
    )
    assert first != second
    assert first == pytest.approx(second, rel=0.02)
