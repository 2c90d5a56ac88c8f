"""Tokenizers as folders: the same in every library that loads them; special tokens stand where
they belong and not in texts."""

import itertools
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast, XLNetTokenizer
from vocabularies import AUTO, EVERY, LIKE_BERT, NONE, SPACES, asked, some_texts, trained

from electrify.errors import UserError
from electrify.text.encode import TextToIds
from electrify.text.tokenizer import (
    load_tokenizer,
    reading_text,
    save_existing,
    save_trained,
    special_ids,
    vocabulary_size,
)
from electrify.text.vocabulary import train
from electrify.tokens import SpecialIds

ODD = [
    *("Élan VITAL naïve", "中文字 mixed 文 text", "[MASK] [SEP] foo[CLS]bar", "a\0b\ufffdc"),
    *("tab\tnew\nline\r\n x", "ﬁne ½ ﷽ Ⅷ", "don't  stop...   ", "\u200bzero\u00adwidth"),
    *("İstanbul ẞ ǅ", "e\u0301 ḱ", "x" * 150, "हिन्दी ไทย 한국어", "  lead", "😀👍🏽", " ", ""),
    *("Straße ΣΊΣΥΦΟΣ", "def  f(x):\n    return 'é' + 中", "x" * 700, "unseen ☃ [MASK]x"),
]


def test_vocab_txt_is_the_vocabulary(tmp_path: Path) -> None:
    save_trained(trained("wordpiece"), tmp_path, asked("wordpiece", **LIKE_BERT))
    tokens = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    tokenizer = load_tokenizer(tmp_path)
    assert {token: i for i, token in enumerate(tokens)} == tokenizer.get_vocab()
    assert len(tokens) <= 500
    assert tokenizer("[MASK]")["input_ids"] == [2, 4, 3]


BOTH = (True, False)
CASES = [
    *itertools.product(("wordpiece", "bpe", "unigram"), [AUTO], BOTH, BOTH),
    *((*one, False, False) for one in (*EVERY, ("unigram", NONE), ("wordpiece", SPACES))),
]


@pytest.mark.parametrize(("kind", "splitting", "lowercase", "strip_accents"), CASES)
def test_auto_tokenizer_gives_the_trained_ids(tmp_path, kind, splitting, lowercase, strip_accents):
    case = {"lowercase": lowercase, "accents_stripped": strip_accents}
    tokenizer = trained(kind, splitting, **case)
    save_trained(tokenizer, tmp_path, asked(kind, **case))
    if lowercase:  # as in an exported folder, where transformers chooses by the model too
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "electra"}))
    auto, raw = load_tokenizer(tmp_path), Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ODD + some_texts(3):
        expected = tokenizer.encode(text)
        assert raw.encode(text).ids == expected.ids
        found = auto(text, return_offsets_mapping=True)
        assert (found["input_ids"], found["offset_mapping"]) == (expected.ids, expected.offsets)
    assert special_ids(auto) == SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert vocabulary_size(auto) == len(auto)
    pair, (one, two) = auto("abc", "de"), auto(["abc", "de"])["input_ids"]
    assert pair["input_ids"] == one + two[1:]
    assert pair["token_type_ids"] == [0] * len(one) + [1] * (len(two) - 1)
    long = auto(" ".join(some_texts(60)), truncation=True)["input_ids"]
    assert len(long) == auto.model_max_length == 512


def bert_like(folder: Path, names: dict[str, str]) -> Path:
    """A tokenizer made elsewhere, with these special tokens."""
    vocabulary = {t: i for i, t in enumerate([*dict.fromkeys(names.values()), "hello", "world"])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=names.get("unk_token")))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(folder)
    return folder


ROBERTA = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


def test_equivalents_of_special_tokens(tmp_path: Path) -> None:
    assert special_ids(load_tokenizer(bert_like(tmp_path / "a", ROBERTA))) == SpecialIds(
        pad=1, unk=3, cls=0, sep=2, mask=4
    )
    with pytest.raises(UserError, match="one token for several roles"):
        special_ids(load_tokenizer(bert_like(tmp_path / "b", ROBERTA | {"pad_token": "<unk>"})))


