"""The benchmarks in their shortest form: that they run, and what they print. No figure of theirs is
asserted."""

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


def run(tmp_path: Path, script: str, *words: str) -> str:
    """Standard output of a benchmark with --quick."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(BENCHMARKS / script), "--quick", *words]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def rows(out: str) -> list[list[str]]:
    """The cells of the Markdown tables, headers and rules left out."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in out.splitlines()
        if line.startswith("|")
    ]
    return [
        line
        for i, line in enumerate(lines)
        if not set(line[0]) <= {"-"} and (i + 1 == len(lines) or not set(lines[i + 1][0]) <= {"-"})
    ]


@pytest.mark.slow
@pytest.mark.timeout(500)  # several of them load torch six times, one after the other
@pytest.mark.parametrize(
    ("script", "more", "first"),
    [
        ("step.py", [], ["electrify", "transformers"]),
        ("shapes.py", ["--picture", "p.png"], ["batch", "batch", "model"]),
        ("length.py", ["--picture", "p.png"], ["9 x 64", "2 x 300"]),
        ("loader.py", [], None),
        ("busy.py", [], None),
        ("onnx_speed.py", [], ["2 x 8"]),
    ],
)
def test_a_script(tmp_path: Path, script: str, more: list[str], first: list[str] | None) -> None:
    """What it measures is in its file, and all of it is above 0."""
    table = [row[0] for row in rows(run(tmp_path, script, "--json", "found.json", *more))]
    assert first in (None, table)
    assert not [x for x in numbers(json.loads((tmp_path / "found.json").read_text())) if x < 0]
    assert not more or (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def numbers(found: Any) -> list[float]:
    if isinstance(found, dict | list):
        inside = found.values() if isinstance(found, dict) else found
        return [x for part in inside for x in numbers(part)]
    return [found] if isinstance(found, int | float) else []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_scripts_that_write_no_file(tmp_path: Path) -> None:
    table = rows(run(tmp_path, "scaling.py", "--device", "cpu"))
    sides = ["1, the same batch", "2, the same batch", "2, a batch a process"]
    assert [row[0] for row in table] == sides
    assert "electrify pretrain --help" in {row[0] for row in rows(run(tmp_path, "startup.py"))}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    find_spec("triton") is None or which("g++") is None,
    reason="g++ or the package triton is not installed (`make test-slow` installs triton)",
)
def test_launches_and_bytes_of_an_update(tmp_path: Path) -> None:
    """electra-small with two layers, compiled for a GPU by torch 2.13. Higher numbers are slower
    updates; a change that lowers them also lowers these."""
    script = str(BENCHMARKS / "gpu_kernels.py")
    command = [sys.executable, script, "small", "128x128", "--layers", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    parts = ("forward", "backward", "rest", "host")
    assert [found[part]["launches"] for part in parts] == [66, 138, 73, 17]
    gigabytes = [found[part]["bytes"] / 1e9 for part in parts]
    assert gigabytes == pytest.approx([1.93, 2.74, 0.26, 0.0], abs=0.005)


def test_taking_words(tmp_path: Path) -> None:
    """Each file gives its share, in whole documents from all over it; what is held out stays so."""
    lengths = {"a.txt": 600, "b.txt": 300, "valid.txt": 50}
    for name, count in lengths.items():
        found = [f"{name} " + "word " * (k % 7) + f"end{k}" for k in range(count)]
        (tmp_path / name).write_text("\n\n".join(found))
    script = str(BENCHMARKS / "take_words.py")
    whole = sum(len((tmp_path / name).read_text().split()) for name in ("a.txt", "b.txt"))
    asked = str(whole // 3)
    command = [sys.executable, script, str(tmp_path), "--words", asked]
    command += ["--output", str(tmp_path / "out" / "taken.txt")]
    (tmp_path / "out").mkdir()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    taken = (tmp_path / "out" / "taken.txt").read_text().strip().split("\n\n")
    assert sum(len(d.split()) for d in taken) == pytest.approx(whole / 3, abs=16)
    words = {n: sum(len(d.split()) for d in taken if d.startswith(n)) for n in lengths}
    assert words["a.txt"] == pytest.approx(2 * words["b.txt"], rel=0.05)
    assert words["valid.txt"] == 0
    ends = [int(d.rpartition("end")[2]) for d in taken if d.startswith("a.txt")]
    assert ends[0] < 10
    assert ends[-1] > 590
