"""Word vectors from co-occurrence: a prepared corpus -> counts of neighbours -> positive pointwise
mutual information -> truncated SVD.

A masked language model spends its first millions of tokens on learning which words are alike. Half
a minute of counting gives this before the first update. Levy and Goldberg 2014, "Neural Word
Embedding as Implicit Matrix Factorization", show that such a factorisation contains what word
vectors learn; Bullinaria and Levy 2012 that plain PPMI and an SVD do well. research/results.md has
our measurements.

Shape suffixes: T tokens, V vocabulary, C context words, K dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..progress import Progress
from ..text.corpus import Corpus

WINDOW = 8  # words to each side; a neighbour at distance d counts 1/d
CONTEXTS = 4096  # at most this many, the most frequent words
CELLS = 1 << 27  # limit of the count matrix: 512 MB
SAMPLE = 1 << 24  # tokens that are read from a larger corpus
BLOCK = 1 << 16  # tokens read in one piece
# For the randomised SVD: additional columns (oversampling), and power iterations.
_OVERSAMPLED = 32
_ITERATIONS = 3


def word_vectors(corpus: Corpus, dimensions: int, *, seed: int) -> Tensor:
    """[V, dimensions] in float32: a vector of root mean square 1 for each word that occurs in the
    corpus, and 0 for the others.

    A pure function of the corpus and the seed on one machine, whatever the number of threads or
    processes.
    """
    counts_VC = count_neighbours(corpus)
    threads = torch.get_num_threads()
    # The last bits of a sum depend on the number of threads, and close singular values amplify
    # them.
    torch.set_num_threads(1)
    try:
        return factors(ppmi_(torch.from_numpy(counts_VC)), dimensions, seed=seed)
    finally:
        torch.set_num_threads(threads)


def count_neighbours(
    corpus: Corpus, *, window: int = WINDOW, max_tokens: int = SAMPLE
) -> np.ndarray:
    """[V, C] in float32: how often each word occurs within `window` of each context word of the
    same document, weighted by 1 / distance.

    The contexts are the C most frequent words, most frequent first. If a corpus is larger than
    `max_tokens`, every n-th block is read.
    """
    size = corpus.manifest.vocab_size
    columns = min(CONTEXTS, CELLS // size, size)
    frequent_C = np.argsort(-corpus.unigram(), kind="stable")[:columns]
    column_V = np.full(size, -1)
    column_V[frequent_C] = np.arange(columns)
    counts = np.zeros(size * columns, np.float32)
    blocks = -(-corpus.num_tokens // BLOCK)
    every = -(-corpus.num_tokens // max_tokens) or 1
    with Progress(
        -(-blocks // every), title="counting which words occur together", unit="blocks"
    ) as bar:
        for ids_T, document_T in _blocks(corpus, every=every):
            column_T = column_V[ids_T]
            for distance in range(1, min(window, len(ids_T) - 1) + 1):
                same = document_T[:-distance] == document_T[distance:]
                pairs = (
                    (ids_T[:-distance], column_T[distance:]),
                    (ids_T[distance:], column_T[:-distance]),
                )
                for word, column in pairs:
                    kept = same & (column >= 0)
                    np.add.at(counts, word[kept] * columns + column[kept], np.float32(1 / distance))
            bar.advance()
    return counts.reshape(size, columns)


def _blocks(corpus: Corpus, *, every: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(ids, number of the document) of the tokens of every n-th block, as int64."""
    number = 0
    for tokens, offsets in zip(corpus.tokens, corpus.documents, strict=True):
        for start in range(0, len(tokens), BLOCK):
            if number % every == 0:
                ids_T = tokens[start : start + BLOCK].astype(np.int64)
                yield (
                    ids_T,
                    np.searchsorted(offsets, np.arange(start, start + len(ids_T)), side="right"),
                )
            number += 1


def ppmi_(counts_VC: Tensor) -> Tensor:
    """max(0, ln p(word, context) / p(word) p(context)), in place; 0 if the two never occur
    together."""
    total = counts_VC.sum(dtype=torch.float64)
    word_V1 = counts_VC.sum(1, keepdim=True)
    context_C = counts_VC.sum(0)
    # ln of 0 is -inf, which becomes 0; a word or context that never occurs gives 0 / 0
    return (
        counts_VC.div_(word_V1)
        .div_(context_C / total.float())
        .log_()
        .clamp_min_(0)
        .nan_to_num_(nan=0.0)
    )


def factors(matrix_VC: Tensor, dimensions: int, *, seed: int) -> Tensor:
    """[V, dimensions]: the left factor of the truncated SVD times the square root of the singular
    values, minus its mean, each row scaled to root mean square 1.

    A row of zeros stays 0. Columns beyond the largest possible rank of the matrix are 0.
    """
    seen_V = matrix_VC.any(1)
    rank = min(dimensions, *matrix_VC.shape)
    # The library draws its starting vectors from the global generator.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left_VK, values_K, _ = torch.svd_lowrank(
            matrix_VC, q=min(rank + _OVERSAMPLED, *matrix_VC.shape), niter=_ITERATIONS
        )
    vectors_VK = torch.zeros(len(matrix_VC), dimensions)
    vectors_VK[:, :rank] = left_VK[:, :rank] * values_K[:rank].sqrt()
    vectors_VK[seen_V] -= vectors_VK[seen_V].mean(0)
    vectors_VK[~seen_V] = 0
    return vectors_VK / vectors_VK.pow(2).mean(1, keepdim=True).sqrt().clamp_min(1e-12)
