"""Manifests with a right seal that contradict themselves, or the tokenizer beside them: refused
before the first step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.oldfiles.reading import sha256_of
from electrify.text.manifest import Manifest, read_manifest, write_manifest
from small import mistake, prepare_small, pretrain_words


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return prepare_small(tmp_path / "data")


def twice(m: Manifest) -> Manifest:
    return replace(m, splits=m.splits | {"train": m.splits["train"] * 2})


def in_both(m: Manifest) -> Manifest:
    return replace(m, splits=m.splits | {"valid": m.splits["train"]})


def copied(m: Manifest) -> Manifest:
    renamed = [replace(s, tokens_file="a", documents_file="b") for s in m.splits["train"]]
    return replace(m, splits=m.splits | {"valid": renamed})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (twice, "tokens-train-00000.bin is named 2 times"),
        (in_both, "tokens-train-00000.bin is named 2 times"),
        (copied, "a shard is both in train and in valid"),
    ],
)
def test_shards_that_are_named_twice(
    data: Path, change: Callable[[Manifest], Manifest], says: str
) -> None:
    write_manifest(data, change(read_manifest(data)))
    with pytest.raises(UserError, match=says):
        read_manifest(data)


def another_mask(data: Path, m: Manifest) -> Manifest:
    return replace(m, special_ids=replace(m.special_ids, mask=9))


def more_rows(data: Path, m: Manifest) -> Manifest:
    return replace(m, vocab_size=m.vocab_size - 1)


def other_words(data: Path, m: Manifest) -> Manifest:
    """The folder of a tokenizer with another mask token, of which the manifest knows the hashes."""
    path = data / "tokenizer" / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(settings | {"mask_token": "the"}), encoding="utf-8")
    return replace(m, tokenizer_files=m.tokenizer_files | {path.name: sha256_of(path)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (another_mask, "has other special tokens (mask is 4, and manifest.json says 9)"),
        (more_rows, "tokens, and manifest.json counts"),
        (other_words, "has other special tokens (mask is"),
    ],
)
def test_a_tokenizer_that_is_not_that_of_the_manifest(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    data: Path,
    change: Callable[[Path, Manifest], Manifest],
    says: str,
) -> None:
    write_manifest(data, change(data, read_manifest(data)))
    run = tmp_path / "run"
    sentence = mistake(capsys, *pretrain_words(data, run, max_steps=1))
    assert says in sentence
    assert "the two do not belong together: prepare the corpus again" in sentence
    assert not (run / "config.yaml").exists()
