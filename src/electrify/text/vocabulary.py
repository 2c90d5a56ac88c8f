"""Trains tokenizers deterministically: the same documents give the same file, whatever the order of
hash maps and the number of threads.

The tokenizers library has one deterministic trainer, that of byte-level BPE. `_wordpiece` and
`_unigram` say how the others are made deterministic. Where a text has no words (`window_of`),
white space is a character like any other, and a text is its pieces laid end to end.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from ..errors import failing_as, need
from ..progress import Waiting
from .options import PrepareConfig
from .streams import gathered

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# WordPiece looks for its longest piece from the end of what it is given, so its time for a text
# without spaces grows with this length: at 64 it is a few dozen look-ups for each character.
WINDOW = 64
# A word with the space before it; white space before that, and other white space, by itself.
SPACED_WORDS = r" ?\S+|\s+(?!\S)|\s"
ONE_SPACE = r"\s"
_ANY = r"[\s\S]{1,"
# BERT's vocabulary has a thousand characters. A small vocabulary has fewer, so that at most one
# eighth of it is single characters (c and ##c) ...
MAX_ALPHABET = 1000
ALPHABET_SHARE = 16
# ... but only where the characters left out are rare, all together: in prose they are the odd sign
# of a foreign script. In molecules or proteins they would be letters of the language itself.
RARE = 1e-4
# Where the characters do not all fit, the share of them that is left out for the sake of pieces.
TOLERATED = 0.01
MAX_WORD = 100  # characters; BERT makes one [UNK] of a longer word
# Above this share of the characters in words that long, words are cut into windows.
LONG_SHARE = 0.01
JUDGED = 1_000_000  # characters from the start of the texts
# BERT sets ideographs apart, but corpora of such lines have always had windows.
_LETTERS = re.compile(rf"[^\W_]{{{MAX_WORD + 1},}}")
SHORT_MB = 20
"""Millions of characters. A text up to this length is read until the vocabulary is full."""
# The time of the library's merges grows with the square of a word's length: five megabytes without
# a space would take days, and teach nothing.
LONGEST_WORD = 1000
_ENDLESS = re.compile(rf"\S{{{LONGEST_WORD}}}(?=\S)")
# Characters and texts per batch: large enough to spread the cost of a batch over many short texts,
# but small compared with the sample.
BATCH_CHARACTERS = 1 << 20
BATCH_TEXTS = 1 << 13
# Unigram training passes about 70 times over all distinct words, at 2 us per character. This does
# not matter in a language with spaces, where words repeat (16 % of a million English characters
# are in distinct words), but takes 100 s for 0.7 MB of molecules. With 128 characters per piece,
# each piece is seen a few dozen times.
CHARACTERS = 128
UNREPEATED = 0.75


def train(texts: Iterable[str], options: PrepareConfig) -> Tokenizer:
    """A tokenizer with the special tokens [PAD] [UNK] [CLS] [SEP] [MASK] = 0..4.

    Raises UserError if there are too few texts for a vocabulary.
    """
    # Windows are short, and in a vocabulary of characters the longest word is one character.
    whole = window_of(options) is not None or options.tokenizer in ("character", "byte")
    given = list(texts) if whole else [with_ends(text) for text in texts]
    tokenizer = _KINDS[options.tokenizer](given, options)
    tokenizer.add_special_tokens(list(SPECIALS))
    fact = f"the text holds too little for a vocabulary with vocab_size {options.vocab_size}"
    need([tokenizer.token_to_id(t) for t in SPECIALS] == list(range(len(SPECIALS))), fact)
    tokenizer.post_processor = frame(("[CLS]", 2), ("[SEP]", 3))
    return tokenizer


def frame(first: tuple[str, int], last: tuple[str, int]) -> Any:
    """BERT's: a text between two tokens (name and id), the second text of a pair as segment 1."""
    single = [first[0], "$A:0", last[0]]
    pair = [*single, "$B:1", f"{last[0]}:1"]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[first, last])


def window_of(options: PrepareConfig) -> int | None:
    """The most characters of a piece for `none` and `chunks`, which look at nothing else; None for
    those that split at words."""
    return {"none": WINDOW, "chunks": options.chunk_length}.get(options.pre_tokenizer)


# ------------------------------------------------------------------ normalizers, pre-tokenizers


def _normalizer(options: PrepareConfig, compose: Any, *extra: Any) -> Any:
    """Composes characters first. What is not an accent is composed again afterwards: syllables of
    Hangul, and vowel signs of Bengali, Tamil and a few other scripts."""
    steps = [compose()]
    if options.accents_stripped:
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if options.lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *extra])


