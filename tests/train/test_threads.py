"""The number of threads: who chooses it, what is measured, what a run writes down and keeps; and
the hint where the rate falls."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify import cli
from electrify.finetuning.options import FinetuneConfig
from electrify.train import METRICS, checkpoint, log, machine
from electrify.train import meter as meter_module
from electrify.train.machine import (
    Threads,
    candidates,
    choose,
    computing_with,
    fewest_fast,
    measured,
)
from electrify.train.meter import Pace, slow_text
from small import DROPOUT, pretrain_words, same_ending, signalled

CPU, GPU = torch.device("cpu"), torch.device("meta")
SHORT: dict[str, Any] = DROPOUT | {"max_steps": 12, "logging_steps": 3, "save_steps": 5}


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
    monkeypatch.setattr(machine, "measured", pretended)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield asked
    torch.set_num_threads(before)


def chosen(given: str = "auto", device: torch.device = CPU, **more: Any) -> Threads:
    return choose(given, device=device, width=32, tokens=64, bf16=False, **more)


# ------------------------------------------------------------------ the choice


def test_who_chooses(two: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen() == Threads(2, "measurement", speeds={1: 1.0, 2: 1.6})
    assert chosen(earlier=1) == Threads(1, "earlier")
    assert chosen("1", earlier=2) == Threads(1, "user")
    assert chosen(device=GPU) == chosen(processes=2) == Threads(2, "own")
    assert two == [[1, 2]]
    for odd in (None, 3):  # of a new run, or of one on a larger machine
        assert chosen(earlier=odd).chosen_by == "measurement"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert chosen() == chosen(earlier=1) == Threads(2, "own")
    assert chosen("1") == Threads(1, "user")


def test_a_process_that_has_chosen_one_thread_keeps_it(two: list[list[int]]) -> None:
    torch.set_num_threads(1)
    assert chosen() == Threads(1, "own")
    assert not two


def test_more_than_there_are(two: list[list[int]]) -> None:
    found = chosen("64")
    assert found.number == 2
    assert (
        found.text()
        == "warning: threads 64 is more than the cores that this process may use: computing with 2"
    )
    assert chosen("2").text() == ""
    assert (
        chosen().text()
        == "computing with 2 threads (measured: 2 threads 1.60 times as fast as one)"
    )


def test_what_is_tried_and_taken() -> None:
    assert [candidates(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]
    assert fewest_fast({1: 1.0, 2: 0.3}) == 1
    assert fewest_fast({1: 1.0, 2: 1.03}) == 1  # not worth a core
    assert fewest_fast({1: 1.0, 2: 1.5, 4: 1.55, 8: 1.2}) == 2
    assert fewest_fast({1: 1.0, 2: 0.9, 4: 1.8}) == 4


@pytest.mark.parametrize("width", [16, 100, 128])
def test_a_measurement_leaves_torch_as_it_was(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BUDGET_S", 0.0)
    monkeypatch.setattr(machine, "TURN_S", 0.0)
    before, state = torch.get_num_threads(), torch.get_rng_state()
    speeds = measured([1, 2], width=width, tokens=100, bf16=True)
    assert speeds[1] == 1.0
    assert speeds[2] > 0
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_busy_machine_does_not_make_it_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds end with the budget: the first is always whole."""
    monkeypatch.setattr(machine, "BUDGET_S", 0.0)
    turns: list[int] = []

    class Pretended:
        def __init__(self, *_: object, num_threads: int, **more: object) -> None:
            self.mean = num_threads

        def blocked_autorange(self, **_: object) -> Pretended:
            turns.append(self.mean)
            return self

    monkeypatch.setattr("torch.utils.benchmark.Timer", Pretended)
    assert measured([1, 2], width=32, tokens=64, bf16=False) == {1: 1.0, 2: 0.5}
    assert turns == [1, 2]


def test_computing_with_gives_the_number_back() -> None:
    """Also where the work inside fails."""
    before = torch.get_num_threads()
    inside = []

    def fails() -> None:
        with computing_with(Threads(before + 1, "user")):
            inside.append(torch.get_num_threads())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert (inside, torch.get_num_threads()) == ([before + 1], before)


# ------------------------------------------------------------------ a run


def pretrain(data: Path, run: Path, **fields: Any) -> int:
    return cli.main(pretrain_words(data, run, **SHORT | fields))


def kept(run: Path) -> list[int]:
    """By the checkpoints, oldest first."""
    return [
        checkpoint.load(checkpoint.folder_of(run, step))[1]["conditions"]["threads"]
        for step in checkpoint.steps(run)
    ]


