"""Training a Unigram vocabulary, deterministically (see `canonical_pieces`) and in bounded time
(see `enough_for_unigram`)."""

from __future__ import annotations

import json
from typing import Any

from ..errors import UserError
from ..progress import say
from .feeding import emptied, feed, in_megabytes
from .splitting import Splitting, windows
from .trainable import SPECIALS, normalizer_of

# Unigram training passes about 70 times over all distinct words (two rounds of expectation and one
# of pruning, each of which drops a quarter of the pieces), at 2 us per character. This does not
# matter in a language with spaces, where words repeat, but it takes 100 s for .7 MB of molecules,
# where no word does. With 128 characters per piece, each piece is seen some dozens of times. The
# first million characters decide; in English, 16 % of them are distinct.
UNIGRAM_CHARACTERS = 128
UNREPEATED = 0.75
_JUDGED = 1_000_000


def unigram(
    texts: list[str],
    vocab_size: int,
    lowercase: bool,
    strip_accents: bool,
    min_frequency: int,
    splitting: Splitting,
) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizer_of(
        lowercase, strip_accents, compose=normalizers.NFKC, extra=(spaces,)
    )
    tokenizer.pre_tokenizer = _split(splitting)
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=list(SPECIALS), unk_token="[UNK]"
    )
    texts = enough_for_unigram(texts, vocab_size)
    _learn(tokenizer, texts, trainer, vocab_size)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokenizer.model = models.Unigram(
        canonical_pieces([(piece, score) for piece, score in pieces]),
        unk_id=SPECIALS.index("[UNK]"),
    )
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


def enough_for_unigram(texts: list[str], vocab_size: int) -> list[str]:
    """If hardly any word occurs twice: the first texts that suffice for so many pieces (see
    UNIGRAM_CHARACTERS), and of the others only those with a new character. Otherwise all texts.
    """
    most = max(UNIGRAM_CHARACTERS * vocab_size, 1 << 16)
    size = sum(map(len, texts))
    if size <= most or not _unrepeated(texts):
        return texts
    kept: list[str] = []
    seen: set[str] = set()
    for text in texts:
        if most > 0 or not seen.issuperset(text):
            kept.append(text)
            seen.update(text)
            most -= len(text)
    say(
        f"hardly a word of this text occurs twice: {in_megabytes(kept):.2g} MB of it weigh the "
        f"pieces of a vocabulary of {vocab_size}"
    )
    return kept


def _unrepeated(texts: list[str]) -> bool:
    words: set[str] = set()
    read = 0
    for text in texts:
        found = text.split()
        read += sum(map(len, found))
        words.update(found)
        if read > _JUDGED:
            break
    return sum(map(len, words)) > UNREPEATED * read


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
