"""Texts and tokenizers for the tests of this folder."""

import random
from types import SimpleNamespace
from typing import Any

from electrify.text.vocabulary import train

AUTO, NONE, SPACES, CHUNKS = "auto", "none", "whitespace", "chunks 3"
EVERY = [
    *(("wordpiece", splitting) for splitting in (NONE, CHUNKS)),
    *(("bpe", splitting) for splitting in (AUTO, SPACES, NONE, CHUNKS)),
    *(("character", splitting) for splitting in (AUTO, SPACES, CHUNKS)),
    *(("byte", splitting) for splitting in (AUTO, SPACES, NONE)),
]
"""Tokenizers that spell any text."""


def some_texts(n: int = 300) -> list[str]:
    draw = random.Random(1)
    words = [
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyzéüñ", k=draw.randint(1, 8)))
        for _ in range(400)
    ]
    return [
        " ".join(draw.choices(words, weights=range(400, 0, -1), k=40)).capitalize()
        + f". Naïve {i}, 中文!"
        for i in range(n)
    ]


def asked(kind: str, splitting: str = AUTO, **changes: Any) -> Any:
    """The options of `prepare` that decide a vocabulary, which here may have fewer than 32
    entries. splitting: --pre-tokenizer, and the length of chunks."""
    name, _, length = splitting.partition(" ")
    usual: dict[str, Any] = {
        "tokenizer": kind,
        "pre_tokenizer": name,
        "chunk_length": int(length) if length else None,
        "vocab_size": 300,
        "lowercase": False,
        "accents_stripped": False,
        "min_frequency": 1,
    }
    return SimpleNamespace(**usual | changes)


LIKE_BERT: dict[str, Any] = {"vocab_size": 500, "min_frequency": 2}
LIKE_BERT |= {"lowercase": True, "accents_stripped": True}


def trained(kind: str, splitting: str = AUTO, **changes: Any) -> Any:
    """A `tokenizers.Tokenizer` of 500 pieces trained on `some_texts`."""
    return train(some_texts(), asked(kind, splitting, **LIKE_BERT | changes))
