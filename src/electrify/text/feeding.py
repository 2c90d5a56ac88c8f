"""Texts into a trainer of the tokenizers library, batch by batch, with a line of progress for every
phase; the library itself says nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from ..progress import Progress, Waiting

# Characters and texts of a batch: large enough that what a batch costs is spread over many short
# texts, small beside the sample.
BATCH_CHARACTERS = 1 << 20
BATCH_TEXTS = 1 << 13
# The library's merges take the square of a word's length: five megabytes without a space would take
# days, and teach nothing.
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
    """The text with a space after every LONGEST_WORD characters that have none."""
    if len(text) <= LONGEST_WORD:
        return text
    return _ENDLESS.sub(
        lambda word: " ".join(
            word[0][i : i + LONGEST_WORD] for i in range(0, len(word[0]), LONGEST_WORD)
        ),
        text,
    )


def in_megabytes(texts: list[str]) -> float:
    """The size of the texts, a million characters each."""
    return sum(map(len, texts)) / 1e6


def emptied(texts: list[str]) -> Iterator[str]:
    """The texts in order, each let go once it was read: the trainer keeps words, not texts."""
    texts.reverse()
    while texts:
        yield texts.pop()


def feed(
    tokenizer: Any, texts: Iterable[str], trainer: Any, *, megabytes: float, then: str
) -> None:
    """`tokenizer.train_from_iterator(texts, trainer)`. then: what the library does after it has
    read all words, for the line that says how long."""
    with ExitStack() as stack:

        def told() -> Iterator[list[str]]:
            with Progress(megabytes, title="counting words", unit="MB") as bar:
                for batch in batches(texts):
                    yield batch
                    bar.advance(sum(map(len, batch)) / 1e6)
            stack.enter_context(Waiting(then))

        tokenizer.train_from_iterator(told(), trainer)