def test_a_given_tokenizer_reads_as_pre_training_does(tmp_path: Path) -> None:
    """[CLS] text [SEP], padded on the right, however it did before; one that does so stays."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    made = Tokenizer(models.WordPiece({w: k for k, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {f"{word[1:-1].lower()}_token": word for word in words[:5]}
    sides = {"padding_side": "left", "truncation_side": "left"}
    given = PreTrainedTokenizerFast(tokenizer_object=made, **named, **sides)
    given.save_pretrained(str(tmp_path / "given"))  # it puts nothing around a text
    save_existing(str(tmp_path / "given"), tmp_path / "copy")
    read = AutoTokenizer.from_pretrained(tmp_path / "copy")
    assert (read.padding_side, read.truncation_side) == ("right", "right")
    assert read("a b")["input_ids"] == [2, 5, 6, 3]
    pair = read("a", "b c", return_token_type_ids=True)
    assert pair["input_ids"] == [2, 5, 3, 6, 7, 3]
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1, 1]
    assert read(["a", "a b c"], padding=True)["input_ids"] == [[2, 5, 3, 0, 0], [2, 5, 6, 7, 3]]
    save_existing(str(tmp_path / "copy"), tmp_path / "again")
    same = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("copy", "again")]
    assert same[0] == same[1]


def test_pairs_of_a_given_tokenizer_have_two_segments(tmp_path: Path) -> None:
    """RoBERTa's frame has one segment. Its offsets are those of words without their spaces, and
    stay so."""
    letters = ["a", "b", "\u0120"]
    words = {w: k for k, w in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters])}
    made = Tokenizer(models.BPE(words | {"\u0120b": 8}, [("\u0120", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    given = PreTrainedTokenizerFast(tokenizer_object=made, **ROBERTA)
    given.save_pretrained(str(tmp_path / "given"))
    save_existing(str(tmp_path / "given"), tmp_path / "copy")
    read = AutoTokenizer.from_pretrained(tmp_path / "copy")
    assert read("a")["input_ids"] == [0, 5, 2]
    pair = read("a", "b b", return_token_type_ids=True, return_offsets_mapping=True)
    assert pair["input_ids"] == [0, 5, 2, 6, 8, 2]
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1, 1]
    assert pair["offset_mapping"][3:5] == [(0, 1), (2, 3)]


SPECIAL_TEXTS = ["fill the [MASK] here", "[SEP]", "[CLS] [MASK][SEP] and [PAD]", "an [UNK] word"]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "character", "byte"])
@pytest.mark.parametrize("splitting", ["auto", "whitespace", "none", "chunks 5", "chunks 6"])
def test_special_tokens_in_text_are_text(kind: str, splitting: str, tmp_path: Path) -> None:
    """In `prepare`, and where a model reads texts."""
    options = asked(kind, splitting, min_frequency=2)
    trained = train(SPECIAL_TEXTS * 50, options)
    save_trained(trained, tmp_path / "t", options)
    encode = TextToIds(trained.to_str(), unk=1)
    reader = reading_text(load_tokenizer(tmp_path / "t"))
    for text in SPECIAL_TEXTS:
        _, ids, unknown = encode([text])
        assert ids.min() >= 5
        assert not unknown.any()
        assert reader(text)["input_ids"] == [2, *ids.tolist(), 3]
        spelled = trained.decode(ids.tolist(), skip_special_tokens=False)
        assert spelled.replace(" ", "") == text.replace(" ", "")


def test_a_class_with_a_frame_of_its_own(tmp_path: Path) -> None:
    """XLNet's puts [CLS] behind, whatever tokenizer.json says: a plain class reads the copy."""
    names = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "\u2581a", "\u2581b")
    XLNetTokenizer(vocab=[(name, -1.0) for name in names], unk_id=1).save_pretrained(
        str(tmp_path / "given")
    )
    assert AutoTokenizer.from_pretrained(tmp_path / "given")("a b")["input_ids"] == [5, 6, 3, 2]
    save_existing(str(tmp_path / "given"), tmp_path / "copy")
    assert AutoTokenizer.from_pretrained(tmp_path / "copy")("a b")["input_ids"] == [2, 5, 6, 3]
