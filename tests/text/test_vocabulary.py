"""Training vocabularies: deterministic; every kind with every pre-tokenizer keeps the alphabet
where it fits, decodes to what was encoded, and gives exact offsets, also in transformers."""

import hashlib
import itertools
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import PreTrainedTokenizerFast
from vocabularies import AUTO, EVERY, NONE, SPACES, asked, some_texts, trained

from electrify.errors import UserError
from electrify.text import vocabulary as module
from electrify.text.encode import TextToIds
from electrify.text.tokenizer import plain as plain_tokenizer
from electrify.text.tokenizer import save_trained, word_edges
from electrify.text.vocabulary import enough, train

UNK = 1


def vocabulary(texts: list[str], kind: str, splitting: str, **changes: Any) -> Any:
    return train(texts, asked(kind, splitting, **changes))


def plain(text: str, kind: str) -> str:
    """What a tokenizer of this kind makes of a text before it cuts it, without lower-casing."""
    if kind != "wordpiece":
        return unicodedata.normalize("NFC", text)
    spaced = (" " if c.isspace() else c for c in text)
    return "".join(c for c in spaced if not unicodedata.category(c).startswith("C"))


def must_be_exact(tokenizer: Any, text: str, kind: str) -> None:
    """No [UNK]; decoding gives the text; tokens cover it from left to right."""
    found = tokenizer.encode(text, add_special_tokens=False)
    assert UNK not in found.ids
    assert tokenizer.decode(found.ids, skip_special_tokens=False) == plain(text, kind)
    must_cover(text, found.offsets, kind)


def must_cover(text: str, spans: list[tuple[int, int]], kind: str) -> None:
    """From left to right, every character; the library leaves a mark that is composed with the
    letter before it outside, and BERT's normalizer deletes characters."""
    last = 0
    for start, stop in spans:
        assert start == last or start <= last <= stop or not left(text[last:start], kind)
        last = max(last, stop)
    assert not left(text[last:], kind)


def left(gap: str, kind: str) -> str:
    deleted = ("C", "M") if kind == "wordpiece" else ("M",)
    return "".join(c for c in gap if not unicodedata.category(c).startswith(deleted))


