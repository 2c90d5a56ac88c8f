"""Training a tokenizer, deterministically: the same documents give the same file, whatever the
order of hash maps and the number of threads.

The tokenizers library has one deterministic trainer, that of byte-level BPE. wordpiece.py and
unigram.py say how the others are made deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import UserError
from .characters import byte, character
from .feeding import emptied, feed, in_megabytes, with_ends
from .splitting import Splitting, bytes_split
from .trainable import SPECIALS, Wanted, normalizer_of
from .unigram import unigram
from .unrepeated import enough
from .wordpiece import wordpiece


def train(
    texts: Iterable[str],
    *,
    kind: str,
    vocab_size: int,
    lowercase: bool,
    strip_accents: bool,
    min_frequency: int,
    splitting: Splitting | None = None,
) -> Any:
    """A `tokenizers.Tokenizer` of kind wordpiece, bpe, unigram, character or byte with the special
    tokens [PAD] [UNK] [CLS] [SEP] [MASK] = 0..4.

    splitting: where pieces may not cross; by default as is usual for the kind.

    Each of the `texts` is freed when it has been read for the last time. Raises UserError if there
    are too few texts for a vocabulary, or if min_frequency is too high for them.
    """
    make = _KINDS[kind]
    splitting = splitting or Splitting()
    # A learnt vocabulary must not be trained on endless words; windows are short, and in a
    # vocabulary of characters the longest word is one character.
    whole = splitting.window is not None or kind in ("character", "byte")
    given = list(texts) if whole else [with_ends(text) for text in texts]
    wanted = Wanted(
        vocab_size=vocab_size,
        lowercase=lowercase,
        strip_accents=strip_accents,
        min_frequency=min_frequency,
        splitting=splitting,
    )
    return _finished(make(given, wanted), vocab_size)


def _finished(tokenizer: Any, vocab_size: int) -> Any:
    """Adds the special tokens, and puts them around texts as BERT does. Raises UserError if there
    was too little text for a vocabulary."""
    from tokenizers import processors

    tokenizer.add_special_tokens(list(SPECIALS))
    if [tokenizer.token_to_id(t) for t in SPECIALS] != list(range(5)):
        raise UserError(
            f"no vocabulary could be trained with vocab_size {vocab_size}: the text holds too "
            "little"
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def _bpe(texts: list[str], wanted: Wanted) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    if wanted.vocab_size < len(SPECIALS) + 256:
        raise UserError(
            f"byte-level BPE needs a vocab_size of at least {len(SPECIALS) + 256} (the bytes and "
            f"special tokens), not {wanted.vocab_size}; tokenizer byte has just these"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer_of(wanted, compose=normalizers.NFC)
    tokenizer.pre_tokenizer = bytes_split(wanted.splitting)
    tokenizer.decoder = decoders.ByteLevel()
    if wanted.splitting.window is not None:
        texts = enough(texts, wanted.vocab_size)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=wanted.vocab_size,
        min_frequency=wanted.min_frequency,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=alphabet,
    )
    feed(
        tokenizer,
        emptied(texts),
        trainer,
        megabytes=in_megabytes(texts),
        then="joining pieces of words",
    )
    return tokenizer


_KINDS: dict[str, Callable[[list[str], Wanted], Any]] = {
    "wordpiece": wordpiece,
    "bpe": _bpe,
    "unigram": unigram,
    "character": character,
    "byte": byte,
}
