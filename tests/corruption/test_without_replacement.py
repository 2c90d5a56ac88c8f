"""Several draws from one distribution without replacement: the candidates of a selection."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare
from torch import Tensor

from electrify.corruption.sampling import Sampling, invert, without_replacement
from electrify.draws import draws_for

JUST_BELOW_1 = math.nextafter(1.0, 0.0)
NOW = torch.zeros(())


def uniforms(n: int, lanes: int, *, seed: int = 0) -> Tensor:
    """[n, lanes] as an objective draws them."""
    draws = draws_for(seed=seed, step=0, num_rows=1, row_length=n)
    return torch.stack([draws.uniform_T("candidates", lane) for lane in range(lanes)], 1)


def others(logits_V: Tensor, was: int, uniform_MJ: Tensor, *, temperature: float = 1.0) -> Tensor:
    """[M, J] for one and the same position."""
    n = len(uniform_MJ)
    sampling = Sampling(temperature)
    return sampling.others(logits_V.expand(n, -1), torch.full((n,), was), uniform_MJ, NOW)


def p_of(seen: Tensor, expected: Tensor) -> float:
    """p of counts against their expectation; what is expected less than 5 times is pooled."""
    often = expected >= 5
    counts = [*seen[often].tolist(), float(seen[~often].sum())]
    wanted = [*expected[often].tolist(), float(expected[~often].sum())]
    if wanted[-1] < 5:
        counts, wanted = counts[:-1], [w * sum(counts[:-1]) / sum(wanted[:-1]) for w in wanted[:-1]]
    return float(chisquare(counts, wanted).pvalue)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "logits", [[0.0] * 5, [1.0, -1.0, 3.0, 0.0, 2.5], [9.0, 0.0, 0.5, 1.0, -0.5]], ids=str
)
def test_every_order_is_as_frequent_as_it_should_be(logits, temperature):
    """Three of the four others, one after the other: p_a, p_b / (1 - p_a), p_c / (1 - p_a - p_b),
    computed in float64."""
    n, was = 20_000, 2
    p = (torch.tensor(logits, dtype=torch.float64) / temperature).exp()
    p[was] = 0.0
    p = p / p.sum()
    drawn = others(torch.tensor(logits), was, uniforms(n, 3), temperature=temperature)
    orders = list(itertools.permutations([i for i in range(5) if i != was], 3))
    expected = torch.tensor(
        [n * p[a] * p[b] / (1 - p[a]) * p[c] / (1 - p[a] - p[b]) for a, b, c in orders]
    )
    at = {order: k for k, order in enumerate(orders)}
    seen = torch.bincount(
        torch.tensor([at[tuple(row)] for row in drawn.tolist()]), minlength=len(orders)
    )
    assert p_of(seen.double(), expected) > 1e-3


def test_over_many_blocks_of_the_vocabulary() -> None:
    """The second draw over 1,000 words: p_j * sum over others of p_i / (1 - p_i), in float64. One
    word has half of the probability."""
    n, was = 20_000, 7
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    logits[300] = math.log(float(logits.exp().sum()))
    p = logits.double().exp()
    p[was] = 0.0
    p = p / p.sum()
    drawn = torch.cat([others(logits, was, u) for u in uniforms(n, 2).split(2000)])
    first = torch.bincount(drawn[:, 0], minlength=1000).double()
    second = torch.bincount(drawn[:, 1], minlength=1000).double()
    ratio = p / (1 - p)
    assert p_of(first, n * p) > 1e-3
    assert p_of(second, n * p * (ratio.sum() - ratio)) > 1e-3
    assert p_of(second, n * p) < 1e-9  # as it would be with replacement


@given(
    st.sampled_from([5, 9, 127, 128, 129, 256, 300]),
    st.integers(0, 999),
    st.sampled_from([0.1, 3.0, 60.0, 1e4]),
    st.sampled_from([0.3, 1.0, 4.0]),
)
def test_different_and_never_the_original(size, seed, spread, temperature):
    """Also where nearly all of the probability is that of the original, or underflows."""
    rng = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(6, size, generator=rng)
    logits[0] = 0.0
    logits[1] = -1e4
    was = torch.cat([torch.randint(0, size, (4,), generator=rng), logits[4:].argmax(-1)])
    logits[1, was[1]] = 1e4
    u = torch.rand(6, 4, generator=rng, dtype=torch.float64)
    u[2], u[3] = 0.0, JUST_BELOW_1
    drawn = Sampling(temperature).others(logits, was, u, NOW)
    for original, row in zip(was.tolist(), drawn.tolist(), strict=True):
        assert len({original, *row}) == 5
        assert 0 <= min(row) <= max(row) < size


@given(
    arrays("float32", (3, 300), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])),
    st.lists(st.floats(0, JUST_BELOW_1), min_size=12, max_size=12),
)
def test_each_draw_is_a_draw_from_what_is_left(raw: object, u: list[float]) -> None:
    """To the entry, in numbers that float32 adds without rounding: `invert` of the row without what
    was drawn before."""
    p = torch.as_tensor(raw)
    p[:, :4] += 1.0  # enough entries with some probability
    u_MJ = (torch.tensor(u, dtype=torch.float64).view(3, 4) * 2**8).floor() / 2**8
    drawn = without_replacement(p.clone(), u_MJ)
    for j in range(4):
        assert torch.equal(drawn[:, j], invert(p, u_MJ[:, j]))
        p.scatter_(1, drawn[:, j : j + 1], 0.0)


def test_all_others_are_found() -> None:
    drawn = others(torch.tensor([0.0, 50.0, -50.0, 200.0]), 3, uniforms(50, 3))
    assert drawn.sort(1).values.tolist() == [[0, 1, 2]] * 50
    assert drawn[:, 0].tolist() == [1] * 50


def test_no_row_no_gradient_and_no_crash() -> None:
    assert others(torch.zeros(7), 0, torch.zeros(0, 3, dtype=torch.float64)).shape == (0, 3)
    logits = torch.zeros(3, 7, requires_grad=True)
    drawn = Sampling().others(logits, torch.zeros(3, dtype=torch.long), uniforms(3, 2), NOW)
    assert not drawn.requires_grad
    assert drawn.dtype == torch.long
    broken = others(torch.full((7,), math.nan), 0, uniforms(3, 4))
    assert bool(((broken >= 0) & (broken < 7)).all())
