"""[UNK] is measured by characters and by documents; what is mostly unknown is not believed."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electrify.errors import UserError
from electrify.text.corpus import Corpus, read_manifest
from electrify.text.encode import Encoder
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from electrify.text.report import advice, report
from electrify.text.vocabulary import train
from small import mistake


def config(source: Path, out: Path, **changes: Any) -> PrepareConfig:
    options: dict[str, Any] = {
        "vocab_size": 300,
        "workers": 1,
        "document_boundary": "line",
        "valid_fraction": 0.0,
    } | changes
    return PrepareConfig(inputs=(str(source),), output_dir=str(out), **options)


def foreign(tmp_path: Path, *, lines: int) -> Path:
    """100 lines, of which some are in letters that the tokenizer below has not seen."""
    draw = random.Random(0)
    known = ["".join(draw.choices("abcdefgh", k=20)) for _ in range(100 - lines)]
    other = ["".join(draw.choices("ξψωφ", k=20)) for _ in range(lines)]
    path = tmp_path / f"{lines}.txt"
    path.write_text("\n".join(known + other) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    source = foreign(tmp_path, lines=0)
    prepare(config(source, tmp_path / "letters", tokenizer="character"))
    return str(tmp_path / "letters" / "tokenizer")


def counts_of(texts: list[str], *, remember: bool) -> list[int]:
    trained = train(
        ["known words only"] * 3,
        kind="wordpiece",
        vocab_size=100,
        lowercase=True,
        strip_accents=True,
        min_frequency=1,
    )
    encode = Encoder(trained.to_str(), remember=remember, unk=1)
    return encode(texts)[2].tolist()


@pytest.mark.parametrize("remember", [True, False])
def test_characters_of_unknown_words(remember: bool) -> None:
    """A word of ten thousand letters counts as one token, and as ten thousand characters."""
    texts = ["known words", "known " + "q" * 10_000, "ξψω known ξψω ξ", "", "known"]
    assert counts_of(texts, remember=remember) == [0, 10_000, 7, 0, 0]


def test_forgetting_loses_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"known q{i}z known" for i in range(200)]
    expected = counts_of(texts, remember=False)
    assert np.all(np.array(expected) > 1)
    monkeypatch.setattr("electrify.text.encode._MAX_KNOWN", 10)
    monkeypatch.setattr("electrify.text.encode._BATCH", 100)
    assert counts_of(texts, remember=True) == expected


def test_a_warning_above_a_hundredth(
    tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = prepare(config(foreign(tmp_path, lines=1), tmp_path / "a", tokenizer=tokenizer))
    assert "WARNING" not in capsys.readouterr().err
    assert quiet.counts["unk_characters"] == 20
    loud = prepare(config(foreign(tmp_path, lines=5), tmp_path / "b", tokenizer=tokenizer))
    said = capsys.readouterr().err
    assert "WARNING: 5.0% of the characters of 5.txt are unknown to the tokenizer ([UNK])" in said
    assert "half or more of 5 of 100 documents" in said
    assert "train a tokenizer on this very text" in said
    assert (loud.counts["unk_characters"], loud.counts["unk_documents"]) == (100, 5)
    assert "of the characters        5.0000%" in report(loud)


def test_a_refusal_above_a_tenth_and_its_flag(tmp_path: Path, tokenizer: str) -> None:
    source = foreign(tmp_path, lines=20)
    out = tmp_path / "out"
    options = config(source, out, tokenizer=tokenizer)
    with pytest.raises(UserError, match=r"20\.0% of the characters .*--allow-unk accepts it"):
        prepare(options)
    assert not (out / "manifest.json").exists()
    # The work is not done again.
    accepted = prepare(replace(options, allow_unk=True))
    assert accepted.counts["unk_documents"] == 20
    assert prepare(options) == accepted == read_manifest(out)


def test_a_trained_one_is_judged_before_the_text_is_tokenised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,000 signs cannot be in a vocabulary of 64; nothing is left behind."""
    draw = random.Random(0)
    signs = [chr(0x4E00 + i) for i in range(1000)]
    source = tmp_path / "a.txt"
    source.write_text("\n".join("".join(draw.choices(signs, k=50)) for _ in range(200)))
    words: list[Any] = ["prepare", source, "--output-dir", tmp_path / "out", "--workers", "1"]
    said = mistake(capsys, *words, "--vocab-size", "64", "--document-boundary", "line")
    assert "of the characters of a sample of the text are unknown" in said
    assert "take --tokenizer character, or --tokenizer byte, which has no [UNK]" in said
    manifest = prepare(config(source, tmp_path / "out", tokenizer="byte"))
    told = capsys.readouterr().err
    assert "the vocabulary is the 256 bytes" in told
    assert "training" not in told
    assert manifest.counts["unk_tokens"] == 0
    assert manifest.vocab_size == 261


def ideographs(path: Path) -> Path:
    """Lines of 2,000 ideographs, few of which are frequent, and of words."""
    draw = random.Random(0)
    signs = [chr(0x4E00 + i) for i in range(2000)]
    shares = [1 / (i + 5) for i in range(2000)]
    words = ["".join(draw.choices("abcdefgh", k=5)) for _ in range(3000)]
    lines = ["".join([*draw.choices(signs, shares, k=20), draw.choice(words)]) for _ in range(1500)]
    path.write_text("\n".join(lines + ["".join(signs)] * 2), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokenizer", "vocab_size", "advised"),
    [
        ("wordpiece", 12_000, 2048),
        ("unigram", 8192, 2048),
        ("character", 8192, 0),
        ("bpe", 4096, 512),
    ],
)
def test_a_smaller_vocabulary_that_is_advised_can_be_had(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    vocab_size: int,
    advised: int,
) -> None:
    """It was refused, for it had no place for the letters."""
    source = ideographs(tmp_path / "a.txt")
    options = config(
        source,
        tmp_path / "a",
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        min_frequency=1,
        deduplicate=False,
    )

    def said_of(options: PrepareConfig) -> str:
        made = prepare(options)
        folder = Path(options.output_dir)
        return " ".join(advice(made, Corpus(folder, "train").unigram(), folder))

    said = said_of(options)
    found = re.search("--vocab-size ([0-9]+)", said)
    assert "embeddings hardly move" in said
    assert int(found[1] if found else 0) == advised
    assert ("would not know some letters of this text: add text" in said) == (advised == 0)
    if advised:
        capsys.readouterr()
        said_of(replace(options, output_dir=str(tmp_path / "b"), vocab_size=advised))
        assert "WARNING" not in capsys.readouterr().err
