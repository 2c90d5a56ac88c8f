"""Spans of tokens, and shares and temperatures that move during a run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from batches import SPECIAL, VOCAB, at_of, built, draws_of, pack, packed_batches, sequences_of
from electrify.corruption.choosing import Chooser, cut
from electrify.corruption.sampling import Sampling
from electrify.draws import Draws
from electrify.model.costs import Share
from electrify.tokens import Tokens


def chooser(rate: float = 0.15, span_length: int = 3, rate_end: float | None = None) -> Chooser:
    return Chooser(SPECIAL, VOCAB, rate=rate, rate_end=rate_end, span_length=span_length)


def at_share(draws: Draws, progress: float) -> Draws:
    return replace(draws, progress=torch.tensor(progress))


# ---------------------------------------------------------------- spans


def test_cutting_by_hand() -> None:
    """Two stretches, of 5 and 3 tokens. From 0 a span of 2, from 2 one of 2, from 4 one that its
    stretch cuts off; from 5 one of 3. What is drawn inside of a span counts nowhere."""
    begins = torch.tensor([[1, 0, 0, 0, 0, 1, 0, 0]]).bool()
    lengths = torch.tensor([[2, 9, 2, 1, 3, 3, 1, 1]])
    assert cut(begins, lengths).tolist() == [[True, False] * 2 + [True, True, False, False]]


@given(packed_batches(), st.integers(2, 5), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_spans_are_as_long_as_drawn_and_never_cross(
    tokens: Tokens, longest: int, seed: int
) -> None:
    """Against the plain loop that the cut stands for: from the start of a stretch, draw a length,
    go on behind the span."""
    c = chooser(span_length=longest)
    draws = draws_of(tokens, seed=seed)
    candidate_T = c.candidates(tokens)
    starts_RL = c.unit_starts(tokens, candidate_T, draws)
    drawn_RL = 1 + (draws.uniform_T("span").view(starts_RL.shape) * longest).long()
    candidate_RL = candidate_T.view(starts_RL.shape)
    first_RL = (tokens.pos_T == 0).view(starts_RL.shape)
    for row in range(len(starts_RL)):
        want: list[int] = []
        for i in range(tokens.row_length):
            before = bool(i) and bool(candidate_RL[row, i - 1]) and not bool(first_RL[row, i])
            if not (before and bool(candidate_RL[row, i])):
                want.append(i)  # a stretch begins
            elif i - want[-1] < int(drawn_RL[row, want[-1]]):
                want.append(want[-1])  # the span goes on
            else:
                want.append(i)
        assert starts_RL[row].tolist() == want


@given(packed_batches(), st.sampled_from([0.1, 0.3, 0.5]), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_about_as_many_tokens_as_without_spans(tokens: Tokens, rate: float, seed: int) -> None:
    """Up to half a span more or fewer, as with whole words; never a special token."""
    c = chooser(rate)
    draws = draws_of(tokens, seed=seed)
    at = set(at_of(c, tokens, draws).tolist())
    candidate_T = c.candidates(tokens)
    assert all(bool(candidate_T[i]) for i in at)
    for _, s, where in sequences_of(tokens):
        places = range(where.start, where.stop)
        number = sum(bool(candidate_T[i]) for i in places)
        wanted = min(max(1, round(len(places) * rate)), number)
        taken = len(at & set(places))
        assert abs(taken - wanted) <= 1 or taken <= 3, (s, taken, wanted)


def test_all_lengths_are_equally_frequent() -> None:
    tokens = pack([[[2, *range(6, 46), 3]]] * 4000, row_length=42)
    c = chooser(span_length=3)
    starts_RL = c.unit_starts(tokens, c.candidates(tokens), draws_of(tokens, seed=1))
    # Spans that begin in the middle of a row: those at its end may be cut off.
    inside = starts_RL[(starts_RL > 0) & (starts_RL < 36)]
    rows = torch.arange(len(starts_RL))[:, None].expand_as(starts_RL)
    where = rows[(starts_RL > 0) & (starts_RL < 36)] * 100 + inside
    lengths = Counter(Counter(where.tolist()).values())
    assert set(lengths) == {1, 2, 3}
    assert float(chisquare([lengths[n] for n in (1, 2, 3)]).pvalue) > 1e-3


def test_every_token_is_chosen_as_often() -> None:
    tokens = pack([[[2, *range(6, 26), 3]]] * 6000, row_length=22)
    at_M = at_of(chooser(0.3), tokens, draws_of(tokens, seed=2))
    counts_L = torch.bincount(at_M % 22, minlength=22)[1:-1].double()
    assert float(counts_L.min() / counts_L.max()) > 0.85


# ---------------------------------------------------------------- a share that moves


@pytest.mark.parametrize(("progress", "number"), [(0.0, 12), (0.5, 9), (1.0, 6)])
def test_the_share_falls_during_the_run(progress: float, number: int) -> None:
    tokens = pack([[[2, *range(6, 44), 3]]], row_length=40)
    c = chooser(0.3, 1, 0.15)
    draws = at_share(draws_of(tokens), progress)
    assert len(at_of(c, tokens, draws)) == number
    assert isinstance(c.share, Share)
    assert c.share.at(0.5) == pytest.approx(0.225)
    assert c.share.at(progress) * 40 == pytest.approx(number)
    assert chooser(0.3).share == 0.3
    plan = c.plan(tokens, draws, fixed=True)
    assert plan.valid_M is not None
    assert int(plan.valid_M.sum()) == number
    # One length of the list for the whole run, so that one compiled step fits all of it.
    assert len(plan.at_M) == len(c.plan(tokens, at_share(draws, 0.0), fixed=True).at_M)


def test_what_is_chosen_late_was_chosen_early() -> None:
    """The draws are the same, so the smaller share is a part of the larger one."""
    tokens = pack([[[2, *range(6, 44), 3]]], row_length=40)
    c = chooser(0.3, 1, 0.15)
    early, late = (
        set(at_of(c, tokens, at_share(draws_of(tokens), p)).tolist()) for p in (0.0, 1.0)
    )
    assert late < early


# ---------------------------------------------------------------- a temperature that moves


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.25, 1.0])
def test_temperature_by_its_formula(progress: float) -> None:
    """2310.07347: T = 1 + (T0 - 1) exp(-u / tau), which at the end is slightly above 1."""
    moved = Sampling(2.0, 1.0, schedule="exponential", decay=0.1)
    got = float(moved.temperature_at(torch.tensor(progress)))
    assert got == pytest.approx(1 + math.exp(-progress / 0.1), rel=1e-6)
    assert float(Sampling(2.0, 1.0).temperature_at(torch.tensor(progress))) == pytest.approx(
        2 - progress
    )
    still = Sampling(1.5, None, schedule="exponential")
    assert still.temperature_at(torch.tensor(progress)) == 1.5


def test_the_draws_follow_the_temperature_of_the_moment() -> None:
    fields = {"temperature": 50.0, "temperature_end": 0.02, "temperature_schedule": "exponential"}
    corruptor = built("electra-tiny", mask_rate=0.5, **fields).objective.corruptor
    tokens = pack([[[2, *range(6, 36), 3]]] * 50, row_length=32)
    kinds = []
    for progress in (0.0, 1.0):
        draws = at_share(draws_of(tokens), progress)
        z = corruptor(tokens, corruptor.plan(tokens, draws))
        assert z.p_MV is None
        best_M = z.logits_MV.argmax(-1)
        kinds.append(float((z.now_M == best_M).float().mean()))
    assert kinds[0] < 0.2
    assert kinds[1] > 0.9
