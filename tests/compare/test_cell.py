"""One encoder: what fails is told, and the rest goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from electrify.compare import measures
from electrify.compare.cell import Work, last_words, measured
from electrify.compare.measures import Found, Measuring
from electrify.errors import UserError

WORK = Work(
    "",
    "out",
    "",
    ("a", "b", "c"),
    {"data": "", "data_dir": "", "seeds": 2},
    None,
    (),
    None,
    os.getpid(),
)


def test_a_task_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(name: str, model: Path, how: Measuring, out: Path) -> Found:
        assert (model, how.seeds, out) == (Path("model"), 2, Path("out") / name)
        if name == "b":
            raise UserError("no such column")
        return Found("f1", [0.25, 0.75] if name == "a" else [0.5, float("nan")])

    monkeypatch.setattr(measures, "measure", measure)
    scores, failed = measured(WORK, Path("model"))
    assert scores == {"a": {"metric": "f1", "scores": [0.25, 0.75]}}
    assert failed == {"b": "no such column", "c": "f1 is not a number"}


def test_the_reason_is_the_last_line() -> None:
    assert last_words(b"step 1\nno space left\n\n") == "no space left"
    assert last_words(b"") == "no reason given"


def test_planted_words_are_measured_with_the_own_head(small_data: Path, tmp_path: Path) -> None:
    """On weights that never changed, both texts of a pair are as likely: about one half."""
    from batches import tiny
    from electrify.config.networks import KEPT
    from electrify.config.pretrain import override
    from electrify.pretraining import pretrain

    config = override(tiny("electra-tiny"), {"max_steps": 1, "warmup_steps": 0, "eval_steps": 0})
    result = pretrain(small_data, output_dir=tmp_path / "run", config=config)
    how = Measuring(str(small_data), str(tmp_path), 1, max_eval_samples=20)
    found = measures.measure("planted", result.exported[KEPT], how, tmp_path / "out")
    assert found.metric == "accuracy"
    assert 0.1 < found.median < 0.9
    with pytest.raises(UserError, match="leave :frozen away"):
        measures.place_of("planted:frozen", str(tmp_path))
