"""PYTHONOPTIMIZE=2: asserts and docstrings are stripped, and every verb works all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from small import electrify, pretrain_words, write_text


@pytest.mark.slow
@pytest.mark.timeout(1800)  # five processes that load everything
def test_every_verb_without_docstrings(tmp_path: Path) -> None:
    source, run = write_text(tmp_path / "a.txt", size=40_000), tmp_path / "run"
    (tmp_path / "a.csv").write_text("text,label\n" + "the one,1\nthe two,0\n" * 4, encoding="utf-8")
    files = ["--train-file", str(tmp_path / "a.csv"), "--validation-file", str(tmp_path / "a.csv")]
    model = str(tmp_path / "model")
    for words in (
        [
            "prepare",
            str(source),
            "--output-dir",
            str(tmp_path / "data"),
            "--vocab-size",
            "400",
            "--workers",
            "2",
        ],
        pretrain_words(tmp_path / "data", run, max_steps=2),
        ["export", str(run), "--output-dir", model],
        ["detect", model, "the one"],
        [
            "finetune",
            model,
            *files,
            "--seeds",
            "1",
            "--num-train-epochs",
            "1",
            "--device",
            "cpu",
            "--output-dir",
            str(tmp_path / "out"),
            "--save-model",
        ],
    ):
        electrify(words, tmp_path, seconds=600, PYTHONOPTIMIZE="2")
