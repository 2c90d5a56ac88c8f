"""Visits to a GPU in their small form, on a CPU: each leaves the lines that it is made for, and one
that is killed leaves what it had."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
TIMED = {"ceilings", "compiled", "reading", "summary", "end"}
TRAINED = {"data", "command", "train", "valid", "trained", "model", "end"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def carried(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What travels: this working tree as the side HEAD, and a corpus."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu_pack import pack  # pyright: ignore[reportMissingImports]

    folder = tmp_path / "carried"
    folder.mkdir()
    with tarfile.open(folder / "HEAD.tar.xz", "w:xz", preset=0) as tar:
        for path in (ROOT / "src", ROOT / "tests", ROOT / "pyproject.toml"):
            tar.add(path, path.relative_to(ROOT))
        for path in BENCHMARKS.glob("*.py"):
            tar.add(path, path.relative_to(ROOT))
    pack(small_data, folder / "data.tar")
    return folder


def visit(number: int, carried: Path) -> subprocess.Popen[bytes]:
    """Begins a visit, in a group of its own processes."""
    command = [sys.executable, str(BENCHMARKS / "gpu_visit.py"), str(number), "--dry-run"]
    command += ["--carried", str(carried), "--out", str(carried / "out"), "--sides", "HEAD"]
    command += ["--limit", "1400"]  # a busy machine is no failure
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def lines_of(number: int, carried: Path) -> list[dict[str, Any]]:
    path = carried / "out" / f"visit-{number}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_visit(number: int, carried: Path) -> None:
    assert visit(number, carried).wait() == 0
    found = lines_of(number, carried)
    assert [line for line in found if line["kind"] in ("failed", "limit")] == []
    kinds = {line["kind"] for line in found}
    assert kinds >= (TRAINED if number in (2, 5, 6) else TIMED)
    for line in found:
        if line["kind"] == "summary":
            assert line["wall_ms"] > 0
            assert line["tokens_per_s"] > 0
        assert line["kind"] != "trained" or line["status"] == 0
