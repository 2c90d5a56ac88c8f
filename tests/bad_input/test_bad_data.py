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
from electrify.text.corpus import read_manifest
from small import mistake, pretrain_words, run


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


def longer(data: Path) -> None:
    with of(data, "tokens").open("ab") as f:
        f.write(b"\0\0")


def missing(data: Path) -> None:
    of(data, "tokens").unlink()


def without_documents(data: Path) -> None:
    of(data, "documents").unlink()


def beyond_the_vocabulary(data: Path) -> None:
    size = of(data, "tokens").stat().st_size
    of(data, "tokens").write_bytes(b"\xff" * size)
    seal(data)


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran-from-npy",)


def pickled_documents(data: Path) -> None:
    np.save(of(data, "documents"), np.array([Payload()], dtype=object), allow_pickle=True)


def backward_documents(data: Path) -> None:
    offsets = np.load(of(data, "documents"))
    offsets[1:-1] = offsets[-2:0:-1]
    np.save(of(data, "documents"), offsets)


def short_unigram(data: Path) -> None:
    np.save(data / "unigram.npy", np.ones(3, np.int64))
    seal(data)


def no_unigram(data: Path) -> None:
    (data / "unigram.npy").write_bytes(b"")
    seal(data)


def other_tokenizer(data: Path) -> None:
    path = data / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"the"', '"eth"'), encoding="utf-8")


def no_tokenizer(data: Path) -> None:
    shutil.rmtree(data / "tokenizer")


def edited_manifest(data: Path) -> None:
    path = data / "manifest.json"
    path.write_text(path.read_text().replace('"vocab_size": ', '"vocab_size": 1'))


def manifest(**changes: Any) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        seal(data, changes)

    change.__name__ = "manifest " + ", ".join(f"{k} {str(v)[:20]}" for k, v in changes.items())
    return change


CASES: list[tuple[Callable[[Path], None], str]] = [
    (cut, "it is truncated"),
    (longer, "it is truncated"),
    (missing, "named by the manifest is missing"),
    (without_documents, "named by the manifest is missing"),
    (beyond_the_vocabulary, "holds the token 65535, beyond its vocabulary of"),
    (pickled_documents, "documents-train-00000.npy does not have the hash"),
    (backward_documents, "documents-train-00000.npy does not have the hash"),
    (short_unigram, "unigram.npy does not agree with the manifest"),
    (no_unigram, "unigram.npy is missing or damaged"),
    (other_tokenizer, "tokenizer.json does not have the hash in the manifest"),
    (no_tokenizer, "named by the manifest is missing"),
    (edited_manifest, "manifest.json is damaged or was edited"),
    (manifest(vocab_size=4 * 10**9), "GB are free"),
    (manifest(format=99), "manifest.json is damaged: format"),
]


@pytest.mark.parametrize(("spoil", "says"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_a_spoilt_corpus(
    capsys: pytest.CaptureFixture[str],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    spoil(data)
    assert says in mistake(capsys, *pretrain_words(data, tmp_path / "run", max_steps=2))
    assert not (tmp_path / "ran-from-npy").exists()
    assert not list(tmp_path.glob("run/checkpoint-*"))


def test_further_files_are_not_read(data: Path, tmp_path: Path) -> None:
    """Only what the manifest names is the corpus."""
    shutil.copy(of(data, "tokens"), data / "tokens-train-00001.bin")
    (data / "tokens-train-00002.bin").write_bytes(b"\xff" * 7)
    assert run(*pretrain_words(data, tmp_path / "run", max_steps=1)) == 0
    facts = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert facts["data"] == read_manifest(data).fingerprint
