"""Traps in a prepared corpus that is whole: what its numbers mean for a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..config.pretrain import load_recipe
from ..data.phases import phases_of
from ..text.shards import Manifest
from ..train.monitor import GRACE_TOKENS, MAX_EPOCHS
from .files import amount
from .findings import Finding, note, ok, warning

RECIPE = "electra-small"  # what `pretrain` takes where nothing is said
# BERT's vocabularies leave about .01 % of English out. At 1 % every eighth sequence of 128 tokens or so has no word for something it speaks of.
UNK_NOTE, UNK_WARNING = 0.001, 0.01
SHORT = 128  # the row length of the small recipes
# Below the length of a sentence there is little context to learn from; the usual cause is a file that has one sentence a line.
SENTENCE = 32
# An entry needs some dozens of occurrences before its embedding is more than its initial value.
RARE = 20
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


def traps(manifest: Manifest, *, unigram_V: np.ndarray, lengths: Lengths, folder: Path) -> Iterator[Finding]:
    tokens = int(unigram_V.sum())
    if not tokens:
        yield warning("no-tokens", "the train split holds no token", "Prepare a corpus with more text, or with a smaller --valid-fraction.")
        return
    yield from unknown(manifest, unigram_V, tokens)
    yield from document_lengths(lengths, tokens + sum(s.tokens for s in manifest.splits.get("valid", [])))
    yield from size(tokens, folder)
    yield from validation(manifest)
    yield from vocabulary(manifest, unigram_V, tokens)
    yield from dropped(manifest)


def unknown(manifest: Manifest, unigram_V: np.ndarray, tokens: int) -> Iterator[Finding]:
    if manifest.special_ids.unk < 0:
        yield ok("unk", "the tokenizer needs no [UNK]")
        return
    n = int(unigram_V[manifest.special_ids.unk])
    fact = f"{n:,} of {tokens:,} tokens are [UNK] ({n / tokens:.3%})"
    if n / tokens < UNK_NOTE:
        yield ok("unk", fact)
    elif n / tokens < UNK_WARNING:
        yield note("unk", fact, "Rare signs, as a rule; --tokenizer bpe has no [UNK].")
    else:
        yield warning(
            "unk",
            fact,
            "Words of which the model sees nothing: train a tokenizer on this very text (leave --tokenizer out), keep its --lowercase and "
            "--strip-accents, or take --tokenizer bpe, which has no [UNK].",
        )


def document_lengths(lengths: Lengths, tokens: int) -> Iterator[Finding]:
    short, documents = lengths.shorter_than(SHORT), lengths.documents
    empty = lengths.shorter_than(1)
    shares = f"{short / documents:.1%} of the documents ({lengths.tokens_in_short / tokens:.1%} of the tokens)"
    fact = f"{shares} are shorter than {SHORT} tokens; the median document has {lengths.median:,}"
    if lengths.median < SENTENCE:
        yield warning(
            "short-documents",
            fact,
            "That is a sentence, not a document: no token sees more context than its own. If lines of one text were taken for documents, prepare "
            "again with --document-boundary blank-line or file.",
        )
    elif lengths.tokens_in_short > tokens / 4:
        yield note(
            "short-documents",
            fact,
            "Rows are packed with several whole sequences, so no computation is lost on pads; but a token sees its own document only, "
            f"so rows longer than {SHORT} teach little more here.",
        )
    else:
        yield ok("lengths", fact)
    if empty:
        yield note("empty-documents", f"{empty:,} documents have no token at all")


def size(tokens: int, folder: Path) -> Iterator[Finding]:
    config = load_recipe(RECIPE)
    slots = phases_of(config).slots(config.train.max_steps)
    epochs, most = slots / tokens, int(config.train.max_steps * MAX_EPOCHS * tokens / slots)
    if tokens < GRACE_TOKENS / MAX_EPOCHS:
        yield warning(
            "little-text",
            f"{tokens:,} tokens to train on: even seen {MAX_EPOCHS} times they are fewer than the {amount(GRACE_TOKENS)} after which models begin "
            "to use the context",
            "Enough to try the path, not to pre-train: add text.",
        )
    elif epochs > MAX_EPOCHS:
        yield note(
            "recipe-too-long",
            f"the default recipe {RECIPE} would see these {amount(tokens)} tokens {epochs:,.0f} times; beyond {MAX_EPOCHS} times more steps gain "
            "next to nothing",
            f"Give it --max-steps {most} or fewer, or take --recipe electra-tiny or electra-mini, or more text.",
        )
    else:
        yield ok("size", f"{amount(tokens)} tokens to train on: {epochs:.1f} epochs of the default recipe {RECIPE}")


def validation(manifest: Manifest) -> Iterator[Finding]:
    tokens = sum(s.tokens for s in manifest.splits.get("valid", []))
    if tokens:
        documents = sum(s.documents for s in manifest.splits["valid"])
        yield ok("valid", f"{tokens:,} tokens in {documents:,} documents are set aside for validation")
    else:
        yield warning(
            "no-valid",
            "nothing is set aside for validation",
            "A run on it validates nothing and cannot warn of a dead generator or of overfitting: prepare with --valid-fraction 0.01.",
        )


def vocabulary(manifest: Manifest, unigram_V: np.ndarray, tokens: int) -> Iterator[Finding]:
    v = manifest.vocab_size
    own = np.delete(unigram_V, [i for i in manifest.special_ids.never_chosen if i < v])
    unused, rare = int((own == 0).sum()), int((own < RARE).sum())
    fact = f"of {v:,} entries of the vocabulary {unused:,} ({unused / v:.1%}) never occur and {rare:,} ({rare / v:.1%}) fewer than {RARE} times"
    if rare > v / 2:
        smaller = 1 << max(8, (v - rare).bit_length() - 1)
        yield warning(
            "vocabulary-too-large",
            fact,
            f"Their embeddings hardly move from their initial values: a vocabulary for this text is smaller, --vocab-size {smaller} or so.",
        )
    elif unused > v / 5:
        yield note("vocabulary-unused", fact, "The tokenizer was made on other text; one of its own would cut this text into fewer tokens.")
    else:
        yield ok("vocabulary", fact)
    if v % 8:
        yield note("vocabulary-odd", f"the vocabulary of {v:,} is no multiple of 8", f"GPUs multiply faster with one: --vocab-size {v + -v % 8}.")


def dropped(manifest: Manifest) -> Iterator[Finding]:
    counts = manifest.counts
    twice, documents = counts.get("duplicates", 0), counts.get("documents", 0)
    if twice and twice > KEPT_TWICE * (twice + documents):
        yield note(
            "duplicates",
            f"{twice:,} of {twice + documents:,} documents occurred before and were dropped ({twice / (twice + documents):.0%})",
            "Look whether an input was named twice; nothing else needs to be done.",
        )
    elif twice:
        yield ok("duplicates", f"{twice:,} documents that occurred before were dropped")
    if manifest.options.get("deduplicate") is False:
        yield note(
            "duplicates-kept", "documents that occur twice were kept", "Validation may hold texts of training: prepare with --deduplicate true."
        )
    if counts.get("encoding_errors"):
        n = counts["encoding_errors"]
        advice = "Find the files' real encoding and convert them: replaced signs are noise, skipped documents are lost text."
        yield warning("encoding", f"{n:,} times text was no UTF-8 and was replaced or skipped", advice)
