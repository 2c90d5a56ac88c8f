"""Odd values where a text, a label, a key or an option is read: one sentence, whatever they are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from electrify.downstream.read.own import read_own
from electrify.errors import UserError
from electrify.scoring.blimp import read_blimp


def own(folder: Path, *labels: object, text: str = "a text", **options: str) -> Any:
    path = folder / "mine.jsonl"
    path.write_text(
        "".join(
            json.dumps({"text": f"{text} {i}", "label": label}) + "\n"
            for i, label in enumerate(labels)
        ),
        encoding="utf-8",
    )
    return read_own(str(path), str(path), **options)


@pytest.mark.parametrize("label", ["--5", "9" * 5000, "-", "²"])
def test_labels_that_look_like_numbers_are_classes(tmp_path: Path, label: str) -> None:
    assert set(own(tmp_path, label, "b", "10", "9").labels) == {label, "b", "10", "9"}


def test_a_label_beyond_all_numbers(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 1: label .* is not a number"):
        own(tmp_path, 10**400, 1.5, problem_type="regression")


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 1: 'text' holds half a surrogate pair"):
        own(tmp_path, "a", "b", text="\ud800")


@pytest.mark.parametrize(
    "row",
    [
        '{"text": "x", "label": NaN}',
        '{"text": "x", "label": 1e999}',
    ],
)
def test_labels_that_are_no_numbers(tmp_path: Path, row: str) -> None:
    (tmp_path / "mine.jsonl").write_text(row + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"line 1: label .* is not a number"):
        read_own(*[str(tmp_path / "mine.jsonl")] * 2)


@pytest.mark.slow
def test_ctrl_c_while_modules_load() -> None:
    for wait in (0.05, 0.15, 0.3):
        child = subprocess.Popen(
            [sys.executable, "-m", "electrify", "flops"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(wait)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=120)[1]
        if (
            "electrify/__main__.py" in said or "electrify" in said
        ):  # before that it is Python's own start
            assert child.returncode in (0, 130), said
            assert "Traceback" not in said


def test_half_a_surrogate_pair_in_a_minimal_pair(tmp_path: Path) -> None:
    row = json.dumps({"sentence_good": "a cat", "sentence_bad": "a \ud800"})
    (tmp_path / "a.jsonl").write_text(row + "\n")
    says = r"a.jsonl, line 1: 'sentence_bad' holds half a surrogate pair"
    with pytest.raises(UserError, match=says):
        read_blimp(tmp_path)
