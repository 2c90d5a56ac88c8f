from __future__ import annotations

from electrify.config.finetune import FinetuneSettings
from electrify.downstream.report import report_of


def record(model: str, seed: int, accuracy: float) -> dict[str, object]:
    return {"model": model, "task": "sst2", "seed": seed, "scores": {"accuracy": accuracy}, "train_examples": 500, "validation_examples": 872}


def test_median_mean_spread_and_best_by_hand():
    runs = [record("../m", s, x) for s, x in enumerate((0.5, 0.9, 0.7, 0.6, 0.8))] + [record("/abs", 0, 0.4)]
    report = report_of(runs, {"sst2": ("accuracy",)}, settings=FinetuneSettings(), shown={"../m": "m"})
    row, single = report.rows
    assert (row.model, row.median, round(row.mean, 9), row.best, row.worst, row.seeds) == ("m", 0.7, 0.7, 0.9, 0.5, 5)
    assert row.std is not None
    assert round(row.std, 6) == 0.158114  # sqrt(.1 / 4)
    assert single.std is None
    assert report.median(task="sst2", model="m") == 0.7
    assert "| sst2 | accuracy | m | 70.0 | 70.0 | 15.8 | 90.0 | 50.0 | 5 | 500 |" in report.markdown()
    assert "ELECTRA-Small++ 91.2" in report.markdown()
    assert "| 40.0 | 40.0 | - | 40.0 |" in report.markdown()
    assert report.table().splitlines()[1].split() == ["sst2", "accuracy", "m", "70.0", "70.0", "15.8", "90.0", "50.0", "5", "500"]
