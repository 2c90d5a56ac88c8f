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

from electrify.config.recipe_files import plain_values
from electrify.downstream.read.own import read_own
from electrify.errors import UserError
from electrify.scoring.blimp import read_blimp
from electrify.text.options import PrepareConfig


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
        '{"text": "x", "label": "a", "label": "b"}',
        '{"text": "x", "label": NaN}',
        '{"text": "x", "label": 1e999}',
    ],
)
def test_rows_of_json_that_say_two_things_or_nothing(tmp_path: Path, row: str) -> None:
    (tmp_path / "mine.jsonl").write_text(row + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1: broken JSON"):
        read_own(*[str(tmp_path / "mine.jsonl")] * 2)


@pytest.mark.parametrize("text", ["{1.0: .2, 1: .3}", "{0x4: .2, 4: .3}", "{1_0: .2, 10: .3}"])
def test_keys_that_are_one_number(text: str) -> None:
    with pytest.raises(UserError, match="occurs twice"):
        plain_values(f"train:\n  batch_size_schedule: {text}\n", "mine.yaml")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"inputs": "/a/text.txt"}, "inputs must be a list"),
        ({"inputs": Path("/a/text.txt")}, "inputs must be a list"),
        ({"inputs": (b"a.txt",)}, "inputs must be"),
        ({"output_dir": None}, "output_dir must be"),
        ({"vocab_size": "400"}, "vocab_size must be"),
        ({"vocab_size": 400.5}, "vocab_size must be"),
        ({"lowercase": "false"}, "lowercase must be"),
        ({"engine": "spark"}, "engine cannot be 'spark'"),
        ({"encoding_errors": "ignore"}, "encoding_errors cannot be 'ignore'"),
        ({"document_boundary": "paragraph"}, "document_boundary cannot be 'paragraph'"),
    ],
)
def test_options_of_another_type_from_python(options: dict[str, Any], says: str) -> None:
    """`inputs` as one text was read letter by letter, and its first letter was the whole disk."""
    with pytest.raises(UserError) as raised:
        PrepareConfig(**({"inputs": ("a.txt",), "output_dir": "out"} | options)).check()
    assert says in str(raised.value)


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


@pytest.mark.parametrize(
    "recipe",
    [
        "train:\n  <<: {seed: 1}\n",
        "train:\n  <<: {seed: 1}\n  seed: 2\n",
        "train:\n  <<: [{seed: 1}, {seed: 2, device: cpu}]\n",
    ],
)
def test_merge_keys_are_named(recipe: str) -> None:
    with pytest.raises(UserError, match=r"merge keys \(<<\) are not allowed in recipes.*line 2"):
        plain_values(recipe, "my.yaml")


def test_half_a_surrogate_pair_in_a_minimal_pair(tmp_path: Path) -> None:
    row = json.dumps({"sentence_good": "a cat", "sentence_bad": "a \ud800"})
    (tmp_path / "a.jsonl").write_text(row + "\n")
    says = r"a.jsonl, line 1: 'sentence_bad' holds half a surrogate pair"
    with pytest.raises(UserError, match=says):
        read_blimp(tmp_path)
