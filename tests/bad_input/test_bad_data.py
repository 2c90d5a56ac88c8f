"""Prepared corpora that were cut, exchanged or edited: found when a run opens them, or in the piece
that they would spoil."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small import mistake, pretrain_words


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran-from-npy",)


def pickled(raw: bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Payload()], dtype=object), allow_pickle=True)
    return file.getvalue()


CASES: list[tuple[str, Callable[[bytes], bytes | None], str]] = [
    ("tokens-train-*", lambda raw: raw[:100], "it is truncated"),
    ("tokens-train-*", lambda raw: None, "has 0 bytes where the manifest says"),
    ("documents-train-*", pickled, "documents-train-00000.npy does not have the hash"),
    (
        "tokens-valid-*",
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        "00.bin does not have the hash",
    ),
    (
        "tokenizer/tokenizer.json",
        lambda raw: raw.replace(b'"the"', b'"eth"'),
        "tokenizer.json does not have the hash in the manifest",
    ),
    (
        "manifest.json",
        lambda raw: raw.replace(b'"vocab_size": ', b'"vocab_size": 1'),
        "manifest.json is damaged or was edited",
    ),
]


@pytest.mark.parametrize(("files", "spoil", "says"), CASES, ids=[says for *_, says in CASES])
def test_a_spoilt_corpus(capsys, small_data, tmp_path, monkeypatch, files, spoil, says):
    monkeypatch.chdir(tmp_path)
    data = shutil.copytree(small_data, tmp_path / "data")
    path: Path = next(data.glob(files))
    spoilt = spoil(path.read_bytes())
    path.unlink()
    if spoilt is not None:
        path.write_bytes(spoilt)
    assert says in mistake(capsys, *pretrain_words(data, tmp_path / "run", max_steps=2))
    assert not (tmp_path / "ran-from-npy").exists()
    assert not list(tmp_path.glob("run/checkpoint-*"))
