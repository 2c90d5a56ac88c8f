"""Texts and tokenizers for the tests of this folder."""

import random
from typing import Any

from electrify.text.vocabulary import Splitting, train

AUTO, NONE, SPACES = Splitting(), Splitting("none"), Splitting("whitespace")
CHUNKS = Splitting("chunks", 3)
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


def trained(kind: str, **changes: Any) -> Any:
    """A `tokenizers.Tokenizer` of 500 pieces trained on `some_texts`."""
    options: dict[str, Any] = {
        "vocab_size": 500,
        "lowercase": True,
        "strip_accents": True,
        "min_frequency": 2,
    } | changes
    return train(some_texts(), kind=kind, **options)