def at(pattern: str) -> Any:
    """A pre-tokenizer that sets apart what the pattern matches."""
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def windows(length: int) -> Any:
    """A pre-tokenizer that cuts what it is given every `length` characters."""
    return at(f"{_ANY}{length}}}")


def assembled(model: Any, normalizer: Any, splits: list[Any], decoder: Any) -> Any:
    """A tokenizer of these parts. splits: its pre-tokenizers, in their order."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splits[0] if len(splits) == 1 else pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoder
    return tokenizer


def steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer of a tokenizer.json, without its sequences."""
    if part:
        yield from [*part.get("pretokenizers", ()), *part.get("normalizers", ())] or [part]


def patterns(part: dict[str, Any] | None) -> set[str]:
    """The regular expressions at which a pre-tokenizer splits."""
    found = [s.get("pattern") for s in steps(part) if s.get("type") == "Split"]
    return {p["Regex"] for p in found if isinstance(p, dict) and isinstance(p.get("Regex"), str)}


def window_length(part: dict[str, Any] | None) -> int:
    """The most characters of the windows into which a pre-tokenizer cuts; 0 if it cuts none."""
    found = (p.removeprefix(_ANY).removesuffix("}") for p in patterns(part) if p.startswith(_ANY))
    return max((int(length) for length in found if length.isdecimal()), default=0)


# ------------------------------------------------------------------ feeding the library


def batches(texts: Iterable[str], characters: int = BATCH_CHARACTERS) -> Iterator[list[str]]:
    """The texts in order, in lists that hold about so many characters, or BATCH_TEXTS."""
    yield from gathered(texts, len, characters, BATCH_TEXTS)


def with_ends(text: str) -> str:
    """The text with a space inserted after every LONGEST_WORD characters without one."""
    return text if len(text) <= LONGEST_WORD else _ENDLESS.sub(r"\g<0> ", text)


def feed(
    tokenizer: Any, texts: list[str], trainer: Any, special: Iterable[str] = (), **how: Any
) -> None:
    """Trains on the texts. The library shows no progress itself. special: tokens behind those of
    every vocabulary."""
    made = trainer(show_progress=False, special_tokens=[*SPECIALS, *special], **how)
    with Waiting("training the vocabulary"):
        tokenizer.train_from_iterator(batches(texts), made)


def enough(texts: list[str], vocab_size: int) -> list[str]:
    """If hardly any word occurs twice: the first texts that suffice for this many pieces, and of
    the others only those with a new character. Otherwise all texts."""
    most = max(CHARACTERS * vocab_size, 1 << 16)
    if sum(map(len, texts)) <= most or not _unrepeated(texts):
        return texts
    kept: list[str] = []
    seen: set[str] = set()
    for text in texts:
        if most > 0 or not seen.issuperset(text):
            kept.append(text)
            seen.update(text)
            most -= len(text)
    return kept


def _unrepeated(texts: list[str]) -> bool:
    judged = next(gathered(texts, lambda text: len("".join(text.split())), JUDGED + 1), [])
    words = [word for text in judged for word in text.split()]
    return sum(map(len, set(words))) > UNREPEATED * sum(map(len, words))


# ------------------------------------------------------------------ characters


def _count(texts: list[str]) -> dict[str, int]:
    """How often each character occurs."""
    counts = np.zeros(0x110000, np.int64)
    for batch in batches(texts):
        # A call costs as much as a million characters do, so texts are joined.
        letters = np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32)
        counts += np.bincount(letters, minlength=len(counts))
    return {chr(c): int(counts[c]) for c in np.flatnonzero(counts)}


def _often(
    counts: dict[str, int], options: PrepareConfig, *, spaces: bool
) -> list[tuple[str, int]]:
    """(character, number) of those that occur min_frequency times, the most frequent first; white
    space too if `spaces`."""
    least = max(options.min_frequency, 1)
    letters = [(c, n) for c, n in counts.items() if n >= least and (spaces or not c.isspace())]
    return sorted(letters, key=lambda letter: (-letter[1], letter[0]))


