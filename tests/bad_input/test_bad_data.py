"""Prepared corpora that were cut, exchanged or edited: found when a run opens them, or in the piece
that they would spoil."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small import mistake, pretrain_words


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_data, tmp_path / "data"))


def of(data: Path, kind: str) -> Path:
    return next(data.glob(f"{kind}-train-*"))


def cut(data: Path) -> None:
    os.truncate(of(data, "tokens"), 100)


def missing(data: Path) -> None:
    of(data, "tokens").unlink()


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran-from-npy",)


def pickled_documents(data: Path) -> None:
    np.save(of(data, "documents"), np.array([Payload()], dtype=object), allow_pickle=True)


def other_tokenizer(data: Path) -> None:
    path = data / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"the"', '"eth"'), encoding="utf-8")


def flipped_validation(data: Path) -> None:
    path = next(data.glob("tokens-valid-*"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))


def edited_manifest(data: Path) -> None:
    path = data / "manifest.json"
    path.write_text(path.read_text().replace('"vocab_size": ', '"vocab_size": 1'))


CASES: list[tuple[Callable[[Path], None], str]] = [
    (cut, "it is truncated"),
    (missing, "has 0 bytes where the manifest says"),
    (pickled_documents, "documents-train-00000.npy does not have the hash"),
    (flipped_validation, "tokens-valid-00000.bin does not have the hash"),
    (other_tokenizer, "tokenizer.json does not have the hash in the manifest"),
    (edited_manifest, "manifest.json is damaged or was edited"),
]


@pytest.mark.parametrize(("spoil", "says"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_a_spoilt_corpus(capsys, data, tmp_path, monkeypatch, spoil, says):
    monkeypatch.chdir(tmp_path)
    spoil(data)
    assert says in mistake(capsys, *pretrain_words(data, tmp_path / "run", max_steps=2))
    assert not (tmp_path / "ran-from-npy").exists()
    assert not list(tmp_path.glob("run/checkpoint-*"))
