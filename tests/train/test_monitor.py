"""Warnings: said when there is cause, once, and again only after recovery. Rates, and the machine's
peak."""

import json
from pathlib import Path

import pytest
import torch
from running import CPU, recipe

from electrify.recipe import load, override
from electrify.rules import check
from electrify.train import meter
from electrify.train.meter import Meter
from electrify.train.monitor import GRACE_TOKENS, MAX_EPOCHS, Monitor, Trouble, spared_share

LATE = 10 * GRACE_TOKENS


def monitor() -> Monitor:
    return Monitor(recipe(), 6.44)


def watched(monitor: Monitor, **figures: float) -> list[Trouble]:
    return monitor.watch({"kind": "valid", "step": 1, "tokens": LATE} | figures)


def test_a_healthy_run_is_silent() -> None:
    found = monitor()
    detects = {"rtd_detection_recall": 0.11, "rtd_detection_replaced": 0.12}
    assert watched(found, generator_loss_masked=4.39, rtd_detection_auc=0.8, **detects) == []
    line = {"kind": "train", "step": 1, "tokens": LATE, "epoch": 39.9, "generator_loss_masked": 6.5}
    assert found.watch(line) == []
    assert found.watch({"kind": "valid", "step": 1, "tokens": 1, "mlm_loss_masked": 9.0}) == []
    assert found.state() == []


@pytest.mark.parametrize("name", ["generator", "mlm"])
def test_a_model_no_better_than_word_frequencies(name: str) -> None:
    for loss in (6.39, 6.41, 7.0):  # the plateau as it was measured at small scale
        (trouble,) = watched(monitor(), **{f"{name}_loss_masked": loss})
        what = f"{name}: no better than word frequencies after 50.0 M tokens "
        assert trouble.text.startswith(f"{what}(loss {loss:.2f} on [MASK], unigram 6.44)")
    assert watched(monitor(), **{f"{name}_loss_masked": 6.24}) == []  # just off the plateau


@pytest.mark.parametrize(
    ("name", "weights", "judged"),
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
def test_what_no_loss_trains_is_not_judged(name, weights, judged):
    """A weight of 0 switches a loss off, and its head or its language model learns nothing.
    judged: the subjects of the warnings, "" for detection."""
    config = override(load(name), {"term_weights": weights})
    check(config)
    own = {
        "replace-mlm-tiny": {"mlm_loss_replaced": 9.0},
        "all-tokens-mlm-tiny": {"softmax_loss_replaced": 9.0, "copy_detection_recall": 0.0},
    }
    bad = {"generator_loss_masked": 9.0} | own.get(name, {"rtd_detection_recall": 0.0})
    assert sorted(t.subject for t in watched(Monitor(config, 6.5), **bad)) == judged


def test_a_discriminator_that_says_original_everywhere() -> None:
    (trouble,) = watched(monitor(), rtd_detection_recall=0.004)
    assert "calls every token original" in trouble.text
    assert "0.4%" in trouble.text
    assert watched(monitor(), rtd_detection_recall=0.01) == []
    nothing_to_find = {"rtd_detection_recall": 0.0, "rtd_detection_replaced": 0.0}
    assert watched(monitor(), **nothing_to_find) == []


def test_a_discriminator_that_says_replaced_everywhere() -> None:
    """Of a hundred tokens 87 are replaced and 99 are called so: 12.1 of the 13 original ones
    wrongly, 7 % are spared; at 100, none."""
    figures = {"rtd_chosen_detection_replaced": 0.87, "rtd_chosen_detection_recall": 1.0}
    assert spared_share(0.87 / 0.87, 0.87 / 0.99, 0.87) == pytest.approx(1 - 12 / 13)
    assert watched(monitor(), **figures, rtd_chosen_detection_precision=0.87 / 0.99) == []
    (trouble,) = watched(monitor(), **figures, rtd_chosen_detection_precision=0.87)
    assert "calls every token replaced" in trouble.text
    assert spared_share(1.0, 1.0, 1.0) == spared_share(0.0, 0.0, 0.2) == 1.0


def test_a_corpus_seen_too_often() -> None:
    found = monitor()
    lines = [{"kind": "train", "step": 1, "epoch": e} for e in (39.0, float(MAX_EPOCHS), 40.5, 41)]
    said = [[trouble.text for trouble in found.watch(line)] for line in lines]
    assert [len(new) for new in said] == [0, 0, 1, 0]
    assert "seen 40.5 times" in said[2][0]


def test_each_warning_once_and_again_after_recovery() -> None:
    found, losses = monitor(), (6.5, 6.6, 5.0, 5.0, 6.5, 6.5)
    said = [len(watched(found, generator_loss_masked=loss)) for loss in losses]
    assert said == [1, 0, 0, 0, 1, 0]
    assert len(watched(found, rtd_detection_recall=0.0)) == 1, "another trouble"


def test_rates_are_those_of_the_updates_since_the_last_line(monkeypatch):
    now = 100.0
    monkeypatch.setattr(meter.time, "monotonic", lambda: now)
    found = Meter(CPU, flops=lambda step: 1000.0 * step)
    found.seconds_before = 50.0
    now += 7  # between making and starting
    found.start(step=10, tokens=90, peak=500.0)
    now += 4
    with found.aside():
        now += 30
    line = found.line(step=11, tokens=110)
    assert (line["tokens_per_s"], line["flops_per_s"], line["mfu"]) == (20 / 4, 1000 / 4, 0.5)
    assert (line["flops"], line["seconds"]) == (11_000, 50 + 34)
    now += 2
    line = found.line(step=12, tokens=120)
    assert (line["tokens_per_s"], line["flops_per_s"], line["seconds"]) == (5, 500, 86)
    assert found.seconds() == 86


def test_a_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unless a short look shows more, because other processes were busy before: else every later
    run reaches many times the peak."""
    measured, look = iter([1e9, 2e9, 5e9, 3e9, 4e9]), [0.5e9]
    monkeypatch.setattr(meter, "measure_peak", lambda *given: next(measured))
    monkeypatch.setattr(meter, "_rate", lambda *given: look[0])
    monkeypatch.setenv("ELECTRIFY_CACHE", str(tmp_path / "cache"))

    def peaks(times: int = 2) -> set[float]:
        return {meter.machine_peak(CPU, torch.float32) for _ in range(times)}

    assert peaks() == {1e9}
    assert meter.machine_peak(CPU, torch.bfloat16) == 2e9
    file = tmp_path / "cache" / "peak.json"
    assert sorted(json.loads(file.read_text()).values()) == [1e9, 2e9]
    look[0] = 2e9
    assert peaks() == {5e9}
    look[0] = 6e9  # for a moment, which the whole measurement did not see
    assert peaks(1) == {5e9}
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("ELECTRIFY_CACHE", str(tmp_path / "no folder" / "cache"))
    assert peaks(1) == {4e9}
