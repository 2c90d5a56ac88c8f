"""The number of threads: who chooses it, what is measured, what a run writes down and keeps."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from electrify.train import checkpoint, machine
from electrify.train.machine import choose_threads, fewest_fast, thread_speeds
from small import DROPOUT, pretrain_words, same_ending, signalled

CPU, GPU = torch.device("cpu"), torch.device("meta")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """A machine of two cores where nobody has chosen, and two threads are measured to be faster;
    what was measured."""
    asked: list[list[int]] = []

    def pretended(numbers: list[int], **_: object) -> dict[int, float]:
        asked.append(numbers)
        return {1: 1.0, 2: 1.6}

    for name in machine.USERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "thread_speeds", pretended)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield asked
    torch.set_num_threads(before)


def chosen(given: str = "auto", device: torch.device = CPU, **more: Any) -> int:
    return choose_threads(given, device=device, width=32, tokens=64, bf16=False, **more)


def test_who_chooses(two: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen() == 2
    assert two == [[1, 2]]
    assert chosen(earlier=1) == chosen("1", earlier=2) == 1
    assert chosen(device=GPU) == chosen(processes=2) == 2
    assert len(two) == 1
    for odd in (None, 3):  # of a new run, or of one on a larger machine
        assert chosen(earlier=odd) == 2
    assert len(two) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert chosen() == chosen(earlier=1) == 2
    assert chosen("1") == 1
    assert len(two) == 3


def test_what_is_tried_and_taken() -> None:
    assert fewest_fast({1: 1.0, 2: 0.3}) == 1
    assert fewest_fast({1: 1.0, 2: 1.03}) == 1  # not worth a core
    assert fewest_fast({1: 1.0, 2: 1.5, 4: 1.55, 8: 1.2}) == 2
    assert fewest_fast({1: 1.0, 2: 0.9, 4: 1.8}) == 4


def test_a_run_writes_its_threads_down_and_keeps_them(
    small_data, tmp_path, two, monkeypatch, capsys
):
    """Also where the measurement would now say something else; to the same bytes as a run that
    nothing stopped."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"

    def pretrain(run: Path) -> int:
        short = {"max_steps": 12, "logging_steps": 3, "save_steps": 5}
        return cli.main(pretrain_words(small_data, run, **DROPOUT | short))

    assert pretrain(whole) == 0
    said = "computing with 2 threads (measured: 2 threads 1.60 times as fast as one)"
    assert said in capsys.readouterr().err
    facts = json.loads((whole / "run.json").read_text(encoding="utf-8"))
    assert facts["machine"]["threads"] == 2
    with monkeypatch.context() as patch:
        signalled(patch, step=6, number=signal.SIGTERM)
        assert pretrain(broken) == 75
    monkeypatch.setattr(machine, "thread_speeds", lambda *_, **__: {1: 1.0, 2: 0.1})
    assert pretrain(broken) == 0
    assert "other conditions" not in capsys.readouterr().err
    for path in broken.glob("checkpoint-*"):
        assert checkpoint.load(path)[1]["conditions"]["threads"] == 2
    same_ending(whole, broken, step=12)
    assert torch.get_num_threads() == 2


def test_a_measurement_leaves_torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BUDGET_S", 0.0)
    before, state = torch.get_num_threads(), torch.get_rng_state()
    speeds = thread_speeds([1, 2], width=100, tokens=100, bf16=True)
    assert speeds[1] == 1.0
    assert speeds[2] > 0
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)
