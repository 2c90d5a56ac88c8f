"""Encoding: the remembering path equals the library's own, part files are what was written."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from electrify.text import encode, whole_windows
from electrify.text.encode import (
    Encoder,
    Start,
    Task,
    WholeWindows,
    cut,
    read_part,
    start,
    write_part,
)
from electrify.text.vocabulary import Splitting, train, windows

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


def trained_on(texts: list[str], kind: str, vocab_size: int, splitting: Splitting) -> Any:
    return train(
        texts,
        kind=kind,
        vocab_size=vocab_size,
        lowercase=True,
        strip_accents=False,
        min_frequency=1,
        splitting=splitting,
    )


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "character"])
@pytest.mark.parametrize("splitting", [Splitting("chunks", 6), Splitting("none")], ids=str)
def test_pieces_end_where_windows_do(
    kind: str, splitting: Splitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the first piece, the k-mers of a long sequence were those of another frame."""
    draw = random.Random(0)
    # The first window of a piece gets unigram's mark of a space, so one begins with white space.
    letters = "ACGT  \n" if kind == "unigram" else "ACGT"
    text = "".join(draw.choices([*letters, "e\u0301", "\u200d", "\u0130"], k=4000))
    trained = trained_on([text[:1000]], kind, 300, splitting)
    expected = trained.encode(text, add_special_tokens=False).ids
    monkeypatch.setattr(encode, "PIECE", 1000)
    lengths, ids, _ = Encoder(trained.to_str())([text])
    assert ids.tolist() == expected
    assert lengths.tolist() == [len(expected)]


SEQUENCE = "".join(random.Random(1).choices("ACGT", k=60_000))
LINES = "\r\n".join(SEQUENCE[i : i + 60] for i in range(0, 60_000, 60))


@pytest.mark.parametrize(
    ("text", "kind", "splitting", "passes"),
    [
        # A window that begins with white space is placed at the last character of a stretch of it.
        (LINES, "unigram", Splitting("chunks", 6), 0.2),
        (LINES.replace("A", "\u00c5"), "unigram", Splitting("chunks", 6), 1.2),
        (SEQUENCE, "unigram", Splitting("chunks", 6), 0.0),
        (SEQUENCE, "wordpiece", Splitting("chunks", 6), 0.1),
        (SEQUENCE, "bpe", Splitting("none"), 0.1),
        # Words are cut into windows; one word is looked at as a whole.
        (LINES, "wordpiece", Splitting(), 0.4),
        (LINES.replace("A", "A, "), "wordpiece", Splitting(), 0.4),
        (SEQUENCE, "wordpiece", Splitting(), 1.4),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_end_of_a_piece_is_found_in_one_pass(
    text: str,
    kind: str,
    splitting: Splitting,
    passes: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = trained_on([SEQUENCE[:1000], text[:1000]], kind, 400, splitting)
    read = 0
    normal = WholeWindows._normal

    def counting(self: WholeWindows, part: str) -> str:
        nonlocal read
        read += len(part)
        return normal(self, part)

    encoder = Encoder(trained.to_str())
    monkeypatch.setattr(WholeWindows, "_normal", counting)
    monkeypatch.setattr(whole_windows, "_WORDS", 1000)
    monkeypatch.setattr(encode, "PIECE", 10_000)
    _, ids, _ = encoder([text])
    assert read <= passes * len(text)
    if passes:  # else no piece may begin anywhere
        assert ids.tolist() == trained.encode(text, add_special_tokens=False).ids


def test_a_given_normalizer_may_delete_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "A": 1, "AC": 2, "C": 3, "CA": 4}))
    made.model.continuing_subword_prefix = ""
    made.normalizer = normalizers.Replace("-", "")
    made.pre_tokenizer = windows(5)
    text = "".join(random.Random(0).choices("AC-", k=3000))
    monkeypatch.setattr(encode, "PIECE", 300)
    _, ids, _ = Encoder(made.to_str())([text])
    assert ids.tolist() == made.encode(text).ids


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


SPECIAL_TEXTS = ["fill the [MASK] here", "[SEP]", "[CLS] [MASK][SEP] and [PAD]", "an [UNK] word"]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "character", "byte"])
@pytest.mark.parametrize("splitting", ["auto", "whitespace", "none", "chunks 5", "chunks 6"])
def test_special_tokens_in_text_are_text(kind: str, splitting: str) -> None:
    name, _, length = splitting.partition(" ")
    trained = train(
        SPECIAL_TEXTS * 50,
        kind=kind,
        vocab_size=300,
        lowercase=False,
        strip_accents=False,
        min_frequency=2,
        splitting=Splitting(name, int(length) if length else None),
    )
    encode = Encoder(trained.to_str(), unk=1)
    for text in SPECIAL_TEXTS:
        _, ids, unknown = encode([text])
        assert ids.min() >= 5
        assert not unknown.any()
        spelled = trained.decode(ids.tolist(), skip_special_tokens=False)
        assert spelled.replace(" ", "") == text.replace(" ", "")


def test_a_given_tokenizer_keeps_its_special_tokens_out_of_text() -> None:
    special = ["<s>", "<pad>", "<unk>"]
    pieces = [*special, "\u2581", *"<>admknpsu"]
    made = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=2))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens([*special, "<mask>"])
    made.add_tokens(["nap"])
    text = "a <pad><s> <unk> <mask>"
    _, ids, unknown = Encoder(made.to_str(), unk=2)([text + " nap"])
    assert not unknown.any()
    assert ids[:-2].tolist() == [pieces.index(c) for c in ("\u2581" + text).replace(" ", "\u2581")]
    assert ids[-1] == made.token_to_id("nap") == len(pieces) + 1


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
