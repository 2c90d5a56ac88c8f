"""The tokenizer of a run: trained on a sample of the corpus, or an existing one. The sample is
chosen by hash, so it depends neither on the order of the documents nor on the workers."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import UserError
from ..progress import Progress, say
from . import documents
from .dedup import digest, fraction, is_held_out, until
from .options import PrepareConfig
from .sources import shown
from .splitting import Splitting
from .tokenizer import save_existing, save_trained
from .trainable import SPECIALS
from .unknown import must_know_sample
from .vocabulary import train
from .workspace import Workspace

ALL_VALID = "all of its documents fell into the validation split; lower valid_fraction"


def tokenizer_for(options: PrepareConfig, space: Workspace) -> None:
    """Puts the tokenizer into space.tokenizer, unless an earlier run of the same command did.
    Raises UserError if there is nothing to train on."""
    if space.tokenizer.is_dir():
        return
    if not options.trains_tokenizer:
        save_existing(options.tokenizer, space.tokenizer)
    else:
        save_trained(
            _trained(options, _texts(options, space)),
            space.tokenizer,
            kind=options.tokenizer,
            lowercase=options.lowercase,
            strip_accents=options.accents_stripped,
        )


def _trained(options: PrepareConfig, texts: list[str]) -> Any:
    """Trains a tokenizer on the texts. Reports if they give fewer pieces than were asked for."""
    size = sum(map(len, texts)) / 1e6
    if options.tokenizer == "byte":
        say("the vocabulary is the 256 bytes")
    else:
        say(
            f"training a {options.tokenizer} vocabulary of {options.vocab_size} on {size:,.1f} MB "
            f"of text in {len(texts)} documents"
        )
    tokenizer = train(
        texts,
        kind=options.tokenizer,
        vocab_size=options.vocab_size,
        lowercase=options.lowercase,
        strip_accents=options.accents_stripped,
        min_frequency=options.min_frequency,
        splitting=Splitting(options.pre_tokenizer, options.chunk_length),
    )
    must_know_sample(tokenizer, texts, options, unk=SPECIALS.index("[UNK]"))
    found = tokenizer.get_vocab_size()
    if found < options.vocab_size and options.tokenizer != "byte":
        why = (
            ""
            if options.tokenizer == "unigram"
            else f" that occur at least {options.min_frequency} times (min_frequency)"
        )
        say(
            f"the vocabulary has {found} pieces, not {options.vocab_size}: this text gives no "
            f"more{why}"
        )
    return tokenizer


def _texts(options: PrepareConfig, space: Workspace) -> list[str]:
    """At most tokenizer_sample_mb of text outside the validation split: the documents with the
    smallest numbers, in their order."""
    limit = options.tokenizer_sample_mb * 1_000_000
    kept = Sample()
    read = 0
    counts: Counter[str] = Counter()  # the counts for the report come from the encoding pass
    total = sum(s.size for s in space.sources) / 1e6
    with Progress(total or None, title="reading for the vocabulary", unit="MB") as bar:
        every = (
            text
            for s in space.sources
            for text in documents.documents(
                s, options, counts=counts, advance=lambda n: bar.advance(n / 1e6)
            )
        )
        for hashed, text in _taken(every, options):
            read += 1
            if not is_held_out(hashed, options.valid_fraction):
                kept.add(fraction(hashed, stream=1), text, limit=limit)
    texts = kept.texts()
    if not texts:
        why = ALL_VALID if read else f"no text in {shown(space.sources)}"
        raise UserError(f"the corpus is empty: {why}")
    return texts


def _taken(texts: Iterable[str], options: PrepareConfig) -> Iterator[tuple[bytes, str]]:
    """The (hash, text) pairs of the documents that the corpus may take, and of those that it would
    drop between them because they occurred before; a `Sample` keeps each text once."""
    pairs = ((digest(text.encode()), text) for text in texts)
    if options.max_documents is None:
        return pairs
    return until(pairs, options.max_documents, distinct=options.deduplicate)


class Sample:
    """The documents with the smallest numbers whose sizes sum up to at most a limit, each text
    once. The choice does not depend on the order in which they come."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._present: set[float] = set()
        self._size = 0
        self._next = 0
        self._below = 1.0

    def add(self, number: float, text: str, *, limit: int) -> None:
        if number >= self._below or number in self._present:
            return
        heapq.heappush(self._heap, (-number, self._next, text))
        self._present.add(number)
        self._next += 1
        self._size += len(text)
        while self._size > limit and len(self._heap) > 1:
            top, _, dropped = heapq.heappop(self._heap)
            self._below = -top
            self._present.discard(-top)
            self._size -= len(dropped)

    def texts(self) -> list[str]:
        """In order of their numbers, so that the order of the corpus does not matter either."""
        return [text for _, _, text in sorted(self._heap, reverse=True)]
