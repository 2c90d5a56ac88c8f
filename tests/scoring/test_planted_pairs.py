"""Minimal pairs of a corpus's own held-out text: one word differs, and nothing tells which text is
the right one but what the words mean."""

from __future__ import annotations

import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.scoring.planted_pairs import SPAN, WORDS, planted_pairs
from electrify.text.tokenizer import load_tokenizer
from small import prepare_small


def test_one_word_differs_and_has_as_many_tokens(small_data: Path) -> None:
    tokenizer = load_tokenizer(small_data / "tokenizer")
    paradigm = planted_pairs(small_data, count=20)
    assert (len(paradigm.pairs), paradigm.part) == (20, "planted")
    for pair in paradigm.pairs:
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) >= WORDS
        assert sum(a != b for a, b in zip(good, bad, strict=True)) == 1
        lengths = [len(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in (good, bad)]
        assert lengths[0] == lengths[1] <= SPAN


def test_the_same_corpus_and_seed_give_the_same_pairs(small_data: Path) -> None:
    first = planted_pairs(small_data, count=20)
    assert first == planted_pairs(small_data, count=20)
    assert first != planted_pairs(small_data, count=20, seed=1)
    assert len(set(first.pairs)) == 20


def test_the_text_is_held_out(small_data: Path) -> None:
    from electrify.text.corpus import Corpus

    corpus = Corpus(small_data, "valid")
    tokenizer = load_tokenizer(small_data / "tokenizer")
    whole = " ".join(
        tokenizer.decode(corpus.tokens[0][a:b].tolist()) for a, b in pairwise(corpus.documents[0])
    )
    assert all(pair.good.strip() in whole for pair in planted_pairs(small_data, count=20).pairs)


def test_too_little_text_is_a_sentence(tmp_path: Path) -> None:
    from electrify.text.options import PrepareConfig
    from electrify.text.prepare import prepare

    # One word a document, as of a protein: nothing in it can be told apart.
    source = tmp_path / "one.txt"
    source.write_text("\n\n".join("MKV" + "ACDEFGHIKL"[k % 10] * 30 for k in range(400)))
    data = tmp_path / "data"
    prepare(
        PrepareConfig(
            inputs=(str(source),), output_dir=str(data), vocab_size=64, valid_fraction=0.2
        )
    )
    with pytest.raises(UserError, match=r"only 0 spans .* leave the task planted out"):
        planted_pairs(data)


def test_text_without_words_is_not_asked_for_more_of_it(tmp_path: Path) -> None:
    """As a protein, whose tokens are single letters without spaces."""
    from electrify.text.options import PrepareConfig
    from electrify.text.prepare import prepare

    rng = random.Random(0)
    source = tmp_path / "proteins.txt"
    lines = ("".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=120)) for _ in range(100))
    source.write_text("\n".join(lines))
    of_letters = {"tokenizer": "character", "document_boundary": "line", "vocab_size": 64}
    data = tmp_path / "data"
    held_out = {"inputs": (str(source),), "output_dir": str(data), "valid_fraction": 0.3}
    prepare(PrepareConfig(**of_letters, **held_out))
    with pytest.raises(UserError, match="only 0 hold 6 words between spaces") as raised:
        planted_pairs(data)
    assert "--valid-fraction" not in str(raised.value)
    with pytest.raises(UserError, match="leave the task planted out, or prepare the corpus"):
        planted_pairs(prepare_small(tmp_path / "small"), count=10**6)


def test_words_with_vowel_signs_can_be_replaced(tmp_path: Path) -> None:
    """Python says that they are not all letters: so most words of Hindi did not count as words."""
    from electrify.text.options import PrepareConfig
    from electrify.text.prepare import prepare

    words = [f"{a}ा{b}{sign}" for a in "कगचजटतदनपबमर" for b in "लसह" for sign in "िीुे"]
    assert not any(map(str.isalpha, words))
    rng = random.Random(0)
    source = tmp_path / "hi.txt"
    documents = (
        "\n".join(" ".join(rng.choices(words, k=12)) for _ in range(4)) for _ in range(300)
    )
    source.write_text("\n\n".join(documents), encoding="utf-8")
    prepare(
        PrepareConfig(
            inputs=(str(source),),
            output_dir=str(tmp_path / "data"),
            vocab_size=200,
            lowercase=False,
            valid_fraction=0.3,
            workers=1,
        )
    )
    pairs = planted_pairs(tmp_path / "data").pairs
    assert len(pairs) >= 50
    for pair in pairs:
        (changed,) = (
            {a, b} for a, b in zip(pair.good.split(), pair.bad.split(), strict=True) if a != b
        )
        assert changed <= set(words)


def test_a_corpus_without_its_held_out_file_is_a_sentence(small_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(small_data, data)
    next(data.glob("tokens-valid-*")).unlink()
    with pytest.raises(UserError, match="missing"):
        planted_pairs(data)