def capacity(numbers_L: np.ndarray, places_L: np.ndarray, vocab_size: int) -> int:
    """How many of the most frequent characters a vocabulary takes: a sixteenth of its size; but all
    of them, or all but rare ones, if those left out would not be rare and the pieces fit; and if
    they do not fit, as many as leave out no more than TOLERATED.

    numbers_L: how often each of L characters occurs. places_L: two for a character that may
    continue a word, else one.
    """
    usual = max(1, min(MAX_ALPHABET, vocab_size // ALPHABET_SHARE))
    rare = RARE * numbers_L.sum()
    if numbers_L[usual:].sum() <= rare:
        return usual
    fit = _fitting(places_L, vocab_size - len(SPECIALS))
    if numbers_L[fit:].sum() <= rare:
        return fit
    known = (1 - TOLERATED) * numbers_L.sum()
    return max(usual, min(fit, int(np.searchsorted(np.cumsum(numbers_L), known)) + 1))


def _fitting(places_L: np.ndarray, free: int) -> int:
    """How many of the first characters fit into so many places."""
    return int(np.searchsorted(np.cumsum(places_L), free, side="right"))


def _word_pieces(vocabulary: dict[str, int], *, longest: int, prefix: str) -> Any:
    """A model that makes [UNK] of a word of more than `longest` characters."""
    how = {"max_input_chars_per_word": longest, "continuing_subword_prefix": prefix}
    return models.WordPiece(vocabulary, unk_token="[UNK]", **how)


def _numbered(pieces: list[str]) -> dict[str, int]:
    return {piece: i for i, piece in enumerate([*SPECIALS, *pieces])}


def _character(texts: list[str], options: PrepareConfig) -> Any:
    """A token for each character, white space included: the most frequent that fit. With `chunks`
    also the most frequent chunks (k-mers); a chunk that is not among them is its characters."""
    length = options.chunk_length
    normalizer = _normalizer(options, normalizers.NFC)
    normal = [normalizer.normalize_str(text) for text in texts]
    letters = _often(_count(normal), options, spaces=True)
    free = options.vocab_size - len(SPECIALS)
    kept = sorted(c for c, _ in letters[:free])
    if length is None:
        model = models.BPE(_numbered(kept), [], unk_token="[UNK]", fuse_unk=False)
        split = at(ONE_SPACE) if options.pre_tokenizer == "whitespace" else windows(1)
    else:
        starts = ((text, i) for text in normal for i in range(0, len(text) - length + 1, length))
        chunks = Counter(text[i : i + length] for text, i in starts)
        known = set(kept)
        ranks = sorted((-n, c) for c, n in chunks.items() if n >= max(options.min_frequency, 1))
        spelled = (c for _, c in ranks if known.issuperset(c) and c not in SPECIALS)
        kept += islice(spelled, free - len(kept))
        model = _word_pieces(_numbered(kept), longest=length, prefix="")
        split = windows(length)
    return assembled(model, normalizer, [split], decoders.Fuse())


# ------------------------------------------------------------------ bytes


def _around_bytes(model: Any, options: PrepareConfig) -> Any:
    """A byte-level tokenizer with this model."""
    kind, window = options.pre_tokenizer, window_of(options)
    splits = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "auto")]
    if kind != "auto":
        splits.insert(0, windows(window) if window else at(SPACED_WORDS))
    normalizer = _normalizer(options, normalizers.NFC)
    return assembled(model, normalizer, splits, decoders.ByteLevel())


