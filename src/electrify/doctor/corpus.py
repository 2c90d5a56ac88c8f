"""Finds traps in an undamaged prepared corpus: what its statistics mean for a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..config.pretrain import load_recipe
from ..data.phases import phases_of
from ..text.judged import more_validation
from ..text.manifest import Manifest
from ..train.monitor import GRACE_TOKENS, MAX_EPOCHS
from .files import amount
from .findings import Finding, note, ok, warning
from .vocabulary import unknown, vocabulary

RECIPE = "electra-small"  # the recipe that `pretrain` uses by default
# In the order of their cost.
RECIPES = ("electra-tiny", "electra-mini", RECIPE, "electra-base", "electra-large")
SHORT = 128  # the row length of the small recipes
# Documents shorter than a sentence have little context to learn from; the usual cause is a file
# with one sentence per line.
SENTENCE = 32
KEPT_TWICE = 0.1


class Lengths:
    """How long documents are, without keeping them."""

    LIMIT = 1 << 16

    def __init__(self) -> None:
        self.counts_L = np.zeros(self.LIMIT + 1, np.int64)  # longer ones count as LIMIT
        self.tokens_in_short = 0

    def add(self, lengths_D: np.ndarray) -> None:
        self.counts_L += np.bincount(np.minimum(lengths_D, self.LIMIT), minlength=self.LIMIT + 1)
        self.tokens_in_short += int(lengths_D[lengths_D < SHORT].sum())

    @property
    def documents(self) -> int:
        return int(self.counts_L.sum())

    def shorter_than(self, length: int) -> int:
        return int(self.counts_L[:length].sum())

    @property
    def median(self) -> int:
        return int(np.searchsorted(np.cumsum(self.counts_L), (self.documents + 1) // 2))


def traps(
    manifest: Manifest, *, unigram_V: np.ndarray, lengths: Lengths, folder: Path
) -> Iterator[Finding]:
    tokens = int(unigram_V.sum())
    if not tokens:
        yield warning(
            "no-tokens",
            "the train split holds no token",
            "Prepare a corpus with more text, or with a smaller --valid-fraction.",
        )
        return
    yield from unknown(manifest, unigram_V, tokens)
    yield from document_lengths(
        lengths, tokens + sum(s.tokens for s in manifest.splits.get("valid", []))
    )
    yield from size(tokens)
    yield from validation(manifest)
    yield from vocabulary(manifest, unigram_V, folder)
    yield from dropped(manifest)


def document_lengths(lengths: Lengths, tokens: int) -> Iterator[Finding]:
    short = lengths.shorter_than(SHORT)
    documents = lengths.documents
    empty = lengths.shorter_than(1)
    shares = (
        f"{short / documents:.1%} of the documents ({lengths.tokens_in_short / tokens:.1%} of the "
        "tokens)"
    )
    fact = f"{shares} are shorter than {SHORT} tokens; the median document has {lengths.median:,}"
    if lengths.median < SENTENCE:
        yield warning(
            "short-documents",
            fact,
            "That is a sentence, not a document: no token sees more context than its own. If lines "
            "of one text were taken for documents, prepare "
            "again with --document-boundary blank-line or file.",
        )
    elif lengths.tokens_in_short > tokens / 4:
        yield note(
            "short-documents",
            fact,
            "Rows are packed with several whole sequences, so no computation is lost on pads; but "
            "a token sees its own document only, "
            f"so rows longer than {SHORT} teach little more here.",
        )
    else:
        yield ok("lengths", fact)
    if empty:
        yield note("empty-documents", f"{empty:,} documents have no token at all")


def size(tokens: int) -> Iterator[Finding]:
    times = {name: epochs_of(name, tokens) for name in RECIPES}
    fitting = [
        f"{name} ({times[name]:.1f} epochs)" for name in RECIPES if times[name] <= MAX_EPOCHS
    ]
    fact = f"{amount(tokens)} tokens to train on"
    if tokens < GRACE_TOKENS / MAX_EPOCHS:
        yield warning(
            "little-text",
            f"{tokens:,} tokens to train on: even seen {MAX_EPOCHS} times they are fewer than the "
            f"{amount(GRACE_TOKENS)} after which models begin "
            "to use the context",
            "Enough to try the path, not to pre-train: add text.",
        )
    elif times[RECIPE] <= MAX_EPOCHS:
        yield ok("size", f"{fact}, which fit {', '.join(fitting)}; {RECIPE} is the default")
    elif fitting:
        larger = (
            f"the default, {RECIPE}, sees them {times[RECIPE]:,.0f} times, and beyond {MAX_EPOCHS} "
            "more steps gain next to nothing"
        )
        advice = (
            f"Take --recipe {fitting[-1].split()[0]}, or give {RECIPE} --max-steps "
            f"{steps_for(RECIPE, tokens)} or fewer."
        )
        yield note("recipe-too-long", f"{fact} fit {', '.join(fitting)}; {larger}", advice)
    else:
        least = RECIPES[0]
        larger = (
            f"even {least} sees them {times[least]:,.0f} times, and beyond {MAX_EPOCHS} more steps "
            "gain next to nothing"
        )
        advice = (
            f"Add text, or give --recipe {least} --max-steps {steps_for(least, tokens)} or fewer."
        )
        yield note("recipe-too-long", f"{fact}; {larger}", advice)


def epochs_of(recipe: str, tokens: int) -> float:
    """How many times a shipped recipe sees a corpus."""
    config = load_recipe(recipe)
    return phases_of(config).slots(config.train.max_steps) / tokens


def steps_for(recipe: str, tokens: int) -> int:
    """Updates of a recipe that see a corpus MAX_EPOCHS times."""
    return int(load_recipe(recipe).train.max_steps * MAX_EPOCHS / epochs_of(recipe, tokens))


def validation(manifest: Manifest) -> Iterator[Finding]:
    tokens = sum(s.tokens for s in manifest.splits.get("valid", []))
    if tokens:
        documents = sum(s.documents for s in manifest.splits["valid"])
        yield ok(
            "valid", f"{tokens:,} tokens in {documents:,} documents are set aside for validation"
        )
    else:
        effect = (
            "A run on it validates nothing and cannot warn of a dead generator or of overfitting"
        )
        yield warning(
            "no-valid",
            "nothing is set aside for validation",
            f"{effect}: {more_validation(manifest)}.",
        )


def dropped(manifest: Manifest) -> Iterator[Finding]:
    counts = manifest.counts
    twice = counts.get("duplicates", 0)
    documents = counts.get("documents", 0)
    if twice and twice > KEPT_TWICE * (twice + documents):
        yield note(
            "duplicates",
            (
                f"{twice:,} of {twice + documents:,} documents occurred before and were dropped "
                f"({twice / (twice + documents):.0%})"
            ),
            "Check whether an input was named twice; nothing else needs to be done.",
        )
    elif twice:
        yield ok("duplicates", f"{twice:,} documents that occurred before were dropped")
    if manifest.options.get("deduplicate") is False:
        yield note(
            "duplicates-kept",
            "documents that occur twice were kept",
            "Texts that occur often weigh more (copies are all of training or all of validation); "
            "prepare with --deduplicate true if that is not wanted.",
        )
    if counts.get("encoding_errors"):
        n = counts["encoding_errors"]
        advice = (
            "Find the files' real encoding and convert them: replaced signs are noise, skipped "
            "documents are lost text."
        )
        yield warning(
            "encoding", f"text was not UTF-8 and was replaced or skipped {n:,} times", advice
        )
