"""Feeds texts to a trainer of the tokenizers library, batch by batch, with a progress line for
every phase; the library itself prints nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from ..progress import Progress, Waiting

# Characters and texts per batch: large enough to spread the cost of a batch over many short texts,
# but small compared with the sample.
BATCH_CHARACTERS = 1 << 20
BATCH_TEXTS = 1 << 13
# The time of the library's merges grows with the square of a word's length: five megabytes without
# a space would take days, and teach nothing.
LONGEST_WORD = 1000
_ENDLESS = re.compile(rf"(?<!\S)\S{{{LONGEST_WORD + 1},}}")


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in order, in lists that hold about BATCH_CHARACTERS or BATCH_TEXTS."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def with_ends(text: str) -> str:
    """The text with a space inserted after every LONGEST_WORD characters without one."""
    if len(text) <= LONGEST_WORD:
        return text
    return _ENDLESS.sub(
        lambda word: " ".join(
            word[0][i : i + LONGEST_WORD] for i in range(0, len(word[0]), LONGEST_WORD)
        ),
        text,
    )


def in_megabytes(texts: list[str]) -> float:
    """The size of the texts, in millions of characters."""
    return sum(map(len, texts)) / 1e6


def emptied(texts: list[str]) -> Iterator[str]:
    """The texts in order, each freed once it was read, because the trainer keeps words and not
    texts."""
    texts.reverse()
    while texts:
        yield texts.pop()


def feed(
    tokenizer: Any, texts: Iterable[str], trainer: Any, *, megabytes: float, then: str
) -> None:
    """`tokenizer.train_from_iterator(texts, trainer)`. then: the name of what the library does
    after it has read all words, for the line with its duration."""
    with ExitStack() as stack:

        def told() -> Iterator[list[str]]:
            with Progress(megabytes, title="counting words", unit="MB") as bar:
                for batch in batches(texts):
                    yield batch
                    bar.advance(sum(map(len, batch)) / 1e6)
            stack.enter_context(Waiting(then))

        tokenizer.train_from_iterator(told(), trainer)
