"""Encoding: the remembering path equals the library's own, part files are what was written."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vocabularies import LIKE_BERT, asked

from electrify.text import encode
from electrify.text.documents import Seen, digest, fraction
from electrify.text.encode import TextToIds, read_part, start, write_part
from electrify.text.vocabulary import train

TEXTS = [
    "The naïve café, 中文 and don't; 12.5% of [MASK]!",
    "hello world " * 20,
    "Ünïcödé tëxt ẞ",
] * 20


@cache
def tokenizer_json(kind: str = "wordpiece") -> str:
    smaller: dict[str, Any] = LIKE_BERT | {"vocab_size": 300, "min_frequency": 1}
    return train(TEXTS, asked(kind, **smaller)).to_str()


@cache
def encoders() -> tuple[TextToIds, TextToIds]:
    """One that remembers chunks, and one that does not."""
    fast, plain = TextToIds(tokenizer_json()), TextToIds(tokenizer_json())
    assert fast._splits
    plain._splits = False
    return fast, plain


PIECES = st.sampled_from(
    [
        *("the", "café", "中文", "[MASK]", "don't", "x" * 120, " ", "\n"),
        *("\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\u3000", "\u0301"),
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=12).map("".join)), max_size=5
    )
)
@example(["a\x0bb \x1cc\x85d e\u2028f"])
def test_remembering_and_forgetting_change_nothing(texts: list[str]) -> None:
    fast, plain = encoders()
    expected = plain(texts)
    with pytest.MonkeyPatch.context() as patch:
        for known, batch in ((encode._MAX_KNOWN, encode._BATCH), (10, 100)):
            patch.setattr(encode, "_MAX_KNOWN", known)
            patch.setattr(encode, "_BATCH", batch)
            for a, b in zip(fast(texts), expected, strict=True):
                assert np.array_equal(a, b)


DRAW = random.Random(0)
ASCII = "".join(DRAW.choices("ACGT", k=4000))
SPACED = "".join(DRAW.choices([*"ACGT", "  ", "\n"], weights=[9] * 4 + [1, 1], k=4000))
ODD = "".join(DRAW.choices([*"ACGT", "e\u0301", "\u200d", "\u0130", " "], k=4000))


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "character"])
@pytest.mark.parametrize("splitting", ["chunks 6", "none", "auto"])
def test_pieces_end_where_windows_do(kind, splitting, monkeypatch):
    """Behind the first piece, the k-mers of a long sequence were those of another frame."""
    texts = [ASCII, SPACED, ODD]
    if splitting == "auto" and kind != "wordpiece":
        texts = [SPACED]  # a word without an end is cut anywhere
    made = train([text[:1000] for text in texts], asked(kind, splitting, lowercase=True))
    monkeypatch.setattr(encode, "PIECE", 1000)
    for text in texts:
        expected = made.encode(text, add_special_tokens=False).ids
        lengths, ids, _ = TextToIds(made.to_str())([text])
        assert ids.tolist() == expected
        assert lengths.tolist() == [len(expected)]


def test_part_file_holds_both_splits(tmp_path: Path) -> None:
    """One that is cut, or has a changed byte, is not used."""
    handle = start(tokenizer_json(), unk=1, dtype="<u2")
    path = tmp_path / "1.part"
    write_part(*handle((path, ["hello world", "the", "hello"], [False, True, False])))
    found, good = read_part(path), path.read_bytes()
    assert found is not None
    read = (found[1]["train"], found[1]["valid"])
    for part_of, texts in zip(read, (["hello world", "hello"], ["the"]), strict=True):
        for one, other in zip(part_of, encoders()[1](texts)[:2], strict=True):
            assert np.array_equal(one, other)
    tokens = sum(len(ids) for _, ids in found[1].values())
    assert found[0] == {
        "documents": 3, "words": 4, "characters": 19, "visible_characters": 18, "bytes": 19,
        "tokens": tokens, "unk_tokens": 0, "unk_characters": 0, "unk_documents": 0,
            "without_tokens": 0,
    }  # fmt: skip
    for i in range(0, len(good), 7):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert read_part(path) is None
    path.write_bytes(good[:-1])
    assert read_part(path) is None


# Few distinct values, some ending in zero bytes, which numpy's string type would strip if it were
# careless.
HASHES = st.sampled_from(
    [bytes([a]) * n + bytes(16 - n) for a in (0, 1, 255) for n in (1, 8, 15, 16)]
)


@given(st.lists(st.lists(HASHES, max_size=12), max_size=12))
def test_like_a_set(batches: list[list[bytes]]) -> None:
    seen, reference = Seen(), set()
    for batch in batches:
        expected = []
        for h in batch:
            expected.append(h not in reference)
            reference.add(h)
        assert seen.add(batch) == expected


def test_fractions_are_uniform_and_independent() -> None:
    pairs = [
        (fraction(d, stream=0), fraction(d, stream=1))
        for d in (digest(str(i).encode()) for i in range(4000))
    ]
    chosen = [b for a, b in pairs if a < 0.1]
    assert 330 < len(chosen) < 470  # 400 +- 3.7 standard deviations
    assert 0.45 < sum(chosen) / len(chosen) < 0.55
