"""Prepared corpora that were cut, exchanged or edited; places that cannot be written, a disk that
is full, and an output inside of what is read."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small import files_of_at_most, listing, mistake, pretrain_words, run, write_text


@pytest.fixture
def verbs(tmp_path: Path, small_data: Path, finished: Path) -> dict[str, list[str]]:
    """Every verb that writes, but for its --output-dir."""
    write_text(tmp_path / "a.txt", size=2000)
    (tmp_path / "a.csv").write_text("text,label\n" + "one,0\ntwo,1\n" * 4, encoding="utf-8")
    files = ["--train-file", str(tmp_path / "a.csv"), "--validation-file", str(tmp_path / "a.csv")]
    quick = ["--seeds", "1", "--num-train-epochs", "1", "--max-seq-length", "16", "--device", "cpu"]
    model, pretrain = str(finished / "discriminator"), pretrain_words(small_data, "X", max_steps=1)
    at = pretrain.index("--output-dir")
    return {
        "prepare": ["prepare", str(tmp_path / "a.txt"), "--workers", "1", "--vocab-size", "300"],
        "pretrain": pretrain[:at] + pretrain[at + 2 :],
        "export": ["export", str(finished)],
        "finetune": ["finetune", model, *files, *quick],
    }


@pytest.mark.parametrize("verb", ["prepare", "pretrain", "export", "finetune"])
def test_places_that_cannot_be_written(capsys, verbs, tmp_path, verb):
    """A file, a folder below a file, one that is closed to everybody, and one of something else."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work", encoding="utf-8")
    file, closed = tmp_path / "a.txt", Path("/sys/electrify-test")
    places = [file, file / "out", closed, foreign]
    before = listing(tmp_path)
    for out in places:
        mistake(capsys, *verbs[verb], "--output-dir", str(out), longest=760)
        assert listing(tmp_path) == before


@pytest.mark.parametrize("verb", ["prepare", "export", "finetune"])
def test_a_disk_that_fills_up(capsys, verbs, tmp_path, verb):
    """Nothing that looks whole is there afterwards, and the next try succeeds. (pretrain:
    train/test_checkpoint.py.)"""
    out = tmp_path / "out"
    words = [*verbs[verb], "--output-dir", str(out)]
    with files_of_at_most(200):
        assert "too large" in mistake(capsys, *words, longest=500)
    written = listing(tmp_path / "out") if out.exists() else {}
    whole = {"manifest.json", "model.safetensors", "report.md", "scores.jsonl"}
    assert not whole & written.keys()
    assert run(*words) == 0


def test_an_output_folder_inside_the_corpus(tmp_path: Path) -> None:
    """What was made of a folder is not a part of it, so the same command finds its work done."""
    folder = tmp_path / "corpus"
    write_text(folder / "a.txt", size=2000)
    words = ["prepare", str(folder), "--output-dir", str(folder / "out"), "--workers", "1"]
    words += ["--vocab-size", "300"]
    assert run(*words) == 0
    before = listing(tmp_path)
    assert run(*words) == 0
    assert listing(tmp_path) == before
    manifest = json.loads((folder / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert [source["name"] for source in manifest["sources"]] == ["corpus/a.txt"]


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran-from-npy",)


def flipped(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("tokens-train-00000.bin", lambda path: os.truncate(path, 100), "it is truncated"),
        (
            "documents-train-00000.npy",
            lambda path: np.save(path, np.array([Payload()], dtype=object), allow_pickle=True),
            "documents-train-00000.npy does not have the hash",
        ),
        ("tokens-valid-00000.bin", flipped, "tokens-valid-00000.bin does not have the hash"),
    ],
)
def test_a_spoilt_corpus(capsys, small_data, tmp_path, monkeypatch, name, spoil, says):
    """Found when a run opens it, or in the piece that it would spoil. No pickle is opened."""
    monkeypatch.chdir(tmp_path)
    data = Path(shutil.copytree(small_data, tmp_path / "data"))
    spoil(data / name)
    assert says in mistake(capsys, *pretrain_words(data, tmp_path / "run", max_steps=2))
    assert not (tmp_path / "ran-from-npy").exists()
    assert not list(tmp_path.glob("run/checkpoint-*"))


def test_a_study_on_a_corpus_that_lacks_a_file(capsys, small_data, tmp_path):
    """Found before the first encoder is trained, in the plan, too."""
    data = Path(shutil.copytree(small_data, tmp_path / "data"))
    (data / "documents-valid-00000.npy").unlink()
    words = ["compare", data, "--recipes", "bert-tiny", "--budgets", "1e12", "--plan-only"]
    sentence = mistake(capsys, *words, "--output-dir", tmp_path / "out")
    assert "documents-valid-00000.npy is missing" in sentence
    assert not (tmp_path / "out").exists()
