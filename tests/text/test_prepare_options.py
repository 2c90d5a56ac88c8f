"""Options of `prepare` that cannot be meant: what is empty, what means something else, what changes
nothing. And rows that are hard to read."""

from __future__ import annotations

import json
import lzma
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from electrify.text.sample import _taken  # pyright: ignore[reportPrivateUsage]

from electrify.errors import UserError
from electrify.text.dedup import digest, fraction
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from small import mistake, run, write_text


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "a.txt", size=3000)


def test_empty_names(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An empty text, as of a variable that is not set, is the path of the current folder."""
    monkeypatch.chdir(tmp_path)
    assert "inputs is empty" in mistake(capsys, "prepare", "", "--output-dir", "out")
    assert "inputs is empty" in mistake(capsys, "prepare", str(text), "", "--output-dir", "out")
    assert "--output-dir is empty" in mistake(capsys, "prepare", str(text), "--output-dir", "")
    assert "--tokenizer is empty" in mistake(
        capsys, "prepare", str(text), "--output-dir", "out", "--tokenizer", ""
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("WordPiece", "there is no tokenizer 'WordPiece'; did you mean 'wordpiece'?"),
        ("word-piece", "did you mean 'wordpiece'?"),
        ("wordpeice", "did you mean 'wordpiece'?"),
        ("BPE", "did you mean 'bpe'?"),
        ("byte-level", "did you mean 'bpe'?"),
        ("SentencePiece", "did you mean 'unigram'?"),
        ("unigramm", "did you mean 'unigram'?"),
        ("char", "there is no tokenizer 'char'; did you mean 'character'?"),
        ("bytes", "did you mean 'byte'?"),
    ],
)
def test_kinds_of_tokenizers_are_not_looked_for_on_the_hub(name: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        PrepareConfig(inputs=("a.txt",), output_dir="out", tokenizer=name)


@pytest.mark.parametrize(
    "name",
    [
        "bert-base-uncased",
        "gpt2",
        "owner/char",
        "google/electra-small-discriminator",
        "wordpiece",
        "bpe",
        "unigram",
    ],
)
def test_names_that_may_be_on_the_hub_pass(name: str) -> None:
    PrepareConfig(inputs=("a.txt",), output_dir="out", tokenizer=name)


@pytest.mark.parametrize(
    ("options", "formats", "unused"),
    [
        ({"vocab_size": 8000, "tokenizer": "some/where"}, {"txt"}, ["vocab_size 8000"]),
        ({"lowercase": False, "tokenizer": "x/y"}, {"txt"}, ["lowercase False"]),
        ({"min_frequency": 5, "tokenizer": "unigram"}, {"txt"}, ["min_frequency 5"]),
        ({"vocab_size": 8000, "tokenizer": "byte"}, {"txt"}, ["vocab_size 8000"]),
        ({"text_column": "content"}, {"txt", "md"}, ["text_column content"]),
        ({"dataset_split": "test"}, {"jsonl"}, ["dataset_split test"]),
        ({"document_boundary": "line"}, {"csv"}, ["document_boundary line"]),
        ({"text_column": "content", "dataset_split": "test", "vocab_size": 8000}, {"hub"}, []),
        ({"document_boundary": "line", "text_column": "content"}, {"txt", "csv"}, []),
    ],
)
def test_options_without_effect(
    options: dict[str, Any], formats: set[str], unused: list[str]
) -> None:
    said = PrepareConfig(inputs=("a",), output_dir="out", **options).unused(formats)
    assert [sentence.split(" has no effect")[0] for sentence in said] == unused


def test_they_are_said(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(
        PrepareConfig(
            inputs=(str(text),),
            output_dir=str(tmp_path / "out"),
            vocab_size=300,
            workers=1,
            text_column="content",
        )
    )
    assert "text_column content has no effect" in capsys.readouterr().err


def test_archives_without_checksum_are_named(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "b.txt.xz"
    packed.write_bytes(lzma.compress(text.read_bytes(), check=lzma.CHECK_NONE))
    prepare(
        PrepareConfig(
            inputs=(str(packed),), output_dir=str(tmp_path / "out"), vocab_size=300, workers=1
        )
    )
    assert (
        "b.txt.xz: packed without checksum, so a changed bit may pass for text"
        in capsys.readouterr().err
    )


def test_a_folder_called_as_a_kind_of_tokenizer_is_none(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vocabulary is trained, whatever lies beside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wordpiece").mkdir()
    (tmp_path / "wordpiece" / "vocab.txt").write_text("hello\n")
    words = ["prepare", str(text), "--output-dir", "data", "--vocab-size", "100"]
    assert run(*words) == 0
    (tmp_path / "wordpiece" / "vocab.txt").unlink()
    (tmp_path / "wordpiece" / "vocab.txt").symlink_to(text)
    assert run(*words) == 0
    assert (
        "tokenizer_content" not in json.loads(Path("data", "manifest.json").read_text())["options"]
    )


def test_the_vocabulary_is_of_the_documents_that_are_taken(tmp_path: Path) -> None:
    """With --max-documents, a document that comes again is not one more."""
    path = tmp_path / "lines.txt"
    path.write_text("the same line\n" * 20 + "".join(f"word{chr(97 + k)} x\n" for k in range(20)))
    options = PrepareConfig(
        inputs=(str(path),), output_dir=str(tmp_path / "data"), document_boundary="line",
        max_documents=12, valid_fraction=0.0,
    )  # fmt: skip
    lines = path.read_text().splitlines()
    assert [text for _, text in _taken(lines, options)] == lines[:31]
    again = replace(options, deduplicate=False)
    assert [text for _, text in _taken(lines, again)] == lines[:12]
    assert len([*_taken(lines, replace(options, max_documents=None))]) == 40


@pytest.mark.parametrize("deduplicate", [True, False])
def test_nothing_behind_the_last_document_is_judged(tmp_path: Path, deduplicate: bool) -> None:
    """Duplicates behind it were counted, and a bad byte stopped the run."""
    path = tmp_path / "lines.txt"
    lines = [f"this is line number {k}" for k in range(30)]
    path.write_bytes("\n".join([lines[0]] * 3 + lines + lines[:1] * 50).encode() + b"\ncaf\xe9\n")
    options = PrepareConfig(
        inputs=(str(path),), output_dir=str(tmp_path / "data"), document_boundary="line",
        max_documents=20, deduplicate=deduplicate, vocab_size=60, workers=1,
    )  # fmt: skip
    counts = prepare(options).counts
    assert (counts["documents"], counts["duplicates"]) == (20, 3 if deduplicate else 0)


def test_a_corpus_without_a_training_document_is_refused(text: Path, tmp_path: Path) -> None:
    """With a given tokenizer it was prepared, and only `pretrain` refused it."""
    asked = {"inputs": (str(text),), "vocab_size": 100, "workers": 1}
    prepare(PrepareConfig(**asked, output_dir=str(tmp_path / "data")))
    given = str(tmp_path / "data" / "tokenizer")
    with pytest.raises(UserError, match="fell into the validation split; lower valid_fraction"):
        prepare(
            PrepareConfig(
                **asked, output_dir=str(tmp_path / "x"), tokenizer=given, valid_fraction=0.999999
            )
        )


def test_a_corpus_that_no_verb_would_read_is_refused_at_once(tmp_path: Path) -> None:
    """Two texts that differ in a capital fall into both splits, and are one text in lower case."""
    path = tmp_path / "a.txt"
    options = PrepareConfig(
        inputs=(str(path),), output_dir=str(tmp_path / "data"), tokenizer="byte",
        document_boundary="line", valid_fraction=0.5,
    )  # fmt: skip
    sides: dict[bool, str] = {}
    for k in range(100):
        draw = random.Random(k)
        text = "".join(draw.choice(letter + letter.upper()) for letter in "thechefate")
        sides.setdefault(fraction(digest(text.encode()), stream=0) < 0.5, text)
    path.write_text("".join(f"{text}\n" for text in sides.values()))
    with pytest.raises(UserError, match="would have the same tokens in train and in"):
        prepare(options)
    assert not (tmp_path / "data" / "manifest.json").exists()