def test_a_run_writes_its_threads_down_and_keeps_them(
    small_data: Path,
    tmp_path: Path,
    two: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where the measurement would now say something else; to the same bytes as a run that
    nothing stopped."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert pretrain(small_data, whole) == 0
    assert (
        "computing with 2 threads (measured: 2 threads 1.60 times as fast as one)"
        in capsys.readouterr().err
    )
    facts = json.loads((whole / "run.json").read_text(encoding="utf-8"))
    assert facts["threads"] == {
        "number": 2,
        "chosen_by": "measurement",
        "speeds": {"1": 1.0, "2": 1.6},
    }
    assert facts["machine"]["threads"] == 2
    with monkeypatch.context() as patch:
        signalled(patch, step=6, number=signal.SIGTERM)
        assert pretrain(small_data, broken) == 75
    monkeypatch.setattr(machine, "measured", lambda *_, **__: {1: 1.0, 2: 0.1})
    assert pretrain(small_data, broken) == 0
    assert "other conditions" not in capsys.readouterr().err
    assert set(kept(broken)) == {2}
    same_ending(whole, broken, step=12)
    assert torch.get_num_threads() == 2


def test_threads_given_to_a_run_that_continues(
    small_data: Path,
    tmp_path: Path,
    two: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The user may change the number, and is told what that means."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        signalled(patch, step=6, number=signal.SIGTERM)
        assert pretrain(small_data, run) == 75
    assert pretrain(small_data, run, threads=1) == 0
    assert (
        "continuing under other conditions (threads 2 then, 1 now): the data is the same, the last "
        "bits may differ" in capsys.readouterr().err
    )
    assert kept(run)[-1] == 1
    assert torch.get_num_threads() == 2


def test_a_second_stage_computes_with_the_threads_of_the_first(
    small_data: Path, tmp_path: Path, two: list[list[int]]
) -> None:
    run = tmp_path / "run"
    assert (
        pretrain(
            small_data,
            run,
            recipe="two-stage-tiny",
            generator_steps=3,
            max_steps=3,
            generator_size=1,
        )
        == 0
    )
    assert len(two) == 1
    assert kept(run / "generator-stage") == kept(run) == [2]
    assert (
        json.loads((run / "run.json").read_text(encoding="utf-8"))["threads"]["chosen_by"]
        == "earlier"
    )


# ------------------------------------------------------------------ a rate that falls


def fed(pace: Pace, *lines: tuple[float, float]) -> list[tuple[float, float]]:
    """The news after each line (seconds, tokens), where there were any."""
    found = []
    for seconds, tokens in lines:
        found.append(pace.fell(seconds=seconds, tokens=tokens, flops=tokens))
    return [news for news in found if news]


def test_a_rate_that_falls_is_told_once() -> None:
    minute = [(10.0, 10_000.0)] * 6
    assert fed(Pace(), *minute, *[(10.0, 6_000.0)] * 30) == []
    assert fed(Pace(), *minute, *[(10.0, 4_000.0)] * 30) == [(1000.0, 400.0)]
    assert (
        fed(Pace(), *minute, (10.0, 1.0), *[(10.0, 10_000.0)] * 9) == []
    )  # a hiccup of ten seconds
    assert fed(Pace(), *[(300.0, 300_000.0)], (300.0, 3_000.0)) == [
        (1000.0, 10.0)
    ]  # lines that are long themselves


def test_longer_rows_are_no_slower_machine() -> None:
    pace = Pace()
    assert pace.fell(seconds=60, tokens=60_000, flops=60.0) is None
    assert pace.fell(seconds=60, tokens=20_000, flops=59.0) is None


def test_what_is_said_of_it() -> None:
    assert slow_text(17_000, 1_500, device="cpu", threads=2) == (
        "the rate fell from 17.0 k to 1.5 k tokens/s: another process may be using the cores; "
        "--threads 1 may be faster "
        "(stop the run, and repeat its command with that)"
    )
    assert slow_text(17_000, 1_500, device="cpu", threads=1).endswith("using the cores")
    assert slow_text(17_000, 1_500, device="cuda", threads=2).endswith("using the device")


def test_a_run_says_so_once(
    small_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the log and on the terminal, where every rate counts as fallen."""
    for name, value in (("FIRST_S", 0.0), ("WINDOW_S", 0.0), ("SLOW", 1e9)):
        monkeypatch.setattr(meter_module, name, value)
    assert pretrain(small_data, tmp_path / "run") == 0
    told = [
        r
        for r in log.read(tmp_path / "run" / METRICS)
        if "the rate fell from" in r.get("warning", "")
    ]
    assert [r["step"] for r in told] == [6]
    assert capsys.readouterr().err.count("warning: the rate fell from") == 1


def test_fine_tuning_keeps_no_threads_among_its_settings() -> None:
    """They are not a part of what a folder of scores belongs to."""
    from electrify.finetuning.options import FinetuneSettings
    from electrify.values import kinds

    assert "threads" in kinds(FinetuneConfig)
    assert "threads" not in kinds(FinetuneSettings)
