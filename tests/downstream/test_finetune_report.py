from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from electrify.downstream.options import FinetuneSettings
from electrify.downstream.page import markdown
from electrify.downstream.plot import write_plot
from electrify.downstream.report import report_of


def record(model: str, seed: int, accuracy: float) -> dict[str, object]:
    return {
        "model": model,
        "task": "sst2",
        "seed": seed,
        "scores": {"accuracy": accuracy},
        "train_examples": 500,
        "validation_examples": 872,
    }


def test_median_mean_spread_and_best_by_hand():
    runs = [record("../m", s, x) for s, x in enumerate((0.5, 0.9, 0.7, 0.6, 0.8))] + [
        record("/abs", 0, 0.4)
    ]
    report = report_of(
        runs, {"sst2": ("accuracy",)}, settings=FinetuneSettings(), shown={"../m": "m"}
    )
    row, single = report.rows
    assert (row.model, row.median, round(row.mean, 9), row.best, row.worst, row.seeds) == (
        "m",
        0.7,
        0.7,
        0.9,
        0.5,
        5,
    )
    assert row.std is not None
    assert round(row.std, 6) == 0.158114  # sqrt(.1 / 4)
    assert single.std is None
    assert report.median(task="sst2", model="m") == 0.7
    assert "| sst2 | accuracy | m | 70.0 | 70.0 | 15.8 | 90.0 | 50.0 | 5 | 500 |" in markdown(
        report
    )
    assert "ELECTRA-Small++ 91.2" in markdown(report)
    assert "| 40.0 | 40.0 | - | 40.0 |" in markdown(report)
    assert report.table().splitlines()[1].split() == [
        "sst2",
        "accuracy",
        "m",
        "70.0",
        "70.0",
        "15.8",
        "90.0",
        "50.0",
        "5",
        "500",
    ]


def test_resources_beside_scores():
    runs = [
        record("../m", s, 0.5)
        | {"seconds": x, "parameters": 13_548_800, "peak_memory_bytes": 2**30 + x}
        | {"updates": 1200, "curve": [{"epoch": 1.0}, {"epoch": 2.5}]}
        for s, x in enumerate((9, 3, 4))
    ]
    report = report_of(
        [*runs, record("old", 0, 0.4)],
        {"sst2": ("accuracy",)},
        settings=FinetuneSettings(),
        shown={"../m": "m"},
    )
    assert report.resources()[1:] == [
        ["sst2", "m", "13.5 M", "1,200", "2.5", "4.0", "1,024 MiB"]
    ], "a record of an earlier version does not say"
    assert "| sst2 | m | 13.5 M | 1,200 | 2.5 | 4.0 | 1,024 MiB |" in markdown(report)
    silent = report_of(
        [record("old", 0, 0.4)], {"sst2": ("accuracy",)}, settings=FinetuneSettings(), shown={}
    )
    assert "Resources" not in markdown(silent)


def test_a_metric_that_does_not_exist_for_some_seed() -> None:
    """One class in the validation examples has no area under a curve."""
    records = [record("m", s, value) for s, value in enumerate((math.nan, 0.5, 0.7))]
    report = report_of(records, {"sst2": ("accuracy",)}, settings=FinetuneSettings(), shown={})
    (row,) = report.rows
    assert all(map(math.isnan, (row.median, row.mean, row.best, row.worst)))
    assert "nan" in report.table()
    assert json.loads(report.json())["rows"][0]["median"] in ("nan", "NaN", None)
    assert markdown(report)


@pytest.mark.parametrize("name", ["/data/x:y", "random:/data/x:y", "/x:y/m", "/m"])
def test_no_absolute_path_is_written(name: str) -> None:
    """A colon in a path is not that of random:."""
    label = name.replace("/", "../", 1)
    report = report_of(
        [record(label, 0, 0.5)],
        {"sst2": ("accuracy",)},
        settings=FinetuneSettings(),
        shown={label: name},
    )
    for text in (report.csv(), report.json(), markdown(report)):
        assert label in text
        assert name.replace("random:", "") not in text.replace(label, "")
    assert [row.model for row in report.rows] == [label]


def test_a_name_is_not_a_formula(tmp_path: Path) -> None:
    name = r"m$\frac$"
    report = report_of(
        [record(name, 0, 0.5)], {"sst2": ("accuracy",)}, settings=FinetuneSettings(), shown={}
    )
    write_plot(report, tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_models_with_alike_names_are_told_apart_in_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = pytest.importorskip("matplotlib.axes")
    shown: list[list[str]] = []
    real = axes.Axes.set_yticks

    def noted(self: object, places: object, labels: list[str], **more: object) -> object:
        shown.append(labels)
        return real(self, places, labels, **more)

    monkeypatch.setattr(axes.Axes, "set_yticks", noted)
    end = "export/discriminator-of-the-run"
    names = ["bert", f"runs/wide/{end}", f"runs/base/{end}", f"runs/deep/{end}"]
    records = [record(name, seed, 0.5) for name in names for seed in (0, 1)]
    report = report_of(records, {"sst2": ("accuracy",)}, settings=FinetuneSettings(), shown={})
    write_plot(report, tmp_path / "report.png")
    short = "...export/discriminator-of-the-run"
    assert shown == [["bert", short, f"{short} #2", f"{short} #3"]]
