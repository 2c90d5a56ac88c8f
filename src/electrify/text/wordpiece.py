"""Training a WordPiece vocabulary, deterministically.

The trainer of the tokenizers library numbers the pieces `##c` in the order in which a hash map
yields them, and breaks later ties by these numbers. To fix the numbers, every `##c` is passed
beforehand, sorted, as a "special token"; afterwards the model is built again with only the true
special tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UserError
from ..progress import Progress
from .feeding import batches, emptied, feed, in_megabytes
from .trainable import SPECIALS

# BERT's vocabulary has a thousand characters. A small vocabulary has fewer, so that at most one
# eighth of it are single characters (c and ##c).
MAX_ALPHABET = 1000
ALPHABET_SHARE = 16
SHORT_MB = 20
"""Millions of characters; a text up to this length is kept until the vocabulary is full."""


class Characters:
    """How often each character occurs."""

    def __init__(self) -> None:
        self._counts = np.zeros(0x110000, np.int64)

    def add(self, text: str) -> None:
        """Adds a text. A call costs as much as a million characters do, so join texts before."""
        self._counts += np.bincount(
            np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=0x110000
        )

    def items(self) -> list[tuple[str, int]]:
        return [(chr(c), int(self._counts[c])) for c in np.flatnonzero(self._counts)]


def wordpiece(
    texts: list[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int
) -> Any:
    from tokenizers import models

    limit = min(MAX_ALPHABET, vocab_size // ALPHABET_SHARE)
    again = list(texts) if in_megabytes(texts) <= SHORT_MB else []
    draft, full = _trained(texts, vocab_size, lowercase, strip_accents, min_frequency, limit=limit)
    # A short text may leave entries free: then they are for characters that were left out.
    while again and full and draft.get_vocab_size() < vocab_size and limit < vocab_size // 4:
        limit = min(2 * limit, vocab_size // 4)
        draft, full = _trained(
            list(again), vocab_size, lowercase, strip_accents, min_frequency, limit=limit
        )
    model = models.WordPiece(
        draft.get_vocab(),
        unk_token="[UNK]",
        max_input_chars_per_word=100,
        continuing_subword_prefix="##",
    )
    return _like_bert(model, lowercase, strip_accents)


def _trained(
    texts: list[str],
    vocab_size: int,
    lowercase: bool,
    strip_accents: bool,
    min_frequency: int,
    *,
    limit: int,
) -> tuple[Any, bool]:
    """A trained tokenizer, and whether characters were left out, beyond `limit`."""
    from tokenizers import models, trainers

    draft = _like_bert(models.WordPiece(unk_token="[UNK]"), lowercase, strip_accents)
    starts, continues = _alphabet(draft, texts, limit=limit, least=max(min_frequency, 1))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=[*SPECIALS, *(f"##{c}" for c in continues)],
        initial_alphabet=starts,
        limit_alphabet=len(starts),
        continuing_subword_prefix="##",
    )
    feed(
        draft,
        emptied(texts),
        trainer,
        megabytes=in_megabytes(texts),
        then="joining pieces of words",
    )
    return draft, len(starts) == limit


def _like_bert(model: Any, lowercase: bool, strip_accents: bool) -> Any:
    """A tokenizer that normalises and splits text as BERT's does."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _alphabet(
    tokenizer: Any, texts: list[str], *, limit: int, least: int
) -> tuple[list[str], list[str]]:
    """Sorted characters that may begin a piece, and those that may also continue a word: the
    `limit` most frequent after normalisation."""
    raw = Characters()
    with Progress(in_megabytes(texts), title="counting characters", unit="MB") as bar:
        for batch in batches(texts):
            joined = "".join(batch)
            raw.add(joined)
            bar.advance(len(joined) / 1e6)
    counts: dict[str, int] = {}
    for character, n in raw.items():
        # Normalisation and splitting treat one character at a time, so this is exact without
        # normalising the whole text.
        for c in tokenizer.normalizer.normalize_str(character):
            counts[c] = counts.get(c, 0) + n
    letters = sorted((-n, c) for c, n in counts.items() if n >= least and not c.isspace())
    if counts and not letters and least > 1:
        often = max((n for c, n in counts.items() if not c.isspace()), default=0)
        if often:
            times = "once" if often == 1 else f"{often} times"
            raise UserError(
                f"min_frequency {least} leaves nothing of the text: its most frequent character "
                f"occurs {times}, "
                "where equal documents count as one; choose a lower one"
            )
    kept = sorted(c for _, c in letters[:limit])
    joins = [
        c
        for c in kept
        if len(
            tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(f"a{c}a"))
        )
        == 1
    ]
    return kept, joins
