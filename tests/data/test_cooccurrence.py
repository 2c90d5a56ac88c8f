"""Word vectors from the corpus: counts of neighbours, their PPMI, and its factors."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from corpora import corpus_of
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.data import cooccurrence
from electrify.data.cooccurrence import count_neighbours, factors, ppmi_, word_vectors


def topics(*, documents: int = 300, seed: int = 0) -> list[list[int]]:
    """Words 5 to 14 stand with each other, so do 15 to 24; 25 to 29 stand with both."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(documents):
        own = np.arange(5, 15) + 10 * (i % 2)
        found.append(rng.choice(np.concatenate([own, np.arange(25, 30)]), 20).tolist())
    return found


@settings(max_examples=40, deadline=None)
@given(
    shards=st.lists(
        st.lists(st.lists(st.integers(5, 11), max_size=9), max_size=5), min_size=1, max_size=3
    ),
    window=st.integers(1, 12),
    block=st.sampled_from([3, 7, 1 << 16]),
)
def test_counts_equal_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[list[int]]], window: int, block: int
) -> None:
    """Shards, empty documents and any window. Only a pair that a block cuts is left out."""
    corpus = corpus_of(tmp_path_factory.mktemp("c"), shards, vocab_size=12)
    column = {int(w): i for i, w in enumerate(np.argsort(-corpus.unigram(), kind="stable"))}
    wanted = np.zeros((12, 12))
    for documents in shards:
        flat = [(token, d) for d, document in enumerate(documents) for token in document]
        for i, (one, d) in enumerate(flat):
            for j, (other, e) in enumerate(flat):
                if i != j and d == e and abs(i - j) <= window and i // block == j // block:
                    wanted[one, column[other]] += 1 / abs(i - j)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "BLOCK", block)
        np.testing.assert_allclose(count_neighbours(corpus, window=window), wanted, rtol=1e-5)


def test_a_sample_of_a_large_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third block of ten: the words of the others are not counted."""
    monkeypatch.setattr(cooccurrence, "BLOCK", 4)
    corpus = corpus_of(tmp_path, [[[5 + i] * 4 for i in range(10)]], vocab_size=15)
    found = count_neighbours(corpus, window=2, max_tokens=14)
    assert np.flatnonzero(found.sum(1)).tolist() == [5, 8, 11, 14]


def test_columns_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large vocabulary takes fewer contexts, the most frequent ones, and a rare word still has
    its row."""
    monkeypatch.setattr(cooccurrence, "CELLS", 40)
    corpus = corpus_of(tmp_path, [[[7, 8, 7, 8, 9]]], vocab_size=20)
    found = count_neighbours(corpus, window=1)
    assert found.shape == (20, 2)
    assert found[9].tolist() == [0, 1]
    assert found[7].tolist() == [0, 3]


def test_ppmi_by_hand() -> None:
    """Of 8 counts: p(0, 0) = 3/8 against 1/2 * 1/2, p(0, 1) = 1/8, below chance; a word and a
    context that were never seen are 0."""
    counts = torch.tensor([[3.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    high = math.log((3 / 8) / (1 / 4))
    torch.testing.assert_close(
        ppmi_(counts), torch.tensor([[high, 0.0, 0.0], [0.0, high, 0.0], [0.0, 0.0, 0.0]])
    )


def test_factors_hold_the_matrix() -> None:
    """Rank 3, all of it kept: the angles between rows are those of U sqrt(S) of an exact SVD, less
    the mean."""
    g = torch.Generator().manual_seed(0)
    matrix = torch.randn(40, 3, generator=g) @ torch.randn(3, 60, generator=g)
    matrix[4] = 0
    found = factors(matrix, 3, seed=0)
    u, s, _ = torch.linalg.svd(matrix, full_matrices=False)
    exact, seen = u[:, :3] * s[:3].sqrt(), torch.arange(40) != 4
    exact = exact[seen] - exact[seen].mean(0)
    assert not found[4].any()
    torch.testing.assert_close(found[seen].pow(2).mean(1), torch.ones(39))
    cosines = [
        torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).T
        for x in (found[seen], exact)
    ]
    torch.testing.assert_close(*cosines, rtol=1e-3, atol=1e-3)
    # More dimensions than the matrix has: what cannot be filled is 0, and every value a number.
    more = factors(torch.eye(4, 6), 10, seed=0)
    assert more.shape == (4, 10)
    assert not more[:, 4:].any()
    assert bool(more.isfinite().all())


def test_a_pure_function_of_corpus_and_seed(tmp_path: Path) -> None:
    """Whatever state torch's own generator is in, which is left as it was, and however many threads
    there are."""
    corpus = corpus_of(tmp_path, [topics(), topics(seed=1)], vocab_size=40)
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    one = word_vectors(corpus, 8, seed=0)
    after = torch.rand(1)
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        torch.manual_seed(1)
        assert torch.equal(word_vectors(corpus, 8, seed=0), one)
        assert torch.get_num_threads() == (2 if threads == 1 else 1)
        assert torch.equal(torch.rand(1), after)
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(word_vectors(corpus, 8, seed=1), one)
    unit = torch.nn.functional.normalize(one)
    cosine = unit @ unit.T
    within, between = (cosine[5:15, 5:15].sum() - 10) / 90, cosine[5:15, 15:25].mean()
    assert float(within) > float(between) + 0.5, "words of one topic are alike"
    assert not one[30:].any(), "words that the corpus does not hold"
