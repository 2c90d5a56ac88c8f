"""Warnings: said when there is cause, once, and again only after recovery."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from electrify.recipe import load, override
from electrify.rules import check
from electrify.train import meter
from electrify.train.meter import Meter
from electrify.train.monitor import GRACE_TOKENS, MAX_EPOCHS, Monitor, monitor_of, spared_share

LATE = 10 * GRACE_TOKENS


def valid(tokens: int = LATE, **figures: float) -> dict[str, Any]:
    return {"kind": "valid", "step": 1, "tokens": tokens} | figures


def texts(monitor: Monitor, record: dict[str, Any]) -> list[str]:
    """The warnings that the record gives rise to."""
    return [trouble.text for trouble in monitor.watch(record)]


def test_a_healthy_run_is_silent() -> None:
    monitor = Monitor(unigram_entropy=6.44)
    good = {
        "generator_loss_masked": 4.39,
        "rtd_detection_recall": 0.11,
        "rtd_detection_replaced": 0.12,
        "rtd_detection_auc": 0.8,
    }
    assert monitor.watch(valid(**good)) == []
    line = {"kind": "train", "step": 1, "tokens": LATE, "epoch": 39.9, "generator_loss_masked": 6.5}
    assert monitor.watch(line) == []
    assert monitor.state() == []


@pytest.mark.parametrize("name", ["generator", "mlm"])
def test_a_model_no_better_than_word_frequencies(name: str) -> None:
    monitor = Monitor(unigram_entropy=6.44)
    for loss in (6.39, 6.41, 7.0):  # the plateau as it was measured at small scale
        (text,) = texts(Monitor(unigram_entropy=6.44), valid(**{f"{name}_loss_masked": loss}))
        assert text.startswith(
            f"{name}: no better than word frequencies after 50.0 M tokens (loss {loss:.2f} on "
            "[MASK], unigram 6.44)"
        )
    assert monitor.watch(valid(**{f"{name}_loss_masked": 6.24})) == []  # just off the plateau


@pytest.mark.parametrize(
    ("recipe", "weights", "judged"),
    [
        ("corrective-tiny", {"generator": 1.0, "rtd": 0.0, "correct": 1.0}, ["generator"]),
        ("teams-tiny", {"generator": 1.0, "rtd": 0.0, "select": 2.0}, ["generator"]),
        ("electra-tiny", {"generator": 0.0, "rtd": 50.0}, [""]),
        ("electra-tiny", {"generator": 1.0, "rtd": 50.0}, ["", "generator"]),
        ("replace-mlm-tiny", {"generator": 1.0, "mlm": 0.0}, ["generator"]),
        ("replace-mlm-tiny", {"generator": 0.0, "mlm": 1.0}, ["mlm"]),
        ("all-tokens-mlm-tiny", {"generator": 1.0, "all_tokens": 0.0}, ["generator"]),
        ("all-tokens-mlm-tiny", {"generator": 0.0, "all_tokens": 1.0}, ["", "softmax"]),
    ],
)
def test_what_no_loss_trains_is_not_judged(recipe, weights, judged):
    """A weight of 0 switches a loss off, and its head or its language model learns nothing.
    judged: the subjects of the warnings, "" for detection."""
    config = override(load(recipe), {"term_weights": weights})
    check(config)
    own = {
        "replace-mlm-tiny": {"mlm_loss_replaced": 9.0},
        "all-tokens-mlm-tiny": {"softmax_loss_replaced": 9.0, "copy_detection_recall": 0.0},
    }
    bad = {"generator_loss_masked": 9.0} | own.get(recipe, {"rtd_detection_recall": 0.0})
    assert sorted(t.subject for t in monitor_of(config, 6.5).watch(valid(**bad))) == judged


def test_a_discriminator_that_says_original_everywhere() -> None:
    (text,) = texts(Monitor(unigram_entropy=6.0), valid(rtd_detection_recall=0.004))
    assert "calls every token original" in text
    assert "0.4%" in text
    assert Monitor(unigram_entropy=6.0).watch(valid(rtd_detection_recall=0.01)) == []
    nothing_to_find = valid(rtd_detection_recall=0.0, rtd_detection_replaced=0.0)
    assert Monitor(unigram_entropy=6.0).watch(nothing_to_find) == []


def test_a_discriminator_that_says_replaced_everywhere() -> None:
    """Of a hundred tokens 87 are replaced and 99 are called so: 12.1 of the 13 original ones
    wrongly, 7 % are spared; at 100, none."""
    figures = {"rtd_chosen_detection_replaced": 0.87, "rtd_chosen_detection_recall": 1.0}
    assert spared_share(0.87 / 0.87, 0.87 / 0.99, 0.87) == pytest.approx(1 - 12 / 13)
    spares = valid(**figures, rtd_chosen_detection_precision=0.87 / 0.99)
    assert Monitor(unigram_entropy=6.0).watch(spares) == []
    spares_none = valid(**figures, rtd_chosen_detection_precision=0.87)
    (text,) = texts(Monitor(unigram_entropy=6.0), spares_none)
    assert "calls every token replaced" in text
    assert spared_share(1.0, 1.0, 1.0) == spared_share(0.0, 0.0, 0.2) == 1.0


def test_a_corpus_seen_too_often() -> None:
    monitor = Monitor(unigram_entropy=6.0)
    said = [
        texts(monitor, {"kind": "train", "step": k, "tokens": 1, "epoch": epoch})
        for k, epoch in enumerate((39.0, float(MAX_EPOCHS), 40.5, 41.0))
    ]
    assert [len(new) for new in said] == [0, 0, 1, 0]
    assert "seen 40.5 times" in said[2][0]


def test_each_warning_once_and_again_after_recovery() -> None:
    monitor = Monitor(unigram_entropy=6.0)
    losses = (6.0, 6.1, 5.0, 5.0, 6.0, 6.0)
    said = [len(monitor.watch(valid(generator_loss_masked=loss))) for loss in losses]
    assert said == [1, 0, 0, 0, 1, 0]
    another_trouble = valid(rtd_detection_recall=0.0)
    assert len(monitor.watch(another_trouble)) == 1


CPU = torch.device("cpu")


class Clock:
    """Stands still until it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(meter.time, "monotonic", lambda: self.now)


def test_rates_are_those_of_the_updates_since_the_last_line(monkeypatch):
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


def test_a_peak_of_a_busy_machine_does_not_stay(monkeypatch, tmp_path):
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
