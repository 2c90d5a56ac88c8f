from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare
from torch import Tensor

from electrify.corruption.sampling import invert
from electrify.corruption.sampling import sample as sample_and_probabilities
from electrify.draws import draws_for

JUST_BELOW_1 = math.nextafter(1.0, 0.0)
INF = math.inf


def sample(logits_MV: Tensor, uniform_M: Tensor, **more: float) -> Tensor:
    return sample_and_probabilities(logits_MV, uniform_M, **more)[0]


def uniforms(n: int, *, seed: int = 0) -> Tensor:
    return draws_for(seed=seed, step=0, num_rows=1, row_length=n).uniform_T("sample")


def chi_square(logits_V: Tensor, *, n: int, temperature: float = 1.0) -> float:
    """p of n draws against softmax(logits / temperature); entries expected less than 5 times are
    pooled."""
    drawn = sample(logits_V.expand(n, -1), uniforms(n), temperature=temperature)
    expected = (logits_V.double() / temperature).softmax(-1) * n
    counts = torch.bincount(drawn, minlength=len(logits_V)).double()
    assert not counts[expected == 0].any()
    rare = expected < 5
    seen, wanted = counts[~rare].tolist(), expected[~rare].tolist()
    if float(expected[rare].sum()) >= 5:
        seen, wanted = [*seen, float(counts[rare].sum())], [*wanted, float(expected[rare].sum())]
    else:
        assert float(counts[rare].sum()) <= 5 + 5 * 5
        wanted = [w * sum(seen) / sum(wanted) for w in wanted]
    return float(chisquare(seen, wanted).pvalue)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "logits",
    [
        [0.0, 0.0, 0.0],
        [1.0, -1.0, 3.0, 0.0, 2.5],
        [-INF, 0.0, -INF, -INF, 1.0, -INF],
        [80.0, 79.0, -80.0, 80.0],
        [1e4, 1e4 - 1, 0.0],
        [-1e30, -1e30, -INF],
    ],
    ids=str,
)
def test_follows_the_softmax(logits: list[float], temperature: float) -> None:
    assert chi_square(torch.tensor(logits), n=20_000, temperature=temperature) > 1e-3


