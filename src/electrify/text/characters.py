"""Vocabularies without learnt pieces: single characters, single bytes, and chunks of a fixed number
of characters (k-mers). Decoding gives the normalised text back, character by character."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from ..progress import Progress
from .alphabet import Characters, often
from .feeding import batches, in_megabytes
from .splitting import ONE_SPACE, at, bytes_split, windows
from .trainable import SPECIALS, Wanted, normalizer_of


def character(texts: list[str], wanted: Wanted) -> Any:
    """A token for each character, white space included: the most frequent that fit. With `chunks`
    also the most frequent chunks; a chunk that is not among them is its characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    length = wanted.splitting.length
    normalizer = normalizer_of(wanted, compose=normalizers.NFC)
    counts, chunks = _counted(normalizer, texts, length)
    letters = often(counts, least=wanted.least, spaces=True)
    free = wanted.vocab_size - len(SPECIALS)
    kept = sorted(c for c, _ in letters[:free])
    if length is not None:
        known = set(kept)
        ranks = sorted((-n, c) for c, n in chunks.items() if n >= wanted.least)
        spelled = (c for _, c in ranks if known.issuperset(c) and c not in SPECIALS)
        kept += islice(spelled, free - len(kept))
        vocabulary = _numbered(kept)
        longest = models.WordPiece(
            vocabulary,
            unk_token="[UNK]",
            max_input_chars_per_word=length,
            continuing_subword_prefix="",
        )
        tokenizer = Tokenizer(longest)
        tokenizer.pre_tokenizer = windows(length)
    else:
        tokenizer = Tokenizer(models.BPE(_numbered(kept), [], unk_token="[UNK]", fuse_unk=False))
        words = wanted.splitting.kind == "whitespace"
        tokenizer.pre_tokenizer = at(ONE_SPACE) if words else windows(1)
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _numbered(pieces: list[str]) -> dict[str, int]:
    return {piece: i for i, piece in enumerate([*SPECIALS, *pieces])}


def _counted(
    normalizer: Any, texts: list[str], length: int | None
) -> tuple[dict[str, int], Counter[str]]:
    """How often each character occurs after normalisation, and each chunk of `length` characters,
    counted from the beginning of a text."""
    raw = Characters()
    chunks: Counter[str] = Counter()
    with Progress(in_megabytes(texts), title="counting characters", unit="MB") as bar:
        for batch in batches(texts):
            normal = [normalizer.normalize_str(text) for text in batch]
            raw.add("".join(normal))
            if length is not None:
                for text in normal:
                    last = len(text) - length + 1
                    chunks.update(text[i : i + length] for i in range(0, last, length))
            bar.advance(in_megabytes(batch))
    return dict(raw.items()), chunks


def byte(texts: list[str], wanted: Wanted) -> Any:
    """A token for each of the 256 bytes, whatever the texts are."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(_numbered(alphabet), []))
    tokenizer.normalizer = normalizer_of(wanted, compose=normalizers.NFC)
    tokenizer.pre_tokenizer = bytes_split(wanted.splitting)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
