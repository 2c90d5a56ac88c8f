"""Encoding: the remembering path equals the library's own, part files are what was written."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from electrify.text import encode
from electrify.text.encode import Encoder, Start, Task, cut, read_part, start, write_part
from electrify.text.vocabulary import train

TEXTS = [
    "The naïve café, 中文 and don't; 12.5% of [MASK]!",
    "hello world " * 20,
    "Ünïcödé tëxt ẞ",
] * 20


@cache
def tokenizer_json(kind: str = "wordpiece") -> str:
    return train(
        TEXTS, kind=kind, vocab_size=300, lowercase=True, strip_accents=True, min_frequency=1
    ).to_str()


@cache
def encoders() -> tuple[Encoder, Encoder]:
    return Encoder(tokenizer_json()), Encoder(tokenizer_json(), remember=False)


PIECES = st.sampled_from(
    [
        "the",
        "café",
        "中文",
        "[MASK]",
        "don't",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2028",
        "\u3000",
        "\u0301",
        "x" * 120,
        " ",
        "\n",
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=12).map("".join)), max_size=5
    )
)
@example(["a\x0bb \x1cc\x85d e\u2028f"])
def test_remembering_changes_nothing(texts: list[str]) -> None:
    fast, plain = encoders()
    assert fast._known is not None
    assert plain._known is None
    for a, b in zip(fast(texts), plain(texts), strict=True):
        assert np.array_equal(a, b)


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"word{i} the café {i}" for i in range(200)]
    expected = Encoder(tokenizer_json(), remember=False)(texts)
    monkeypatch.setattr(encode, "_MAX_KNOWN", 10)
    monkeypatch.setattr(encode, "_BATCH", 100)
    for a, b in zip(Encoder(tokenizer_json())(texts), expected, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_other_kinds_do_not_remember(kind: str) -> None:
    assert Encoder(tokenizer_json(kind))._known is None


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_long_texts_in_pieces_have_the_ids_of_the_whole(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(TEXTS)
    whole = Encoder(tokenizer_json(kind), remember=False)([text])
    monkeypatch.setattr(encode, "PIECE", 50)
    pieces = Encoder(tokenizer_json(kind), remember=False)([text])
    assert np.array_equal(whole[1], pieces[1])
    assert np.array_equal(whole[0], pieces[0])


@settings(deadline=None)
@given(st.text(alphabet="ab \n", max_size=60), st.integers(1, 12))
def test_cut_loses_nothing(text: str, size: int) -> None:
    before = encode.PIECE
    encode.PIECE = size
    try:
        pieces = list(cut(text))
    finally:
        encode.PIECE = before
    assert "".join(pieces) == text
    assert all(len(p) <= size for p in pieces)


def test_special_tokens_in_text_are_text() -> None:
    for kind in ("wordpiece", "bpe", "unigram"):
        ids = Encoder(tokenizer_json(kind))(["[CLS] [MASK][SEP] and [PAD]"])[1]
        assert not {0, 2, 3, 4} & set(ids.tolist())


def part(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    handle = start(
        Start(
            tokenizer=tokenizer_json(), vocab_size=300, unk=1, forbidden=(0, 2, 3, 4), dtype="<u2"
        )
    )
    path = tmp_path / "x" / "1.part"
    encoded = handle(
        Task(key="k", texts=["hello world", "the", "hello"], valid=[False, True, False])
    )
    write_part(path, encoded.part)
    return path, encoded.counts


def test_part_file_holds_both_splits(tmp_path: Path) -> None:
    path, counts = part(tmp_path)
    found = read_part(path, key="k", dtype="<u2")
    assert found is not None
    assert found[0]["counts"] == counts
    lengths, ids = found[1]["train"]
    expected = encoders()[1](["hello world", "hello"])
    assert np.array_equal(lengths, expected[0])
    assert np.array_equal(ids, expected[1])
    assert found[1]["valid"][0].tolist() == [len(found[1]["valid"][1])]
    assert counts == {
        "documents": 3, "words": 4, "characters": 19, "visible_characters": 18, "bytes": 19,
        "tokens": int(lengths.sum() + found[1]["valid"][0].sum()), "unk_tokens": 0
    }  # fmt: skip


def test_part_of_another_task_or_with_a_changed_byte_is_not_used(tmp_path: Path) -> None:
    path, _ = part(tmp_path)
    good = path.read_bytes()
    assert read_part(path, key="other", dtype="<u2") is None
    for i in range(0, len(good), 7):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert read_part(path, key="k", dtype="<u2") is None
    path.write_bytes(good[: len(good) - 1])
    assert read_part(path, key="k", dtype="<u2") is None
    assert read_part(tmp_path / "none", key="k", dtype="<u2") is None
