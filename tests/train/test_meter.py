"""Rates of a run, with a clock of the test's own; and the peak that they are held against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify.train import meter
from electrify.train.meter import Meter

CPU = torch.device("cpu")


class Clock:
    """Stands still until it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(meter.time, "monotonic", lambda: self.now)


def test_rates_are_those_of_the_updates_since_the_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    meter = Meter(CPU, flops=lambda step: 1000.0 * step, peak=500.0)
    meter.seconds_before = 50.0
    clock.now += 7  # between making and starting
    meter.start(step=10, tokens=90)
    clock.now += 4
    with meter.aside():
        clock.now += 30
    line = meter.line(step=11, tokens=110)
    assert (line["tokens_per_s"], line["flops_per_s"], line["mfu"]) == (20 / 4, 1000 / 4, 0.5)
    assert (line["flops"], line["seconds"]) == (11_000, 50 + 34)
    clock.now += 2
    line = meter.line(step=12, tokens=120)
    assert (line["tokens_per_s"], line["flops_per_s"], line["seconds"]) == (5, 500, 86)
    assert meter.seconds() == 86


def test_a_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        meter, "measure_peak", lambda *given: asked.append(given) or 1e9 * len(asked)
    )
    monkeypatch.setattr(meter, "_rate", lambda *given: 0.9e9)
    monkeypatch.setenv("ELECTRIFY_CACHE", str(tmp_path / "cache"))
    assert [meter.machine_peak(CPU, torch.bfloat16) for _ in range(3)] == [1e9] * 3
    assert meter.machine_peak(CPU, torch.float32) == 2e9
    file = tmp_path / "cache" / "peak.json"
    assert sorted(json.loads(file.read_text()).values()) == [1e9, 2e9]
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("ELECTRIFY_CACHE", str(tmp_path / "no folder" / "cache"))
    assert meter.machine_peak(CPU, torch.bfloat16) == 3e9


def test_a_peak_of_a_busy_machine_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else every later run reaches many times the peak."""
    monkeypatch.setenv("ELECTRIFY_CACHE", str(tmp_path))
    found = iter([1e9, 5e9, 3e9])
    look = [0.5e9]
    monkeypatch.setattr(meter, "measure_peak", lambda *given: next(found))
    monkeypatch.setattr(meter, "_rate", lambda *given: look[0])
    assert [meter.machine_peak(CPU, torch.float32) for _ in range(2)] == [1e9] * 2
    look[0] = 2e9
    assert [meter.machine_peak(CPU, torch.float32) for _ in range(2)] == [5e9] * 2
    look[0] = 6e9  # for a moment, which the whole measurement did not see
    assert meter.machine_peak(CPU, torch.float32) == 5e9
