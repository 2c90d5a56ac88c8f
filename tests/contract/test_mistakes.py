"""The mistakes that users make: status 2, and one sentence that names the file, field or flag."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import material
import program as adapter
import pytest
import yaml
from program import Program, words
from test_training import recipe

MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


def test_mistakes(program: Program, data: Path, tmp_path: Path) -> None:
    tasks, run = material.tasks(tmp_path / "tasks"), tmp_path / "run"
    material.prose(tmp_path / "prose.txt", size=30_000)
    for name, text in MISTAKES["files"].items():
        material.write(tmp_path / name, text)
    (tmp_path / "latin.txt").write_bytes("the caf\xe9 is open".encode("latin-1"))
    recipe(tmp_path, "bert")
    program.one("pretrain", data, recipe=recipe(tmp_path, "electra"), output_dir=run)
    before = adapter.ending(run), adapter.corpus(data)
    names = {
        "TRAIN": "pretrain DATA --recipe electra-tiny --output-dir OUT",
        "MINE": "pretrain DATA --output-dir OUT --recipe",
        "PREPARE": "prepare --workers 1 --output-dir OUT",
        "FINETUNE": "finetune MODEL --output-dir OUT",
        "MODEL": "RUN/discriminator",
        "OWN": str(tasks / "own" / "own.csv"),
        "TASKS": str(tasks),
        "HERE": str(tmp_path),
        "DATA": str(data),
        "RUN": str(run),
        "OUT": str(tmp_path / "out"),
    }

    def filled(text: str) -> str:
        for name, meant in names.items():
            text = text.replace(name, meant)
        return text

    done = program.batch([filled(line).split() for _, line, _ in MISTAKES["lines"]])
    wrong = []
    for (name, _, says), one in zip(MISTAKES["lines"], done, strict=True):
        sentence = one.err.rstrip("\n").rsplit("\n", 1)[-1]
        named = sentence.replace("_", "-")  # an option may be called by its field
        missing = [w for w in map(filled, says) if w not in sentence and w not in named]
        if one.status != 2 or one.out or "Traceback" in one.err or missing or len(sentence) > 700:
            wrong.append(f"{name}: status {one.status}, without {missing}: {one.err[-800:]}")
    assert not wrong, "\n".join(wrong)
    assert (adapter.ending(run), adapter.corpus(data)) == before
    assert not (tmp_path / "out").exists()
    mine = (tmp_path / "notes" / "mine.txt").read_text(encoding="utf-8")
    assert mine == MISTAKES["files"]["notes/mine.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(program: Program, data: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    line = words("pretrain", data, recipe="electra-tiny", output_dir=tmp_path / "locked" / "run")
    assert "locked" in program.run(line).sentence()


def test_a_cut_shard(program: Program, data: Path, tmp_path: Path) -> None:
    shard = next(shutil.copytree(data, tmp_path / "cut").glob("tokens-train*"))
    shard.write_bytes(shard.read_bytes()[:-8])
    line = words("pretrain", tmp_path / "cut", recipe="electra-tiny", output_dir=tmp_path / "run")
    assert shard.name in program.run(line).sentence()


def test_a_full_disk(program: Program, data: Path, tmp_path: Path) -> None:
    """A limit on the size of files acts as a full disk does."""
    line = words("pretrain", data, recipe=recipe(tmp_path, "electra"), output_dir=tmp_path / "run")
    assert str(tmp_path / "run") in program.run(line, longest_file=150_000).sentence()
