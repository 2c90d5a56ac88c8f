"""Training a Unigram vocabulary, deterministically (see `canonical_pieces`) and in bounded time
(see unrepeated.py)."""

from __future__ import annotations

import json
from typing import Any

from ..errors import UserError
from .feeding import emptied, feed, in_megabytes
from .splitting import Splitting, windows
from .trainable import SPECIALS, Wanted, normalizer_of
from .unrepeated import enough


def unigram(texts: list[str], wanted: Wanted) -> Any:
    from tokenizers import models, trainers

    draft = _around(models.Unigram(), wanted)
    vocab_size = wanted.vocab_size
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=list(SPECIALS), unk_token="[UNK]"
    )
    _learn(draft, enough(texts, vocab_size), trainer, vocab_size)
    pieces = json.loads(draft.to_str())["model"]["vocab"]
    # Not the draft with another model: its special tokens have other ids if the trainer learnt a
    # piece of the same name from a text that mentions one.
    return _around(
        models.Unigram(
            canonical_pieces([(piece, score) for piece, score in pieces]),
            unk_id=SPECIALS.index("[UNK]"),
        ),
        wanted,
    )


def _around(model: Any, wanted: Wanted) -> Any:
    """A tokenizer with this model."""
    from tokenizers import Regex, Tokenizer, decoders, normalizers

    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizer_of(wanted, compose=normalizers.NFKC, extra=(spaces,))
    tokenizer.pre_tokenizer = _split(wanted.splitting)
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return tokenizer


def _split(splitting: Splitting) -> Any:
    from tokenizers import pre_tokenizers

    words = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="always", split=splitting.window is None
    )
    if splitting.window is None:
        return words
    return pre_tokenizers.Sequence([words, windows(splitting.window)])


def _learn(tokenizer: Any, texts: list[str], trainer: Any, vocab_size: int) -> None:
    """Raises UserError if the vocabulary is too small for the characters of the texts."""
    try:
        feed(
            tokenizer,
            emptied(texts),
            trainer,
            megabytes=in_megabytes(texts),
            then="weighing pieces of words",
        )
    except Exception as e:  # the library has no class of its own for it
        if "not large enough to contain all chars" not in str(e):
            raise
        raise UserError(
            f"vocab_size {vocab_size} is too small for the characters of this text, all of which a "
            "unigram vocabulary holds; choose a larger one, or tokenizer bpe, character or byte"
        ) from e


def canonical_pieces(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The pieces and scores of a Unigram model, made independent of the trainer's hash maps.

    Two trainings give the same pieces, but add floats in different orders (results differ by
    1e-14), and characters that did not earn a place of their own get the lowest score plus 0.0001,
    0.0002, ... in the order of a hash map. So scores are rounded, and those of such characters are
    assigned in alphabetical order.
    """
    free = [(piece, score) for piece, score in pieces if piece not in SPECIALS]
    single = sum(len(piece) == 1 for piece, _ in free)
    least = min((score for _, score in free), default=0.0)
    late = {
        piece: score
        for piece, score in free
        if len(piece) == 1 and score - least < 1e-4 * single + 1e-6
    }
    dealt = dict(zip(sorted(late), sorted(late.values(), reverse=True), strict=True))
    rounded = [(piece, round(dealt.get(piece, score), 4)) for piece, score in free]
    return [(special, 0.0) for special in SPECIALS] + sorted(
        rounded, key=lambda pair: (-pair[1], pair[0])
    )
