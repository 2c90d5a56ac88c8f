"""Finds traps in the vocabulary of a prepared corpus: words that it cannot represent, and unused
entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..text.counts import UNK_DOCUMENTS
from ..text.judged import smaller, trained_here, use_of
from ..text.letters import letters_of
from ..text.shards import Manifest
from ..text.unknown import share_of
from .findings import Finding, note, ok, warning

# With BERT's vocabularies, about .01 % of English text is [UNK]. At .1 %, about one in eight
# sequences of 128 tokens contains an unknown word.
UNK_NOTE = 0.001
UNK_WARNING = 0.01


def unknown(manifest: Manifest, unigram_V: np.ndarray, tokens: int) -> Iterator[Finding]:
    """Judged by tokens or by characters, whichever have the larger share."""
    if manifest.special_ids.unk < 0:
        yield ok("unk", "the tokenizer needs no [UNK]")
        return
    n = int(unigram_V[manifest.special_ids.unk])
    fact = f"{n:,} of {tokens:,} tokens are [UNK] ({n / tokens:.3%})"
    share = n / tokens
    characters = share_of(manifest.counts)
    if characters is not None:
        # A long word that is not known is one token.
        share = max(share, characters)
        lost = int(manifest.counts.get(UNK_DOCUMENTS, 0))
        documents = int(manifest.counts.get("documents", 0))
        fact += (
            f", {characters:.2%} of the characters, and half or more of {lost:,} of "
            f"{documents:,} documents"
        )
    if share < UNK_NOTE:
        yield ok("unk", fact)
    elif share < UNK_WARNING:
        yield note("unk", fact, "Rare signs, as a rule; --tokenizer bpe has no [UNK].")
    elif trained_here(manifest):
        advice = (
            f"A vocabulary of {manifest.vocab_size:,} has no place for some of its letters: give a "
            "larger --vocab-size, or --tokenizer bpe"
        )
        yield warning(
            "unk", fact, f"The model sees nothing of these words. {advice}, which has no [UNK]."
        )
    else:
        yield warning(
            "unk",
            fact,
            "The model sees nothing of these words: train a tokenizer on this very text (leave "
            "--tokenizer out), keep its --lowercase and --strip-accents, or take --tokenizer bpe, "
            "which has no [UNK].",
        )


def vocabulary(manifest: Manifest, unigram_V: np.ndarray, folder: Path) -> Iterator[Finding]:
    v = manifest.vocab_size
    if manifest.options.get("tokenizer") == "byte":
        yield ok("vocabulary", "every byte has an entry, whether the text has it or not")
        return
    used = use_of(manifest, unigram_V)
    fact, unused = used.fact, used.unused
    if used.is_too_large:
        yield warning(
            "vocabulary-too-large",
            fact,
            "Their embeddings hardly move from their initial values: "
            f"{smaller(manifest, used.rare, letters_of(manifest, unigram_V, folder))}.",
        )
    elif unused > v / 5 and trained_here(manifest):
        yield note(
            "vocabulary-unused",
            fact,
            "These are single bytes and letters that never stand alone, and pieces that longer "
            "ones have replaced: they cost some memory, and nothing needs to be done.",
        )
    elif unused > v / 5:
        yield note(
            "vocabulary-unused",
            fact,
            "The tokenizer was made on other text; one of its own would cut this text into "
            "fewer tokens.",
        )
    else:
        yield ok("vocabulary", fact)
    if v % 8:
        yield note(
            "vocabulary-odd",
            f"the vocabulary of {v:,} is not a multiple of 8, with which GPUs multiply faster",
            rounder(manifest),
        )


def rounder(manifest: Manifest) -> str:
    """Advice for getting a multiple of 8."""
    v = manifest.vocab_size
    asked = manifest.options.get("vocab_size")
    if not trained_here(manifest):
        return "It is that of a given tokenizer, so nothing needs to be done."
    if isinstance(asked, int) and v < asked:
        if manifest.options.get("tokenizer") == "character":
            return "A smaller one would lose characters of the text, so nothing needs to be done."
        return (
            f"{asked:,} were asked for and the text has no more: --vocab-size {v - v % 8}, or more "
            "text."
            if v >= 40
            else "More text has more pieces."
        )
    return f"Prepare with --vocab-size {v + -v % 8}."
