"""Training a WordPiece vocabulary, deterministically.

The trainer of the tokenizers library numbers the pieces `##c` in the order in which a hash map
yields them, and breaks later ties by these numbers. To fix the numbers, every `##c` is passed
beforehand, sorted, as a "special token"; afterwards the model is built again with only the true
special tokens.

Where text has no words (Splitting.window), pieces have no mark of a continued word, and white space
is a character like any other: then a text is its pieces laid end to end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .alphabet import capacity, fitting, ranked
from .feeding import emptied, feed, in_megabytes
from .splitting import WINDOW, windows
from .trainable import SPECIALS, Wanted

SHORT_MB = 20
"""Millions of characters; a text up to this length is kept until the vocabulary is full."""
MAX_WORD = 100  # characters; BERT makes one [UNK] of a longer word
# Above this share of the characters in words that long, words are cut into windows.
LONG_SHARE = 0.01
_JUDGED = 1_000_000
# Characters that the library takes at once, more than decide; it needs a hundred bytes and more for
# each of them.
_AT_ONCE = 1 << 14
# Normalising makes at most four characters of one.
_MAY_BE_LONG = re.compile(rf"(?<!\S)\S{{{MAX_WORD // 4 + 1},}}")
# BERT sets ideographs apart, but corpora of such lines have always had windows.
_LETTERS = re.compile(rf"[^\W_]{{{MAX_WORD + 1},}}")
_LONG = re.compile(rf"\S{{{MAX_WORD + 1},}}")


@dataclass(frozen=True)
class Style:
    """How a text is normalised and split before its words are cut into pieces."""

    wanted: Wanted
    long_words: bool
    """words are cut into windows, for many are longer than WordPiece takes"""

    @property
    def prefix(self) -> str:
        return "" if self.wanted.splitting.window else "##"

    def around(self, model: Any) -> Any:
        """A tokenizer with this model; `auto` without long words is BERT's."""
        from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

        tokenizer = Tokenizer(model)
        splitting = self.wanted.splitting
        window = splitting.window
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=window is None,
            strip_accents=self.wanted.strip_accents,
            lowercase=self.wanted.lowercase,
        )
        if window is not None:
            tokenizer.pre_tokenizer = windows(window)
            tokenizer.decoder = decoders.Fuse()
            return tokenizer
        spaced = splitting.kind == "whitespace"
        words = pre_tokenizers.WhitespaceSplit() if spaced else pre_tokenizers.BertPreTokenizer()
        tokenizer.pre_tokenizer = (
            pre_tokenizers.Sequence([words, windows(WINDOW)]) if self.long_words else words
        )
        tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=not spaced)
        return tokenizer


def wordpiece(texts: list[str], wanted: Wanted) -> Any:
    from tokenizers import models

    spaces = wanted.splitting.window is not None
    style = Style(wanted, long_words=False)
    draft = style.around(models.WordPiece(unk_token="[UNK]"))
    if not spaces and has_long_words(texts, draft):
        style = Style(wanted, long_words=True)
        draft = style.around(models.WordPiece(unk_token="[UNK]"))
    found = ranked(draft.normalizer, texts, least=wanted.least, spaces=spaces)
    letters = [c for c, _ in found]
    joining = set() if spaces else {c for c in letters if _joins(draft, c)}
    vocab_size = wanted.vocab_size
    limit = capacity(found, vocab_size, joins=joining.__contains__)
    again = list(texts) if in_megabytes(texts) <= SHORT_MB else []
    draft = _trained(style, texts, letters[:limit], joining)
    # A short text may leave entries free: these then go to characters that were left out.
    while again and limit < len(found) and (free := vocab_size - draft.get_vocab_size()) > 0:
        quarter = vocab_size // 4
        more = (
            min(limit, quarter - limit)
            if limit < quarter
            else fitting(found[limit:], free, joins=joining.__contains__)
        )
        if not more:
            break
        limit += more
        draft = _trained(style, list(again), letters[:limit], joining)
    return style.around(
        models.WordPiece(
            draft.get_vocab(),
            unk_token="[UNK]",
            max_input_chars_per_word=MAX_WORD,
            continuing_subword_prefix=style.prefix,
        )
    )


def has_long_words(texts: list[str], tokenizer: Any) -> bool:
    """Whether words that are longer than WordPiece takes hold more than LONG_SHARE of the first
    million characters.

    tokenizer: it normalises a text and splits it into words. Marks and signs may be part of them,
    and normalising takes marks away and takes letters apart.
    """
    read = 0
    found = 0
    for text in texts:
        judged = text[: _JUDGED - read]
        read += len(judged)
        for part in _MAY_BE_LONG.finditer(judged):
            found += _in_long_words(part[0], tokenizer)
            if found > LONG_SHARE * _JUDGED:
                return True
        if read >= _JUDGED:
            break
    return found > LONG_SHARE * read


def _in_long_words(part: str, tokenizer: Any) -> int:
    """How many characters of a part of a text without white space are in words of more than
    MAX_WORD; no more are counted than decide."""
    enough = LONG_SHARE * _JUDGED
    found = 0
    for start in range(0, len(part), _AT_ONCE):
        piece = part[start : start + _AT_ONCE]
        letters = sum(len(run) for run in _LETTERS.findall(piece))
        found += letters if letters > enough else max(letters, _long(piece, tokenizer))
        if found > enough:
            break
    return found


def _long(part: str, tokenizer: Any) -> int:
    """How many characters are in words that the tokenizer makes of a part of a text and that have
    more than MAX_WORD."""
    normal = tokenizer.normalizer.normalize_str(part)
    # Words end at white space at the latest, which ideographs are set apart with.
    runs = _LONG.findall(normal)
    words = (word for run in runs for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(run))
    return sum(len(word) for word in words if len(word) > MAX_WORD)


def _trained(
    style: Style,
    texts: list[str],
    letters: list[str],
    joining: set[str],
) -> Any:
    """A tokenizer trained on the texts, which are freed, with these characters."""
    from tokenizers import models, trainers

    draft = style.around(models.WordPiece(unk_token="[UNK]"))
    starts = sorted(letters)
    trainer = trainers.WordPieceTrainer(
        vocab_size=style.wanted.vocab_size,
        min_frequency=style.wanted.min_frequency,
        show_progress=False,
        special_tokens=[*SPECIALS, *(f"##{c}" for c in starts if c in joining)],
        initial_alphabet=starts,
        limit_alphabet=len(starts),
        continuing_subword_prefix=style.prefix,
    )
    feed(
        draft,
        emptied(texts),
        trainer,
        megabytes=in_megabytes(texts),
        then="joining pieces of words",
    )
    return draft


def _joins(tokenizer: Any, character: str) -> bool:
    """Whether a character may continue a word."""
    normal = tokenizer.normalizer.normalize_str(f"a{character}a")
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(normal)) == 1
