"""Training a tokenizer, deterministically: the same documents give the same file, whatever the order of hash maps and the number of threads.

Of the trainers of the tokenizers library only BPE (byte-level) is deterministic. WordPiece numbers the pieces `##c` in the order in which a hash map
yields them, and later ties follow those numbers: naming every `##c` beforehand, sorted, as a "special token" fixes the numbers; the model is then
built again with the true special tokens only. For Unigram see `canonical_pieces`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import UserError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# BERT's vocabulary knows a thousand characters; with a small vocabulary fewer, so that at most one eighth of it is single characters (c and ##c).
MAX_ALPHABET, ALPHABET_SHARE = 1000, 16
# The library's merges take the square of a word's length: five megabytes without a space would take days, and teach nothing.
LONGEST_WORD = 1000
_ENDLESS = re.compile(rf"(?<!\S)\S{{{LONGEST_WORD + 1},}}")


class Characters:
    """How often each character occurs."""

    def __init__(self) -> None:
        self._counts = np.zeros(0x110000, np.int64)

    def add(self, text: str) -> None:
        self._counts += np.bincount(np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=0x110000)

    def items(self) -> list[tuple[str, int]]:
        return [(chr(c), int(self._counts[c])) for c in np.flatnonzero(self._counts)]


def train(texts: Iterable[str], *, kind: str, vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int) -> Any:
    """A `tokenizers.Tokenizer` of kind wordpiece, bpe or unigram with the special tokens [PAD] [UNK] [CLS] [SEP] [MASK] = 0..4. Reads `texts` once.

    Raises UserError where the texts are too few for a vocabulary.
    """
    from tokenizers import processors

    make = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}[kind]
    tokenizer = make(map(_with_ends, texts), vocab_size, lowercase, strip_accents, min_frequency)
    tokenizer.add_special_tokens(list(SPECIALS))
    if [tokenizer.token_to_id(t) for t in SPECIALS] != list(range(5)):
        raise UserError(f"no vocabulary could be trained with vocab_size {vocab_size}: the text holds too little")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def _with_ends(text: str) -> str:
    """The text with a space after every LONGEST_WORD characters that have none."""
    return _ENDLESS.sub(lambda word: " ".join(word[0][i : i + LONGEST_WORD] for i in range(0, len(word[0]), LONGEST_WORD)), text)


def _wordpiece(texts: Iterable[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    def shell(model: Any) -> Any:
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix="##")
        return tokenizer

    texts = list(texts)
    draft = shell(models.WordPiece(unk_token="[UNK]"))
    starts, continues = _alphabet(draft, texts, limit=min(MAX_ALPHABET, vocab_size // ALPHABET_SHARE), least=max(min_frequency, 1))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=[*SPECIALS, *(f"##{c}" for c in continues)],
        initial_alphabet=starts,
        limit_alphabet=len(starts),
        continuing_subword_prefix="##",
    )
    draft.train_from_iterator(_emptied(texts), trainer)
    return shell(models.WordPiece(draft.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100, continuing_subword_prefix="##"))


def _alphabet(tokenizer: Any, texts: list[str], *, limit: int, least: int) -> tuple[list[str], list[str]]:
    """Sorted characters that may begin a piece, and those that may also continue a word: the `limit` most frequent after normalisation."""
    raw = Characters()
    for text in texts:
        raw.add(text)
    counts: dict[str, int] = {}
    for character, n in raw.items():
        # Normalisation and splitting look at one character at a time, so this is exact without normalising the whole text.
        for c in tokenizer.normalizer.normalize_str(character):
            counts[c] = counts.get(c, 0) + n
    letters = sorted((-n, c) for c, n in counts.items() if n >= least and not c.isspace())
    kept = sorted(c for _, c in letters[:limit])
    joins = [c for c in kept if len(tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(f"a{c}a"))) == 1]
    return kept, joins


def _emptied(texts: list[str]) -> Iterable[str]:
    """The texts in order, each let go once it was read: the trainer keeps words, not texts."""
    texts.reverse()
    while texts:
        yield texts.pop()


def _normalizer(lowercase: bool, strip_accents: bool, *, compose: Any, extra: tuple[Any, ...] = ()) -> Any:
    from tokenizers import normalizers

    steps = [compose()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *extra])


def _bpe(texts: Iterable[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    if vocab_size < len(SPECIALS) + 256:
        raise UserError(f"byte-level BPE needs a vocab_size of at least {len(SPECIALS) + 256} (the bytes and special tokens), not {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(lowercase, strip_accents, compose=normalizers.NFC)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, show_progress=False, special_tokens=list(SPECIALS), initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _unigram(texts: Iterable[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = _normalizer(lowercase, strip_accents, compose=normalizers.NFKC, extra=(spaces,))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=vocab_size, show_progress=False, special_tokens=list(SPECIALS), unk_token="[UNK]")
    tokenizer.train_from_iterator(texts, trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokenizer.model = models.Unigram(canonical_pieces([(piece, score) for piece, score in pieces]), unk_id=SPECIALS.index("[UNK]"))
    return tokenizer


def canonical_pieces(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The pieces and scores of a Unigram model without the traces of the trainer's hash maps.

    Two trainings give the same pieces, but sums of floats in another order (1e-14 apart), and characters that did not earn a place get the lowest
    score plus 0.0001, 0.0002, ... in the order of a hash map. So scores are rounded, and those of such characters are dealt out by the alphabet.
    """
    free = [(piece, score) for piece, score in pieces if piece not in SPECIALS]
    single = sum(len(piece) == 1 for piece, _ in free)
    least = min((score for _, score in free), default=0.0)
    late = {piece: score for piece, score in free if len(piece) == 1 and score - least < 1e-4 * single + 1e-6}
    dealt = dict(zip(sorted(late), sorted(late.values(), reverse=True), strict=True))
    rounded = [(piece, round(dealt.get(piece, score), 4)) for piece, score in free]
    return [(special, 0.0) for special in SPECIALS] + sorted(rounded, key=lambda pair: (-pair[1], pair[0]))
