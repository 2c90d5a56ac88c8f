"""The word-substitution test: what is planted into sentences, the verdict by hand, and minimal
pairs of a corpus's own held-out text."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.scoring.word_substitution import (
    SPAN,
    WORDS,
    Planted,
    Verdict,
    first_sentences,
    judge,
    plant,
    planted_pairs,
    summary,
)
from electrify.text.tokenizer import load_tokenizer


def test_first_sentences_are_of_plain_words_and_not_repeated():
    texts = [
        "Return the names of all\n  files in order. Second sentence that is left out here.",
        "Return the names of all files in order.",
        "Return os.path.join of all the names given here.",
        "Too short.",
        "One two three four five six, seven.",
        " ".join(["Many", *["words"] * 20]) + ".",
    ]
    assert first_sentences(texts) == [
        "Return the names of all files in order.",
        "One two three four five six, seven.",
    ]


SENTENCES = [
    f"The {a} sits on the {b} today."
    for a, b in (("chef", "table"), ("dog", "meadow"), ("king", "throne"), ("bird", "branch"))
]


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_word_is_foreign_and_the_rest_is_untouched(seed: int):
    planted = plant(SENTENCES, count=3, seed=seed)
    assert 1 <= len(planted) <= 3
    assert planted == plant(SENTENCES, count=3, seed=seed)
    for p in planted:
        original = p.text[: p.start] + p.right + p.text[p.end :]
        assert original in SENTENCES
        assert p.wrong not in original
        assert len(p.wrong) >= 4 <= len(p.right)
        assert any(p.wrong in s for s in SENTENCES)
    assert len({p.text[: p.start] + p.right + p.text[p.end :] for p in planted}) == len(planted)


def test_nothing_to_plant():
    assert plant([], count=3) == []
    assert plant(SENTENCES[:1], count=3) == []


def test_summary_by_hand():
    p = Planted("a bcd ef", 2, 5, "xyz")
    caught, missed, tie = (
        Verdict(p, 0.5, (0.1, 0.2, 0.3)),
        Verdict(p, 0.2, (0.1, 0.3)),
        Verdict(p, 0.3, (0.3,)),
    )
    assert p.wrong == "bcd"
    assert (caught.caught, missed.caught, tie.caught) == (True, False, False)
    text = summary(
        [caught, missed, tie]
    )  # guessing: 1/4 + 1/3 + 1/2 = 1.08; medians of .5 .2 .3 and of .1 .2 .3 .1 .3 .3
    assert "1 of 3 sentences (guessing: 1)" in text
    assert "30.0% for planted words, 25.0% for the others" in text


def test_the_verdict_is_that_of_detection(models_root: Path):
    model = str(models_root / "run/discriminator")
    planted = Planted("the chef cooked the meal", 4, 8, "cook")
    (verdict,) = judge(model, [planted])
    from electrify.scoring.detect import detect

    words = detect(model, [planted.text])[0].words
    assert [w.token for w in words] == ["the", "chef", "cooked", "the", "meal"]
    assert verdict.wrong == words[1].probability
    assert verdict.others == tuple(w.probability for i, w in enumerate(words) if i != 1)


# ------------------------------------------------------------------ minimal pairs


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
