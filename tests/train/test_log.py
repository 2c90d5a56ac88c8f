"""The record of a run: what is written, and what a resumed run makes of it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.train import METRICS
from electrify.train.log import MetricsLog
from small import records


def open_log(
    run: Path, resume_step: int | None = None, report_to: tuple[str, ...] = (), rank: int = 0
) -> MetricsLog:
    return MetricsLog(run, resume_step=resume_step, report_to=report_to, rank=rank)


def strict(line: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


def test_one_json_object_a_line_at_once_on_the_disk(tmp_path: Path) -> None:
    with open_log(tmp_path / "run") as log:
        log.write({"kind": "train", "step": 1, "loss": 1.5, "word": "naïve"})
        log.write({"kind": "event", "step": 1, "warning": "two\nlines"})
        text = (tmp_path / "run" / METRICS).read_text(encoding="utf-8")  # while it is still open
    assert text == (
        '{"kind": "train", "step": 1, "loss": 1.5, "word": "naïve"}\n{"kind": "event", "step": '
        '1, "warning": "two\\nlines"}\n'
    )


def test_numbers_that_json_has_no_word_for(tmp_path: Path) -> None:
    fields = {
        "a": math.nan,
        "b": math.inf,
        "c": -math.inf,
        "d": torch.tensor(2.5),
        "e": np.float32(math.nan),
        "f": {"g": [math.inf, 1, None, True]},
    }
    with open_log(tmp_path) as log:
        log.write({"kind": "train", "step": 1, **fields})
    got = strict((tmp_path / METRICS).read_text())
    assert got == {
        "kind": "train",
        "step": 1,
        "a": "nan",
        "b": "inf",
        "c": "-inf",
        "d": 2.5,
        "e": "nan",
        "f": {"g": ["inf", 1, None, True]},
    }
    assert math.isnan(float(got["a"]))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(every=st.integers(1, 4), saved=st.integers(0, 12), data=st.data())
def test_a_broken_and_resumed_log_equals_an_unbroken_one(tmp_path, every, saved, data):
    """Killed at any byte after what was there when step `saved` was saved."""
    path = tmp_path / METRICS

    def leg(start: int, speed: float, resume_step: int | None) -> None:
        with open_log(tmp_path, resume_step=resume_step) as log:
            for step in range(start, 13):
                if step % every == 0:
                    log.write(
                        {
                            "kind": "train",
                            "step": step,
                            "loss": 1 / step,
                            "seconds": step * speed,
                            "tokens_per_s": speed,
                        }
                    )

    leg(1, 1.0, None)
    unbroken, lines = records(tmp_path), path.read_bytes().splitlines(keepends=True)
    on_disk = sum(len(line) for line in lines if strict(line.decode())["step"] <= saved)
    path.write_bytes(path.read_bytes()[: data.draw(st.integers(on_disk, sum(map(len, lines))))])
    leg(saved + 1, 2.0, saved)
    assert records(tmp_path) == unbroken
    assert all(strict(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    "torn", [b'{"kind": "train", "st', b"\x00\x00\x00\x00", b"\xff\xfe\n", b"[1]\n", b"\n"]
)
def test_damaged_lines_are_dropped(tmp_path: Path, torn: bytes) -> None:
    with open_log(tmp_path) as log:
        log.write({"kind": "train", "step": 1})
    with (tmp_path / METRICS).open("ab") as f:
        f.write(torn)
    with open_log(tmp_path, resume_step=5) as log:
        log.write({"kind": "train", "step": 6})
    assert [strict(line)["step"] for line in (tmp_path / METRICS).read_text().splitlines()] == [
        1,
        6,
    ]


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """As TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    shown = {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    return {
        tag: points for tag, points in shown.items() if points
    }  # a forgotten tag keeps its name


def test_tensorboard_shows_the_same_numbers_and_forgets_what_comes_again(tmp_path: Path) -> None:
    with open_log(tmp_path, report_to=("tensorboard",)) as log:
        for step in (1, 2, 3):
            log.write(
                {
                    "kind": "train",
                    "step": step,
                    "loss": torch.tensor(step / 2),
                    "text": "no number",
                    "none": None,
                    "by": {"bin": step},
                }
            )
        log.write({"kind": "valid", "step": 2, "auc": 0.75})
        log.write({"kind": "event", "step": 2, "number": 1})
    assert scalars(tmp_path) == {
        "train/loss": [(1, 0.5), (2, 1.0), (3, 1.5)],
        "train/by/bin": [(1, 1), (2, 2), (3, 3)],
        "valid/auc": [(2, 0.75)],
    }
    with open_log(tmp_path, resume_step=1, report_to=("tensorboard",)) as log:
        log.write({"kind": "train", "step": 2, "loss": 7.0})
    assert scalars(tmp_path) == {"train/loss": [(1, 0.5), (2, 7.0)], "train/by/bin": [(1, 1)]}
    with open_log(tmp_path, report_to=("tensorboard",)) as log:  # a new run
        log.write({"kind": "train", "step": 1, "loss": 9.0})
    assert scalars(tmp_path) == {"train/loss": [(1, 9.0)]}