def test_follows_the_softmax_over_30k() -> None:
    """A peaked and a flat half: the cumulative sum of 30 000 float32 numbers must still resolve the
    flat one. Evenly spaced uniform numbers must hit every block of the vocabulary as often as its
    probability says, to within one draw at either end."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.cat([3 * torch.randn(15_000, generator=rng), torch.full((15_522,), 3.0)])
    n, blocks = 2_000, 40
    even = (torch.arange(n).double() + 0.5) / n
    p = logits.double().softmax(-1)
    first = torch.arange(30_522) * blocks // 30_522
    expected = torch.zeros(blocks, dtype=torch.float64).index_add(0, first, p) * n
    for u, tolerance in ((even, 1.01), (uniforms(n), None)):
        drawn = torch.cat([sample(logits.expand(200, -1), part) for part in u.split(200)])
        counts = torch.bincount(first[drawn], minlength=blocks).double()
        if tolerance:
            assert float((counts - expected).abs().max()) <= tolerance
        else:
            assert (
                float(chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue) > 1e-3
            )


def test_inversion_by_hand() -> None:
    """Probabilities 1/4, 1/2, 1/4: boundaries belong to the upper token, so that each interval is
    half open."""
    logits = torch.tensor([1.0, 2.0, 1.0]).log().expand(7, -1)
    u = torch.tensor([0.0, 0.24999, 0.25, 0.5, 0.74999, 0.75001, JUST_BELOW_1], dtype=torch.float64)
    assert sample(logits, u).tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-24, 1 - 2.0**-25, JUST_BELOW_1])
@pytest.mark.parametrize(
    "logits",
    [
        [-INF, 0.0, -INF],
        [0.0, -INF, -INF],
        [-INF, -INF, 0.0],
        [-INF, 0.0, -200.0, 0.0, -INF, -INF],
        [-200.0, 0.0, 0.0, 0.0, -200.0],  # exp(-200) is 0 in float32
        [1e30, -1e30, 0.0],
        [0.0, *[-INF] * 30_000, 0.0, *[-INF] * 500],
        [-INF, *[0.0] * 30_000, -INF],
    ],
    ids=lambda v: str(v[:6]) if isinstance(v, list) else str(v),
)
def test_never_a_token_of_probability_zero_at_the_ends(logits: list[float], u: float) -> None:
    row = torch.tensor([logits])
    drawn = sample(row, torch.tensor([u], dtype=torch.float64))
    assert float(row.softmax(-1)[0, drawn]) > 0


@given(
    arrays(
        "float32",
        (4, 9),
        elements=st.one_of(
            st.floats(-120, 120, width=32), st.sampled_from([-INF, 0.0, -1e30, 1e30, -104.0, 88.0])
        ),
    ),
    st.lists(
        st.one_of(st.floats(0, JUST_BELOW_1), st.sampled_from([0.0, JUST_BELOW_1, 0.5])),
        min_size=4,
        max_size=4,
    ),
    st.sampled_from([0.1, 1.0, 3.0]),
)
def test_never_a_token_of_probability_zero(raw: object, u: list[float], temperature: float) -> None:
    logits = torch.as_tensor(raw)
    logits[:, 4] = logits[:, 4].clamp(min=-120)  # a row of nothing but -inf is not a distribution
    drawn = sample(logits, torch.tensor(u, dtype=torch.float64), temperature=temperature)
    probability = (logits / temperature).softmax(-1)
    assert (probability.gather(1, drawn[:, None]) > 0).all()


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.floats(0, JUST_BELOW_1))
def test_is_the_inverse_of_the_distribution(logits: list[float], u: float) -> None:
    """Against the cumulative sum in float64, but for u within float32 rounding of a boundary."""
    p = torch.tensor(logits, dtype=torch.float64).softmax(-1)
    cumulative = p.cumsum(-1)
    drawn = int(
        sample(
            torch.tensor([logits], dtype=torch.float64).float(),
            torch.tensor([u], dtype=torch.float64),
        )
    )
    below = float(cumulative[drawn - 1]) if drawn else 0.0
    assert below - 2e-6 <= u <= float(cumulative[drawn]) + 2e-6


@given(
    st.sampled_from([1, 2, 127, 128, 129, 255, 256, 257, 300]),
    st.integers(0, 999),
    st.sampled_from([0.02, 0.5, 1.0]),
)
def test_blocks_of_the_vocabulary_give_the_entry_of_the_whole_cumulative_sum(size, seed, share):
    """Multiples of 2^-19 with the sum 1 are added without rounding in any order, so both ways agree
    to the bit: at boundaries and just below."""
    rng = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 1024, (16, size), generator=rng) * (
        torch.rand(16, size, generator=rng) < share
    )
    counts[:, seed % size] += 2**19 - counts.sum(-1)
    p = counts.float() / 2**19
    cumulative = p.cumsum(-1)
    boundary = cumulative.gather(1, torch.randint(0, size, (16, 1), generator=rng)).clamp(
        max=1 - 2**-19
    )
    u = (boundary - torch.arange(16)[:, None] % 2 * 2**-20).clamp(min=0)
    assert torch.equal(
        invert(p, u.squeeze(1).double()), torch.searchsorted(cumulative, u, right=True).squeeze(1)
    )


@pytest.mark.parametrize(
    "row",
    [[math.nan, 0.0, 0.0], [0.0, 0.0, math.nan], [INF, 0.0, 0.0], [-INF, -INF, -INF]],
    ids=str,
)
def test_logits_that_are_no_numbers_still_give_an_id(row: list[float]) -> None:
    """An id outside the vocabulary would crash the lookup before the loop can say that the loss is
    not finite. Other rows do not notice."""
    drawn = sample(
        torch.tensor([row, [0.0, 5e4, 0.0]]), torch.tensor([0.5, 0.5], dtype=torch.float64)
    )
    assert 0 <= int(drawn[0]) < 3
    assert int(drawn[1]) == 1


def test_no_row_and_no_gradient() -> None:
    assert sample(torch.zeros(0, 7), torch.zeros(0, dtype=torch.float64)).shape == (0,)
    logits = torch.zeros(3, 7, requires_grad=True)
    drawn = sample(logits, uniforms(3))
    assert not drawn.requires_grad
    assert drawn.dtype == torch.long
