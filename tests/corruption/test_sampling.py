"""One draw from a distribution, several without replacement (the candidates of a selection), and
how the temperature moves over a run."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from batches import p_of_draws
from electrify.corruption.sampling import Sampling, invert, without_replacement
from electrify.draws import draws_for

JUST_BELOW_1 = math.nextafter(1.0, 0.0)
INF = math.inf
NOW = torch.zeros(())


def sample(logits_MV: Tensor, uniform_M: Tensor, temperature: float = 1.0) -> Tensor:
    was_M = torch.zeros(len(logits_MV), dtype=torch.long)
    return Sampling(temperature=temperature).draw(logits_MV, was_M, uniform_M, NOW)[0]


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.25, 1.0])
def test_temperature_by_its_formula(progress: float) -> None:
    """2310.07347: T = 1 + (T0 - 1) exp(-u / tau), which at the end is slightly above 1."""
    now = torch.tensor(progress)
    falls = {
        Sampling(2.0, 1.0, schedule="exponential", decay=0.1): 1 + math.exp(-progress / 0.1),
        Sampling(2.0, 1.0): 2 - progress,
        Sampling(1.5, None, schedule="exponential"): 1.5,
    }
    for sampling, wanted in falls.items():
        assert float(sampling.temperature_at(now)) == pytest.approx(wanted, rel=1e-6)


def test_disallow_correct_and_temperature() -> None:
    """e^2 / (3 + e^2) = .7112; at temperature 4 e^.5 / (3 + e^.5) = .3547."""
    logits = torch.zeros(5000, 4)
    logits[:, 2] = 2.0
    was, u = torch.full((5000,), 2), (torch.arange(5000) + 0.5) / 5000
    drawn, p = Sampling(disallow_correct=True).draw(logits, was, u, NOW)
    assert p is None, "not the softmax of the logits"
    seen = torch.bincount(drawn, minlength=4).tolist()
    assert seen == pytest.approx([1667, 1667, 0, 1666], abs=2)
    for progress, share in ((0.0, 0.7112), (1.0, 0.3547)):
        drawn, _ = Sampling(1.0, 4.0).draw(logits, was, u, torch.tensor(progress))
        assert float((drawn == 2).double().mean()) == pytest.approx(share, abs=1e-3)


def uniforms(n: int, *, seed: int = 0) -> Tensor:
    return draws_for(seed=seed, step=0, num_rows=1, row_length=n).uniform_T("sample")


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize(
    "logits",
    [
        [1.0, -1.0, 3.0, 0.0, 2.5],
        [-INF, 0.0, -INF, -INF, 1.0, -INF],
        [1e4, 1e4 - 1, 0.0],
        [-1e30, -1e30, -INF],
    ],
    ids=str,
)
def test_follows_the_softmax(logits: list[float], temperature: float) -> None:
    n, logits_V = 20_000, torch.tensor(logits)
    drawn = sample(logits_V.expand(n, -1), uniforms(n), temperature=temperature)
    assert p_of_draws(drawn, (logits_V.double() / temperature).softmax(-1)) > 1e-3


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
    drawn = torch.cat([sample(logits.expand(200, -1), part) for part in even.split(200)])
    counts = torch.bincount(first[drawn], minlength=blocks).double()
    assert float((counts - expected).abs().max()) <= 1.01


def test_inversion_by_hand() -> None:
    """Probabilities 1/4, 1/2, 1/4: boundaries belong to the upper token, so that each interval is
    half open."""
    logits = torch.tensor([1.0, 2.0, 1.0]).log().expand(7, -1)
    u = torch.tensor([0.0, 0.24999, 0.25, 0.5, 0.74999, 0.75001, JUST_BELOW_1], dtype=torch.float64)
    assert sample(logits, u).tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2.0**-24, JUST_BELOW_1])
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


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_candidates_are_drawn_from_the_softmax_of_the_others(temperature: float) -> None:
    """But for the rounding of a probability next to a uniform number."""
    rng = torch.Generator().manual_seed(1)
    logits_MV, was_M = 2 * torch.randn(5000, 300, generator=rng), torch.arange(5000) % 300
    uniform_MJ = torch.rand(5000, 3, generator=rng, dtype=torch.float64)
    p_MV = (logits_MV.double() / temperature).softmax(-1).scatter(1, was_M[:, None], 0.0)
    wanted = without_replacement(p_MV.float(), uniform_MJ)
    found = Sampling(temperature).others(logits_MV, was_M, uniform_MJ, NOW)
    assert float((found == wanted).double().mean()) > 0.999


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


def test_no_row_no_gradient_and_no_crash() -> None:
    logits = torch.full((3, 7), math.nan, requires_grad=True)
    uniform = uniforms(12).view(3, 4)
    for rows in (0, 3):
        was = torch.zeros(rows, dtype=torch.long)
        drawn = Sampling().others(logits[:rows], was, uniform[:rows], NOW)
        assert (drawn.shape, drawn.dtype) == ((rows, 4), torch.long)
        assert not drawn.requires_grad
        assert bool(((drawn >= 0) & (drawn < 7)).all())
