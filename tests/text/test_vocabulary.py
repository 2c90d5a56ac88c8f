"""Training a vocabulary: what it costs for many tiny documents, and what is said on the way. That
it is deterministic: test_tokenizer.py."""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vocabularies import some_texts, trained

from electrify import progress
from electrify.errors import UserError
from electrify.text import alphabet, feeding, unigram
from electrify.text.vocabulary import enough, train
from small import mistake

OPTIONS: dict[str, Any] = {
    "vocab_size": 300,
    "lowercase": True,
    "strip_accents": True,
    "min_frequency": 2,
}


def tiny(n: int) -> list[str]:
    draw = random.Random(3)
    return [
        " ".join(draw.choices(["apple", "pear", "plum", "cherry", "fig"], k=3)) for _ in range(n)
    ]


def molecules(n: int, *, size: int = 50) -> list[str]:
    draw = random.Random(4)
    return ["".join(draw.choices("CcNnOo()=1234", k=size)) for _ in range(n)]


def test_characters_are_counted_per_batch_and_not_per_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call goes over an array of a million numbers: a million documents took an hour of it."""
    calls: list[int] = []
    add = alphabet.Characters.add
    monkeypatch.setattr(
        alphabet.Characters, "add", lambda self, text: (calls.append(len(text)), add(self, text))
    )
    texts = tiny(20_000)
    train(texts, kind="wordpiece", **OPTIONS)
    assert sum(calls) == sum(map(len, texts))
    assert len(calls) <= len(texts) / feeding.BATCH_TEXTS + 1


def test_batches_hold_every_text_once_in_order_and_are_bounded() -> None:
    texts = ["x" * n for n in (1, feeding.BATCH_CHARACTERS, 2, 3)] + tiny(2 * feeding.BATCH_TEXTS)
    found = list(feeding.batches(texts))
    assert [text for batch in found for text in batch] == texts
    assert max(map(len, found)) == feeding.BATCH_TEXTS
    assert list(feeding.batches([])) == []


SAME = {
    "wordpiece": "e1db398b239c8fca",
    "bpe": "ca9332afe62d44e5",
    "unigram": "1bde76ad04feb533",
}


@pytest.mark.parametrize("kind", SAME)
def test_batches_change_no_vocabulary(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes are those of before, when every text was counted and fed by itself; that of
    wordpiece is of when its 41 letters were all kept at 500 pieces, and the others have a last NFC
    in their normalizers."""
    assert hashlib.sha256(trained(kind).to_str().encode()).hexdigest()[:16] == SAME[kind]
    monkeypatch.setattr(feeding, "BATCH_TEXTS", 7)
    assert hashlib.sha256(trained(kind).to_str().encode()).hexdigest()[:16] == SAME[kind]


# ------------------------------------------------------------------ unigram


@pytest.mark.slow
def test_unigram_takes_part_of_a_text_whose_words_do_not_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[str] = []
    feed = unigram.feed

    def fed_too(tokenizer: object, texts: Iterator[str], trainer: object, **more: object) -> None:
        def noted() -> Iterator[str]:
            for text in texts:
                fed.append(text)
                yield text

        feed(tokenizer, noted(), trainer, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(unigram, "feed", fed_too)
    texts = [*molecules(2000), "rare ☃"]
    tokenizer = train(texts, kind="unigram", **OPTIONS)
    assert 1 << 16 <= sum(map(len, fed)) < (1 << 16) + 100
    assert tokenizer.encode("☃").ids[-2] != tokenizer.token_to_id(
        "[UNK]"
    )  # behind [CLS] and before [SEP]


def test_unigram_takes_all_of_a_text_whose_words_repeat() -> None:
    texts = some_texts(1000)
    assert sum(map(len, texts)) > 1 << 16
    assert enough(texts, 300) is texts
    few = molecules(1000)
    assert enough(few, 300) is few


# ------------------------------------------------------------------ what is said


def test_every_phase_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_S", 0.0)
    train(some_texts(100), kind="wordpiece", **OPTIONS)
    said = capsys.readouterr().err
    assert "counting characters" in said
    assert "counting words" in said


def test_the_library_s_own_part_has_a_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library says nothing from the last word it reads to the finished vocabulary."""
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_S", 0.05)
    line = re.compile(r"joining pieces of words: \d+ s so far")

    class Slow:
        def train_from_iterator(self, texts: Iterator[list[str]], trainer: object) -> None:
            assert [text for batch in texts for text in batch] == ["one", "two"]
            late, said = time.monotonic() + 60, ""
            while not line.search(said) and time.monotonic() < late:
                time.sleep(0.01)
                said += capsys.readouterr().err
            assert line.search(said)

    feeding.feed(Slow(), ["one", "two"], None, megabytes=1e-6, then="joining pieces of words")
    assert "electrify-waiting" not in {thread.name for thread in threading.enumerate()}
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""  # the clock has ended


def test_min_frequency_is_named_where_it_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("some text of which no letter occurs a thousand times\n" * 10)
    said = mistake(
        capsys,
        "prepare",
        tmp_path / "a.txt",
        "--output-dir",
        tmp_path / "out",
        "--min-frequency",
        "1000",
        "--document-boundary",
        "file",
    )
    assert "--min-frequency 1000 leaves nothing" in said
    assert "occurs 60 times" in said
    with pytest.raises(UserError, match="min_frequency 1000"):
        train(["a b"], kind="wordpiece", **{**OPTIONS, "min_frequency": 1000})
