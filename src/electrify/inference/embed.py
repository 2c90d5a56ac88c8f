"""`electrify embed`: vectors of texts, from files of any size in bounded memory, or of texts that a
program gives."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from torch import Tensor

from ..downstream import loop
from ..downstream.examples import Example
from ..errors import UserError
from ..progress import Progress, say
from ..scoring.given import given_texts
from ..train.machine import choose, computing_with
from .options import EmbedConfig
from .output import must_be_free
from .pooling import Embedder, Transform, fitted
from .predict import MEGABYTE, Summary, shares
from .source import BLOCK_ITEMS, Files, Head, Item, fitted_on
from .vectors import vector_sink

_NOWHERE = ".npy"
"""The output file of vectors that a program gets and nobody writes."""


def embed_files(options: EmbedConfig) -> Summary:
    """Writes a vector for every text of the files, in their order, into the output file, whole or
    not at all.

    Raises UserError for a model or files that cannot be read, and an output file that is there
    already.
    """
    must_be_free(options)
    began = time.monotonic()
    files = Files(options, "regression")
    head = files.check()
    corpus = fitted_on(options)
    embedder = _embedder(options)
    threads = choose(
        options.threads,
        device=embedder.device,
        width=embedder.width,
        tokens=loop.most_tokens(embedder.device),
        bf16=embedder.bf16,
    )
    if threads.text():
        say(threads.text())
    with computing_with(threads):
        number = _write(embedder, files, head, corpus, options)
    note = embedder.cut.text()
    if note:
        say(note)
    facts = embedder.cut.facts() | {"width": embedder.width}
    spent = time.monotonic() - began
    return Summary(number, spent, options.output_file, facts, (note,) if note else ())


def _write(
    embedder: Embedder,
    files: Files,
    head: Head,
    corpus: EmbedConfig | None,
    options: EmbedConfig,
) -> int:
    """Fits the transform, if there is one, and writes the vectors; returns their number."""
    number = 0
    with vector_sink(options, head, width=embedder.width) as sink:
        transform = None
        if corpus is not None:
            transform = fit(embedder, corpus, whiten=options.whiten is not None)
        files.bytes_read = 0
        embedder.cut.begin()  # without what was cut of the file that it is fitted on
        for items, vectors_ND in _vectors(embedder, files, title="embed"):
            moved_ND = vectors_ND if transform is None else transform(vectors_ND)
            sink.write(items, moved_ND.numpy())
            number += len(items)
    return number


def fit(embedder: Embedder, corpus: EmbedConfig, *, whiten: bool) -> Transform:
    """The transform that a file of texts gives."""
    title = "whiten" if whiten else "center"
    found = (vectors for _, vectors in _vectors(embedder, Files(corpus, "regression"), title=title))
    return fitted(found, width=embedder.width, whiten=whiten, shown=corpus.files[0])


def _vectors(
    embedder: Embedder, files: Files, *, title: str
) -> Iterator[tuple[list[Item], Tensor]]:
    """Every block with its vectors [N, D]."""
    with Progress(files.size / MEGABYTE, title=title, unit="MB") as progress:
        for items, share in shares(files):
            examples = [item.example for item in items if isinstance(item.example, Example)]
            yield (
                items,
                embedder.vectors(
                    examples, after=lambda part, share=share: progress.advance(part * share)
                ),
            )


def _embedder(options: EmbedConfig) -> Embedder:
    return Embedder(
        options.model,
        pooling=options.pooling,
        max_seq_length=options.max_seq_length,
        device=options.device,
        bf16=options.bf16,
    )


def embed(
    model: str | os.PathLike[str],
    texts: Iterable[str],
    *,
    pooling: Literal["mean", "cls"] = "mean",
    center: Iterable[str] | None = None,
    whiten: Iterable[str] | None = None,
    max_seq_length: int | None = None,
    device: str = "auto",
    bf16: Literal["auto", "true", "false"] = "auto",
) -> np.ndarray:
    """The vectors of texts, [N, D] in float32.

    center, whiten: texts on whose vectors these are centred or whitened, see `EmbedConfig`, which
    also explains the other arguments. Raises UserError.
    """
    how = EmbedConfig(
        model=os.fspath(model),
        files=(),
        output_file=_NOWHERE,
        pooling=pooling,
        max_seq_length=max_seq_length,
        device=device,
        bf16=bf16,
    )
    if center is not None and whiten is not None:
        raise UserError("center and whiten exclude each other: whitening centres, too")
    given = given_texts(texts)
    fitted_to = whiten if center is None else center
    corpus = None if fitted_to is None else given_texts(fitted_to)
    embedder = _embedder(how)
    found = list(_in_blocks(embedder, given))
    if embedder.cut.text():
        say(embedder.cut.text())
    if corpus is not None:
        blocks = _in_blocks(embedder, corpus)
        move = fitted(blocks, width=embedder.width, whiten=whiten is not None, shown="the corpus")
        found = [move(part_ND) for part_ND in found]
    return np.concatenate([np.empty((0, embedder.width), np.float32), *(p.numpy() for p in found)])


def _in_blocks(embedder: Embedder, texts: Sequence[str]) -> Iterator[Tensor]:
    for at in range(0, len(texts), BLOCK_ITEMS):
        yield embedder.vectors([Example(t, None, 0.0) for t in texts[at : at + BLOCK_ITEMS]])