def _byte(texts: list[str], options: PrepareConfig) -> Any:
    """A token for each of the 256 bytes, whatever the texts are."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _around_bytes(models.BPE(_numbered(alphabet), []), options)


def _bpe(texts: list[str], options: PrepareConfig) -> Any:
    least = len(SPECIALS) + 256
    fact = f"byte-level BPE needs a vocab_size of at least {least}, the bytes and special tokens"
    need(options.vocab_size >= least, fact, "tokenizer byte has just these")
    tokenizer = _around_bytes(models.BPE(), options)
    if window_of(options) is not None:
        texts = enough(texts, options.vocab_size)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    more: Any = {"initial_alphabet": alphabet, "min_frequency": options.min_frequency}
    feed(tokenizer, texts, trainers.BpeTrainer, vocab_size=options.vocab_size, **more)
    return tokenizer


# ------------------------------------------------------------------ WordPiece


def _wordpiece(texts: list[str], options: PrepareConfig) -> Any:
    """The library's trainer numbers the pieces `##c` in the order in which a hash map yields them,
    and breaks later ties by these numbers. To fix the numbers, every `##c` is passed beforehand,
    sorted, as a "special token"; afterwards the model is built again with only the true ones."""
    spaces = window_of(options) is not None
    prefix = "" if spaces else "##"  # of a piece that continues a word
    draft = bert_like(options)
    long_words = not spaces and has_long_words(texts, draft)
    counts: Counter[str] = Counter()
    # Exact, because BERT's normalizer treats one character at a time.
    for character, n in _count(texts).items():
        for c in draft.normalizer.normalize_str(character):
            counts[c] += n
    letters = _often(counts, options, spaces=spaces)
    draft = bert_like(options, long_words=long_words)
    joining = set() if spaces else {c for c, _ in letters if _joins(draft, c)}
    numbers_L = np.array([n for _, n in letters])
    places_L = np.array([1 + (c in joining) for c, _ in letters])
    vocab_size = options.vocab_size
    limit = capacity(numbers_L, places_L, vocab_size)

    def trained() -> Any:
        """The tokenizer, trained with so many characters."""
        starts = sorted(c for c, _ in letters[:limit])
        tokenizer = bert_like(options, long_words=long_words)
        feed(
            tokenizer,
            texts,
            trainers.WordPieceTrainer,
            [f"##{c}" for c in starts if c in joining],
            vocab_size=vocab_size,
            min_frequency=options.min_frequency,
            initial_alphabet=starts,
            limit_alphabet=len(starts),
            continuing_subword_prefix=prefix,
        )
        return tokenizer

    again = sum(map(len, texts)) <= SHORT_MB * 1e6
    draft = trained()
    # A short text may leave entries free: these then go to characters that were left out.
    while again and limit < len(letters) and (free := vocab_size - draft.get_vocab_size()) > 0:
        quarter = vocab_size // 4
        more = _fitting(places_L[limit:], free)
        if limit < quarter:
            more = min(limit, quarter - limit)
        if not more:
            break
        limit += more
        draft = trained()
    model = _word_pieces(draft.get_vocab(), longest=MAX_WORD, prefix=prefix)
    return bert_like(options, model, long_words=long_words)


def bert_like(options: PrepareConfig, model: Any = None, *, long_words: bool = False) -> Any:
    """A WordPiece tokenizer with this model; `auto` without long words is BERT's. long_words: words
    are cut into windows, because many are longer than WordPiece takes."""
    window = window_of(options)
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=window is None,
        strip_accents=options.accents_stripped,
        lowercase=options.lowercase,
    )
    model = model or models.WordPiece(unk_token="[UNK]")
    if window is not None:
        return assembled(model, normalizer, [windows(window)], decoders.Fuse())
    spaced = options.pre_tokenizer == "whitespace"
    words = pre_tokenizers.WhitespaceSplit() if spaced else pre_tokenizers.BertPreTokenizer()
    splits = [words, windows(WINDOW)] if long_words else [words]
    decoder = decoders.WordPiece(prefix="##", cleanup=not spaced)
    return assembled(model, normalizer, splits, decoder)


def has_long_words(texts: list[str], tokenizer: Tokenizer) -> bool:
    """Whether words that are longer than WordPiece takes hold more than LONG_SHARE of the first
    million characters. The tokenizer says what a word is: marks and signs may be part of it, and
    normalising takes marks away and takes letters apart."""
    read = found = 0
    for text in texts:
        judged = text[: JUDGED - read]
        read += len(judged)
        normal = tokenizer.normalizer.normalize_str(judged)
        words = (word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
        letters = sum(map(len, _LETTERS.findall(judged)))
        found += max(letters, sum(len(word) for word in words if len(word) > MAX_WORD))
        if read >= JUDGED:
            break
    return found > LONG_SHARE * read


def _joins(tokenizer: Any, character: str) -> bool:
    """Whether a character may continue a word."""
    normal = tokenizer.normalizer.normalize_str(f"a{character}a")
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(normal)) == 1


# ------------------------------------------------------------------ Unigram


def _unigram(texts: list[str], options: PrepareConfig) -> Any:
    """Deterministic by `canonical_pieces`, in bounded time by `enough`. Raises UserError if the
    vocabulary is too small for the characters of the texts."""
    draft = _around_unigram(models.Unigram(), options)
    size = options.vocab_size
    fact = "a unigram vocabulary holds all characters of a text"
    with failing_as(f"vocab_size {size} may be too small: {fact}"):
        feed(
            draft, enough(texts, size), trainers.UnigramTrainer, vocab_size=size, unk_token="[UNK]"
        )
    found = json.loads(draft.to_str())["model"]["vocab"]
    # Not the draft with another model: its special tokens have other ids if the trainer learnt a
    # piece of the same name from a text that mentions one.
    pieces = canonical_pieces([(piece, score) for piece, score in found])
    return _around_unigram(models.Unigram(pieces, unk_id=SPECIALS.index("[UNK]")), options)


def _around_unigram(model: Any, options: PrepareConfig) -> Any:
    """A tokenizer with this model."""
    window = window_of(options)
    mark: dict[str, Any] = {"replacement": "▁", "prepend_scheme": "always"}
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    splits = [pre_tokenizers.Metaspace(**mark, split=window is None)]
    splits += [] if window is None else [windows(window)]
    normalizer = _normalizer(options, normalizers.NFKC, spaces)
    return assembled(model, normalizer, splits, decoders.Metaspace(**mark))


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


_KINDS: dict[str, Callable[[list[str], PrepareConfig], Any]] = {
    "wordpiece": _wordpiece,
    "bpe": _bpe,
    "unigram": _unigram,
    "character": _character,
    "byte": _byte,
}
