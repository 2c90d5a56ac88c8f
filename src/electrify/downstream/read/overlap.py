"""Finds examples that are in both the training data and the validation data."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def shared_examples(parts: Sequence[Sequence[Hashable]]) -> tuple[str, ...]:
    """A note if texts of the validation data are among the training texts: their scores say nothing
    about new text. parts: the texts of both; with one part, which is still to be split, nothing."""
    if len(parts) < 2:
        return ()
    train, validation = parts
    known = set(train)
    n = sum(text in known for text in validation)
    return (
        (
            (
                f"{n:,} of {len(validation):,} validation examples are among the training "
                "examples: the scores flatter"
            ),
        )
        if n
        else ()
    )
