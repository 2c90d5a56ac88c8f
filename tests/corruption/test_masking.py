from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from batches import SPECIAL, VOCAB, at_of, corrupted, draws_of, pack, packed_batches, sequences_of
from electrify.corruption.choosing import Candidates, Chooser, wanted
from electrify.corruption.masking import MaskMix
from electrify.draws import Draws
from electrify.tokens import Tokens

TABLE_8 = [
    (0.8, 0.1, 0.1),
    (1.0, 0.0, 0.0),
    (0.8, 0.0, 0.2),
    (0.8, 0.2, 0.0),
    (0.0, 0.2, 0.8),
    (0.0, 0.0, 1.0),
]  # 1810.04805, Table 8
RATES = st.sampled_from([0.01, 0.15, 0.25, 0.3, 0.5, 0.99])
# Of batches.SPECIAL, written out: [PAD] [CLS] [SEP] [MASK] and a further one; 1 = [UNK] is a
# candidate.
NEVER = {0, 2, 3, 4, 5}


def mask(
    rate: float = 0.15, mix: tuple[float, ...] = (0.8, 0.1, 0.1), *, vocab: int = VOCAB
) -> MaskMix:
    return MaskMix(Chooser(SPECIAL, vocab, rate=rate), SPECIAL, vocab, mix=mix)


def choose(tokens: Tokens, rate: float, draws: Draws) -> Tensor:
    return at_of(Chooser(SPECIAL, VOCAB, rate=rate), tokens, draws)


def plain_rows(count: int, length: int, *, vocab: int = VOCAB) -> Tokens:
    """Rows of one sequence without specials."""
    ids = 6 + torch.arange(count * length) % (vocab - 6)
    one = torch.ones_like(ids)
    return Tokens(ids, one, torch.arange(length).repeat(count), 0 * one, row_length=length)


def test_candidates_by_hand() -> None:
    tokens = pack([[[2, 0, 1, 4, 5, 6, 47, 3], [1]]], row_length=12)
    found = Candidates(SPECIAL, VOCAB)(tokens)
    assert found.nonzero().flatten().tolist() == [2, 5, 6, 8]


@given(packed_batches(), RATES, st.integers(0, 2**40))
def test_exact_counts_never_a_special_never_padding(tokens: Tokens, rate: float, seed: int) -> None:
    at = choose(tokens, rate, draws_of(tokens, seed=seed)).tolist()
    assert all(a < b for a, b in pairwise(at)), "ascending, so without replacement"
    ids = tokens.ids_T.tolist()
    for _, _, cut in sequences_of(tokens):
        allowed = [i for i in range(cut.start, cut.stop) if ids[i] not in NEVER]
        chosen = [i for i in at if cut.start <= i < cut.stop]
        # Python's round: half to even. torch.round in float64 agrees; in float32 it does not (.15 *
        # 190).
        assert len(chosen) == min(len(allowed), max(1, round(rate * (cut.stop - cut.start))))
        assert set(chosen) <= set(allowed)
        at = [i for i in at if i not in chosen]
    assert at == [], "nothing chosen outside the sequences"


@pytest.mark.parametrize("rate", [0.07, 0.15, 0.25, 0.35, 0.55])
def test_rounding_is_pythons(rate: float) -> None:
    for length in range(1, 513):
        tokens = Tokens(*torch.ones(4, length, dtype=torch.long), row_length=length)
        assert int(wanted(tokens, torch.ones(length, dtype=torch.bool), rate).sum()) == max(
            1, round(rate * length)
        ), length


def test_specials_count_as_tokens_but_cap_nothing_else() -> None:
    """20 tokens at .15 are 3, of which only 2 may be chosen; the neighbour's candidates do not fill
    in."""
    tokens = pack([[[2, 7, 8, *[3] * 17], [2, *range(6, 14), 3]]], row_length=32)
    candidate_T = Candidates(SPECIAL, VOCAB)(tokens)
    assert wanted(tokens, candidate_T, 0.15)[0, :4].tolist() == [0, 2, 2, 0]
    at = choose(tokens, 0.15, draws_of(tokens)).tolist()
    assert at[:2] == [1, 2]
    assert len(at) == 4
    assert all(21 <= i <= 28 for i in at[2:])


def test_every_subset_is_equally_likely() -> None:
    tokens = pack([[[6, 7, 8, 9, 10]]] * 20_000, row_length=5)
    at = choose(tokens, 0.4, draws_of(tokens, seed=1)).view(-1, 2) % 5
    counts = torch.bincount(at[:, 0] * 5 + at[:, 1], minlength=25)
    assert chisquare(counts[counts > 0].numpy()).pvalue > 1e-3
    assert int((counts > 0).sum()) == 10


@given(packed_batches(max_rows=6), st.data())
@settings(max_examples=50)
def test_independent_of_the_split_into_rows(tokens: Tokens, data: st.DataObject) -> None:
    """Micro-batches and ranks: rows cut out with their draws, or drawn for themselves from
    first_row on, see the same corruption."""
    m = mask(0.3, (0.5, 0.2, 0.3))
    whole = corrupted(m, tokens, draws_of(tokens, seed=5, step=7))
    cuts = sorted(
        {0, tokens.num_rows, *data.draw(st.lists(st.integers(0, tokens.num_rows), max_size=3))}
    )
    for a, b in pairwise(cuts):
        inside = (whole.at_M >= a * 32) & (whole.at_M < b * 32)
        part = tokens.rows(a, b)
        for draws in (
            draws_of(tokens, seed=5, step=7).rows(a, b),
            draws_of(part, seed=5, step=7, first_row=a),
        ):
            z = corrupted(m, part, draws)
            assert torch.equal(z.at_M + a * 32, whole.at_M[inside])
            assert torch.equal(z.plan.shown_M, whole.plan.shown_M[inside])
            assert torch.equal(z.tokens.ids_T, whole.tokens.ids_T[a * 32 : b * 32])


@pytest.mark.parametrize("mix", TABLE_8, ids=str)
def test_mix_shares_of_berts_table_8(mix: tuple[float, ...]) -> None:
    """The vocabulary is large, so that a random token is the original one time in 1000 only; the
    expectation corrects for it."""
    vocab = 1006
    tokens = plain_rows(400, 500, vocab=vocab)
    z = corrupted(mask(0.2, mix, vocab=vocab), tokens, draws_of(tokens, seed=11))
    n = len(z.at_M)
    assert n == 400 * 100
    masked, kept = z.plan.shown_M == SPECIAL.mask, z.plan.shown_M == z.was_M
    expected = [mix[0], mix[1] + mix[2] / 1000, mix[2] * 999 / 1000]
    seen = [int(masked.sum()), int(kept.sum()), int((~masked & ~kept).sum())]
    assert sum(seen) == n
    for share, number in zip(expected, seen, strict=True):
        if share == 0:
            assert number == 0
        assert abs(number - n * share) <= 4 * (n * share * (1 - share)) ** 0.5 + 1e-6, (
            share,
            number / n,
        )


def test_random_tokens_are_uniform_and_never_special() -> None:
    tokens = plain_rows(400, 250)
    z = corrupted(mask(0.4, (0.0, 0.0, 1.0)), tokens, draws_of(tokens, seed=2))
    counts = torch.bincount(z.plan.shown_M, minlength=VOCAB)
    assert counts[:6].tolist() == [0] * 6, "no special, [UNK] included"
    assert chisquare(counts[6:].numpy()).pvalue > 1e-3
