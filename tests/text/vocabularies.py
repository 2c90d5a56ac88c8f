"""Texts and tokenizers for the tests of this folder. It imports little: processes start here."""

import random
from typing import Any


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
    from electrify.text.vocabulary import train

    options: dict[str, Any] = {
        "vocab_size": 500,
        "lowercase": True,
        "strip_accents": True,
        "min_frequency": 2,
    } | changes
    return train(some_texts(), kind=kind, **options)