TEXTS = st.lists(
    st.text(
        alphabet=st.characters(
            exclude_categories=("C", "Zl", "Zp", "Mn"), exclude_characters="\ufffd"
        )
        | st.sampled_from(" \n\té\u0301😀中CNO()=#"),
        min_size=1,
        max_size=40,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize(("kind", "splitting"), EVERY)
@settings(max_examples=6, deadline=None)
@given(texts=TEXTS)
@example(texts=["[UNK]"])
def test_any_text_is_decoded_and_has_exact_offsets(kind, splitting, texts):
    """At the smallest vocabulary that holds the alphabet, and at a larger one; with the tokenizer
    that encodes a corpus, to which the name of a special token is text."""
    alphabet = {c for text in texts for c in plain(text, kind)}
    least = 5 + (256 if kind in ("bpe", "byte") else len(alphabet))
    for size in (least, least + 30):
        tokenizer = vocabulary(texts, kind, splitting, vocab_size=size)
        assert kind == "byte" or tokenizer.get_vocab_size() <= size
        read = plain_tokenizer(tokenizer.to_str())
        for text in texts:
            must_be_exact(read, text, kind)


@settings(max_examples=20, deadline=None)
@given(texts=TEXTS, splitting=st.sampled_from([AUTO, SPACES]), lowercase=st.booleans())
def test_word_pieces_keep_the_alphabet_where_it_fits(texts, splitting, lowercase):
    """c and ##c of every character, and the special tokens."""
    letters = {c for text in texts for c in text.lower() + text if not c.isspace()}
    tokenizer = vocabulary(
        texts, "wordpiece", splitting, vocab_size=5 + 2 * len(letters), lowercase=lowercase
    )
    for text in texts:
        found = tokenizer.encode(text, add_special_tokens=False)
        assert UNK not in found.ids
        spans = found.offsets
        assert all(a[1] <= b[0] or a == b for a, b in itertools.pairwise(spans))
        inside = {i for start, stop in spans for i in range(start, stop)}
        assert inside >= {i for i, c in enumerate(text) if not c.isspace()}


@pytest.mark.parametrize("short_mb", [20, 0])
def test_what_is_unknown_falls_with_the_size_and_never_jumps(short_mb, monkeypatch):
    monkeypatch.setattr(module, "SHORT_MB", short_mb)
    draw = random.Random(1)
    signs = [chr(0x4E00 + i) for i in range(600)]
    drawn = draw.choices(signs, [1 / (i + 5) for i in range(600)], k=10_000)
    texts = ["".join(drawn[i : i + 50]) for i in range(0, len(drawn), 50)]
    shares = []
    for size in (100, 500, 580, 610):
        unknown = {}
        for kind in ("wordpiece", "character"):
            made = vocabulary(texts, kind, AUTO, vocab_size=size).to_str()
            unknown[kind] = TextToIds(made, unk=1)(texts)[2].sum() / len(drawn)
        assert unknown["wordpiece"] <= unknown["character"] + 0.01
        shares.append(unknown["wordpiece"])
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 1e-3


def test_kmers_are_tokens_and_the_rest_is_characters() -> None:
    dna = ["".join(random.Random(i).choices("ACGT", k=600)) for i in range(20)]
    tokenizer = vocabulary(dna, "character", "chunks 3", vocab_size=5 + 4 + 64)
    assert tokenizer.encode("ACGTTTAC", add_special_tokens=False).tokens == ["ACG", "TTT", "A", "C"]
    fewer = vocabulary(dna, "character", "chunks 3", vocab_size=5 + 4)
    assert fewer.encode("ACGT", add_special_tokens=False).tokens == list("ACGT")
    assert tokenizer.encode("NNN", add_special_tokens=False).tokens == ["[UNK]"]


MIXED = ["CC(=O)Oc1ccccc1 Cl\n\tNa+", "def  f(x):\n    return 'é' + 中", "the cat  sat."] * 5


def words_by_edges(kind: str, splitting: str, text: str, folder: Path) -> list[str]:
    tokenizer = vocabulary(MIXED, kind, splitting)
    save_trained(tokenizer, folder, asked(kind))
    edges = word_edges(folder)
    found = tokenizer.encode(text, add_special_tokens=False)
    ids = torch.tensor(found.ids)
    joins = [False, *edges.joins(ids[:-1], ids[1:]).tolist()]
    words: list[list[int]] = []
    for (start, stop), joined in zip(found.offsets, joins, strict=True):
        words += [] if joined else [[start, stop]]
        words[-1][1] = stop
    return [text[a:b] for a, b in words]


@pytest.mark.parametrize("kind", ["bpe", "byte", "character", "wordpiece"])
def test_words_between_white_space(kind: str, tmp_path: Path) -> None:
    text = "CC(=O)Oc1ccccc1 Cl\n\tNa+  sat."
    found = words_by_edges(kind, SPACES, text, tmp_path)
    assert [w.strip() for w in found if w.strip()] == text.split()


def test_special_tokens_may_have_the_highest_ids(tmp_path: Path) -> None:
    """As in a tokenizer to which they were added."""
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(tmp_path)
    ids = torch.tensor([3, 1, 2, 4])
    assert word_edges(tmp_path).joins(ids[:-1], ids[1:]).tolist() == [False, True, False]


def test_text_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not mark where words begin"):
        words_by_edges("bpe", NONE, "CC", tmp_path)


SAME = {"wordpiece": "e1db398b239c8fca", "bpe": "ca9332afe62d44e5", "unigram": "1bde76ad04feb533"}


@pytest.mark.parametrize("kind", SAME)
def test_batches_change_no_vocabulary(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes are those of before, when every text was counted and fed by itself; that of
    wordpiece is of when its 41 letters were all kept at 500 pieces, and the others have a last NFC
    in their normalizers."""
    assert hashlib.sha256(trained(kind).to_str().encode()).hexdigest()[:16] == SAME[kind]
    monkeypatch.setattr(module, "BATCH_TEXTS", 7)
    assert hashlib.sha256(trained(kind).to_str().encode()).hexdigest()[:16] == SAME[kind]


def syllables(n: int) -> list[str]:
    draw = random.Random(0)
    return [
        "".join(draw.choices(["\u0e17\u0e35\u0e48", "\u0e01\u0e34", "\u0e19"], k=90))
        for _ in range(n)
    ]


def molecules(n: int) -> list[str]:
    draw = random.Random(4)
    return ["".join(draw.choices("CcNnOo()=1234", k=50)) for _ in range(n)]


def test_unigram_takes_part_of_a_text_only_if_its_words_do_not_repeat() -> None:
    for all_of_it in (some_texts(1000), molecules(1000)):
        assert enough(all_of_it, 300) is all_of_it
    assert sum(map(len, some_texts(1000))) > 1 << 16
    texts = [*molecules(2000), "rare \u2603"]
    kept = enough(texts, 300)
    assert 1 << 16 <= sum(map(len, kept)) < (1 << 16) + 100
    assert kept[-1] == texts[-1]


@pytest.mark.parametrize(
    ("texts", "splitting"),
    [(syllables(20), AUTO), (["N[C@@H](CC(C)C)C(=O)" * n for n in range(6, 20)], SPACES)],
    ids=["marks", "signs"],
)
def test_long_words_with_marks_or_signs_are_known(texts: list[str], splitting: str) -> None:
    tokenizer = vocabulary(texts, "wordpiece", splitting)
    assert not any(UNK in tokenizer.encode(text).ids for text in texts)
