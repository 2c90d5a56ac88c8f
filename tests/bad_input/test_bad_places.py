"""Places and files that cannot be read as files can: a folder that is gone, no right to look, a
file that waits, one that is larger than memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from small import mistake

# ------------------------------------------------------------------ no right to look


# ------------------------------------------------------------------ what a file is said to be


def test_a_text_in_which_nothing_occurs_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb\n\na\n\nb\n", encoding="utf-8")
    words = [
        "prepare",
        tmp_path / "a.txt",
        "--output-dir",
        tmp_path / "out",
        "--vocab-size",
        "300",
        "--deduplicate",
        "false",
        "--workers",
        "1",
    ]
    assert "its most frequent character occurs once, and equal documents count as one" in mistake(
        capsys, *words, "--min-frequency", "2"
    )
