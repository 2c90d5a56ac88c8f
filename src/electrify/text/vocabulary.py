"""Training a tokenizer, deterministically: the same documents give the same file, whatever the
order of hash maps and the number of threads.

Of the trainers of the tokenizers library only BPE (byte-level) is deterministic. WordPiece numbers
the pieces `##c` in the order in which a hash map yields them, and later ties follow those numbers:
naming every `##c` beforehand, sorted, as a "special token" fixes the numbers; the model is then
built again with the true special tokens only. For Unigram see `canonical_pieces`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import UserError
from ..progress import Progress, say
from .feeding import batches, feed, with_ends

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# BERT's vocabulary knows a thousand characters; with a small vocabulary fewer, so that at most one
# eighth of it is single characters (c and ##c).
MAX_ALPHABET = 1000
ALPHABET_SHARE = 16
# Unigram training goes about 70 times through all distinct words (two rounds of expectation and one
# of pruning, each of which drops a quarter of the pieces), at 2 us a character: no matter in a
# language with spaces, where words repeat, but 100 s for .7 MB of molecules, where none does. 128
# characters a piece show each some dozens of times. Judged by the first million characters; of
# English they hold 16 % distinct ones.
UNIGRAM_CHARACTERS = 128
UNREPEATED = 0.75
_JUDGED = 1_000_000


class Characters:
    """How often each character occurs."""

    def __init__(self) -> None:
        self._counts = np.zeros(0x110000, np.int64)

    def add(self, text: str) -> None:
        """A call costs as much as a million characters do: texts are joined before."""
        self._counts += np.bincount(
            np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=0x110000
        )

    def items(self) -> list[tuple[str, int]]:
        return [(chr(c), int(self._counts[c])) for c in np.flatnonzero(self._counts)]


def train(
    texts: Iterable[str],
    *,
    kind: str,
    vocab_size: int,
    lowercase: bool,
    strip_accents: bool,
    min_frequency: int,
) -> Any:
    """A `tokenizers.Tokenizer` of kind wordpiece, bpe or unigram with the special tokens [PAD]
    [UNK] [CLS] [SEP] [MASK] = 0..4.

    `texts` are let go one by one as they are read for the last time. Raises UserError where the
    texts are too few for a vocabulary, or min_frequency too high for them.
    """
    from tokenizers import processors

    make = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}[kind]
    tokenizer = make(
        [with_ends(text) for text in texts], vocab_size, lowercase, strip_accents, min_frequency
    )
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


def _megabytes(texts: list[str]) -> float:
    return sum(map(len, texts)) / 1e6


def _wordpiece(
    texts: list[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int
) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    def shell(model: Any) -> Any:
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

    draft = shell(models.WordPiece(unk_token="[UNK]"))
    starts, continues = _alphabet(
        draft,
        texts,
        limit=min(MAX_ALPHABET, vocab_size // ALPHABET_SHARE),
        least=max(min_frequency, 1),
    )
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
        draft, _emptied(texts), trainer, megabytes=_megabytes(texts), then="joining pieces of words"
    )
    return shell(
        models.WordPiece(
            draft.get_vocab(),
            unk_token="[UNK]",
            max_input_chars_per_word=100,
            continuing_subword_prefix="##",
        )
    )


def _alphabet(
    tokenizer: Any, texts: list[str], *, limit: int, least: int
) -> tuple[list[str], list[str]]:
    """Sorted characters that may begin a piece, and those that may also continue a word: the
    `limit` most frequent after normalisation."""
    raw = Characters()
    with Progress(_megabytes(texts), title="counting characters", unit="MB") as bar:
        for batch in batches(texts):
            joined = "".join(batch)
            raw.add(joined)
            bar.advance(len(joined) / 1e6)
    counts: dict[str, int] = {}
    for character, n in raw.items():
        # Normalisation and splitting look at one character at a time, so this is exact without
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


def _emptied(texts: list[str]) -> Iterator[str]:
    """The texts in order, each let go once it was read: the trainer keeps words, not texts."""
    texts.reverse()
    while texts:
        yield texts.pop()


def _normalizer(
    lowercase: bool, strip_accents: bool, *, compose: Any, extra: tuple[Any, ...] = ()
) -> Any:
    from tokenizers import normalizers

    steps = [compose()]
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *extra])


def _bpe(
    texts: list[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int
) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    if vocab_size < len(SPECIALS) + 256:
        raise UserError(
            f"byte-level BPE needs a vocab_size of at least {len(SPECIALS) + 256} (the bytes and "
            f"special tokens), not {vocab_size}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = _normalizer(lowercase, strip_accents, compose=normalizers.NFC)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=alphabet,
    )
    feed(
        tokenizer,
        _emptied(texts),
        trainer,
        megabytes=_megabytes(texts),
        then="joining pieces of words",
    )
    return tokenizer


def _unigram(
    texts: list[str], vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int
) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = _normalizer(
        lowercase, strip_accents, compose=normalizers.NFKC, extra=(spaces,)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=list(SPECIALS), unk_token="[UNK]"
    )
    texts = enough_for_unigram(texts, vocab_size)
    feed(
        tokenizer,
        _emptied(texts),
        trainer,
        megabytes=_megabytes(texts),
        then="weighing pieces of words",
    )
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokenizer.model = models.Unigram(
        canonical_pieces([(piece, score) for piece, score in pieces]),
        unk_id=SPECIALS.index("[UNK]"),
    )
    return tokenizer


def enough_for_unigram(texts: list[str], vocab_size: int) -> list[str]:
    """Where hardly a word occurs twice, the first texts that are enough for so many pieces (see
    UNIGRAM_CHARACTERS), and of the others those with a character that was not seen before; else
    all.
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
        f"hardly a word of this text occurs twice: {_megabytes(kept):.2g} MB of it weigh the "
        f"pieces of a unigram vocabulary of {vocab_size}"
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
    """The pieces and scores of a Unigram model without the traces of the trainer's hash maps.

    Two trainings give the same pieces, but sums of floats in another order (1e-14 apart), and
    characters that did not earn a place get the lowest score plus 0.0001, 0.0002, ... in the order
    of a hash map. So scores are rounded, and those of such characters are dealt out by the
    alphabet.
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
