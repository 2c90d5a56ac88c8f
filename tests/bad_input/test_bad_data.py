"""Prepared corpora that were cut, exchanged or written by an enemy, who gets the hashes right:
found when a run opens them, or in the piece that they would spoil."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from electrify.files import json_text, sha256
from small import mistake, pretrain_words


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_data, tmp_path / "data"))


def of(data: Path, kind: str) -> Path:
    return next(data.glob(f"{kind}-train-*"))


def seal(data: Path, changes: Mapping[str, Any] = MappingProxyType({})) -> None:
    """The manifest with `changes`, and with the hashes of the files as they are now."""
    fields = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    for shard in fields["splits"]["train"]:
        shard["tokens_sha256"] = sha256(data / shard["tokens_file"])
    fields |= {"unigram_sha256": sha256(data / "unigram.npy")} | dict(changes)
    del fields["sha256"]
    fields["sha256"] = hashlib.sha256(json_text(fields).encode()).hexdigest()
    (data / "manifest.json").write_text(json.dumps(fields), encoding="utf-8")


def cut(data: Path) -> None:
    os.truncate(of(data, "tokens"), 100)


def missing(data: Path) -> None:
    of(data, "tokens").unlink()


def beyond_the_vocabulary(data: Path) -> None:
    size = of(data, "tokens").stat().st_size
    of(data, "tokens").write_bytes(b"\xff" * size)
    seal(data)


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran-from-npy",)


def pickled_documents(data: Path) -> None:
    np.save(of(data, "documents"), np.array([Payload()], dtype=object), allow_pickle=True)


def short_unigram(data: Path) -> None:
    np.save(data / "unigram.npy", np.ones(3, np.int64))
    seal(data)


def other_tokenizer(data: Path) -> None:
    path = data / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"the"', '"eth"'), encoding="utf-8")


def edited_manifest(data: Path) -> None:
    path = data / "manifest.json"
    path.write_text(path.read_text().replace('"vocab_size": ', '"vocab_size": 1'))


CASES: list[tuple[Callable[[Path], None], str]] = [
    (cut, "it is truncated"),
    (missing, "named by the manifest is missing"),
    (beyond_the_vocabulary, "holds the token 65535, beyond its vocabulary of"),
    (pickled_documents, "documents-train-00000.npy does not have the hash"),
    (short_unigram, "unigram.npy does not agree with the manifest"),
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
