"""Compares folders with each other: is this the corpus of that run, do these two models use the
same vocabulary?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..config.pretrain import PretrainConfig
from ..text.shards import Corpus
from .data import Data
from .findings import Diagnosis, Finding, error, note, ok, warning


def same_corpus(facts: dict[str, Any], data: list[Data]) -> Data | None:
    return next((d for d in data if facts.get("data") == d.manifest.fingerprint), None)


def entropy_of(facts: dict[str, Any], data: list[Data], config: PretrainConfig) -> float | None:
    """The unigram entropy of the run's corpus, in nats: as recorded by the run, or else computed
    from its DATA if that is available. Where rare tokens are preferred, earlier versions recorded
    that of all tokens, so it is computed if possible."""
    written = facts.get("unigram_entropy")
    recorded = written if isinstance(written, float) and math.isfinite(written) else None
    mine = same_corpus(facts, data)
    if mine is None or (recorded is not None and config.corruption.mask_choice != "rare"):
        return recorded
    from ..train.monitor import unigram_entropy

    return unigram_entropy(Corpus(mine.folder, "train"), config.corruption)


def with_data(facts: dict[str, Any], data: list[Data]) -> Iterator[Finding]:
    """Whether the run was trained on one of the corpora."""
    if not data or not facts:
        return
    mine = same_corpus(facts, data)
    if mine is not None:
        yield ok(
            "same-data",
            f"it was trained on {mine.folder}: every hash of shards and tokenizer is the run's",
        )
        return
    names = ", ".join(str(d.folder) for d in data)
    alike = [d for d in data if facts.get("tokenizer_sha256") == d.manifest.tokenizer_sha256]
    what = "the same vocabulary and other text" if alike else "another vocabulary"
    advice = (
        "The run cannot be continued with it; give `pretrain` the corpus that the run began with, "
        "or a new --output-dir."
    )
    yield error("other-data", f"it was not trained on {names}, which has {what}", advice)


def models_together(models: list[Diagnosis]) -> None:
    """A generator and a discriminator must use the same id for a word, because one writes ids that
    the other reads. Adds to the findings of the second."""
    for i, one in enumerate(models):
        for other in models[i + 1 :]:
            mine = one.traits
            theirs = other.traits
            if mine.get("part") == theirs.get("part") or None in (
                mine.get("part"),
                theirs.get("part"),
            ):
                continue
            sizes = (mine["vocab_size"], theirs["vocab_size"])
            if None not in sizes and sizes[0] != sizes[1]:
                what = (
                    f"vocabularies of {theirs['vocab_size']:,} and {mine['vocab_size']:,} entries"
                )
            elif (
                None not in (mine["tokenizer"], theirs["tokenizer"])
                and mine["tokenizer"] != theirs["tokenizer"]
            ):
                what = "tokenizers with other words under the same ids"
            else:
                continue
            fact = f"this {theirs['part']} and the {mine['part']} {one.path} have {what}"
            advice = (
                "They are not a pair: the ids that one writes are different words to the other. "
                "Start a run from two folders of one vocabulary."
            )
            other.findings.append(warning("other-vocabulary", fact, advice))


def runs_together(runs: list[Diagnosis]) -> None:
    """Two runs with the same recipe, seed and corpus count as one run, not two."""
    for i, one in enumerate(runs):
        for other in runs[i + 1 :]:
            mine = one.traits.get("config")
            if mine is not None and one.traits == other.traits:
                fact = (
                    f"this run and {one.path} have the same corpus, the same recipe and the same "
                    f"seed {mine.train.seed}"
                )
                other.findings.append(
                    note(
                        "same-seed",
                        fact,
                        "They count as one sample: a spread over seeds needs other seeds.",
                    )
                )
