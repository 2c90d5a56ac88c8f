"""The benchmarks in their shortest form: that they run. No figure of theirs is asserted but the
kernels of an update."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(folder: Path, script: str, *words: str) -> str:
    """Standard output of a benchmark."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(BENCHMARKS / script), *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def numbers(found: Any) -> list[float]:
    if isinstance(found, dict | list):
        inside = found.values() if isinstance(found, dict) else found
        return [x for part in inside for x in numbers(part)]
    return [found] if isinstance(found, int | float) else []


@pytest.mark.slow
@pytest.mark.timeout(600)  # several of them load torch six times, one after the other
@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("step.py", []),
        ("shapes.py", ["--picture", "p.png"]),
        ("length.py", ["--picture", "p.png"]),
        ("loader.py", []),
        ("busy.py", []),
        ("onnx_speed.py", []),
        ("scaling.py", ["--device", "cpu"]),
        ("startup.py", []),
    ],
)
def test_a_script(tmp_path: Path, script: str, more: list[str]) -> None:
    """What it measures, if it is written to a file, is not below 0."""
    kept = [] if script in ("scaling.py", "startup.py") else ["--json", "found.json"]
    assert run(tmp_path, script, "--quick", *kept, *more)
    assert not kept or min(numbers(json.loads((tmp_path / "found.json").read_text()))) >= 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    find_spec("triton") is None or which("g++") is None,
    reason="g++ or the package triton is not installed (`make test-slow` installs triton)",
)
def test_launches_and_bytes_of_an_update(tmp_path: Path) -> None:
    """electra-small with two layers, compiled for a GPU by torch 2.13. Higher numbers are slower
    updates; a change that lowers them also lowers these."""
    out = run(tmp_path, "gpu_kernels.py", "small", "128x128", "--layers", "2")
    found = json.loads(out.splitlines()[-1])
    parts = ("forward", "backward", "rest", "host")
    assert [found[part]["launches"] for part in parts] == [66, 122, 71, 17]
    gigabytes = [found[part]["bytes"] / 1e9 for part in parts]
    assert gigabytes == pytest.approx([1.77, 2.58, 0.26, 0.0], abs=0.005)


def test_taking_words(tmp_path: Path) -> None:
    """Each file gives its share, in whole documents from all over it; what is held out stays so."""
    lengths = {"a.txt": 600, "b.txt": 300, "valid.txt": 50}
    for name, count in lengths.items():
        found = [f"{name} " + "word " * (k % 7) + f"end{k}" for k in range(count)]
        (tmp_path / name).write_text("\n\n".join(found))
    whole = sum(len((tmp_path / name).read_text().split()) for name in ("a.txt", "b.txt"))
    out = tmp_path / "out" / "taken.txt"
    out.parent.mkdir()
    run(tmp_path, "take_words.py", ".", "--words", str(whole // 3), "--output", str(out))
    taken = out.read_text().strip().split("\n\n")
    words = {n: sum(len(d.split()) for d in taken if d.startswith(n)) for n in lengths}
    assert sum(words.values()) == pytest.approx(whole / 3, abs=16)
    assert words["a.txt"] == pytest.approx(2 * words["b.txt"], rel=0.05)
    assert words["valid.txt"] == 0
    ends = [int(d.rpartition("end")[2]) for d in taken if d.startswith("a.txt")]
    assert ends[0] < 10
    assert ends[-1] > 590
