import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from batches import from_sequences
from electrify.draws import _PURPOSES, draws_for, hashed
from electrify.tokens import SpecialIds, Tokens, mapped

PURPOSES = list(_PURPOSES)
MASK = (1 << 64) - 1


def reference(*coordinates: int) -> int:
    """The hash in plain integers: SplitMix64's finaliser once a coordinate."""
    state = 0
    for c in coordinates:
        x = (state * 0x9E3779B97F4A7C15 + c * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        state = x ^ (x >> 31)
    return state


def uniform(
    purpose="choose", *, seed=1, step=0, num_rows=64, row_length=512, first_row=0
) -> torch.Tensor:
    return draws_for(
        seed=seed, step=step, num_rows=num_rows, row_length=row_length, first_row=first_row
    ).uniform_T(purpose)


def chi_square_bound(cells: int) -> float:
    """Mean plus five standard deviations of chi-square with cells - 1 degrees of freedom. Seeds are
    fixed, so a test never flickers."""
    return (cells - 1) + 5 * (2 * (cells - 1)) ** 0.5


def test_purposes_keep_their_numbers():
    """Each number is part of every random stream: new purposes are appended."""
    first = ["choose", "mix", "random_token", "sample", "sentence"]
    assert list(_PURPOSES.items())[:5] == [(name, n) for n, name in enumerate(first, 1)]
    assert len(set(_PURPOSES.values())) == len(_PURPOSES)


@pytest.mark.parametrize(
    "coordinates", [(0,), (1, 2, 3), (-1,), (7, 0, 0, 2**62), (-(2**63), 2**63 - 1)]
)
def test_hash_equals_its_definition_in_plain_integers(coordinates):
    assert int(hashed(*coordinates)) & MASK == reference(*coordinates)


@pytest.mark.parametrize(
    ("seed", "step", "row", "purpose", "position", "bits"),
    [
        (0, 0, 0, "choose", 0, 6_159_561_494_995_056),
        (1, 1_000, 2, "mix", 127, 7_285_082_083_944_980),
        (42, 766_000, 255, "random_token", 17, 155_046_964_957_786),
        (2**62, 5, 1, "sample", 15, 2_525_369_570_623_479),
        (3, 0, 7, "sentence", 1, 811_719_848_422_075),
    ],
)
def test_golden_values(seed, step, row, purpose, position, bits):
    """Saved runs continue with the same draws only while these stay."""
    draws = draws_for(seed=seed, step=step, num_rows=1, row_length=position + 1, first_row=row)
    assert int(draws.bits_T(purpose)[position]) == bits


def test_a_draw_is_the_hash_of_its_coordinates():
    seed, step, first_row, row_length = 3, 17, 5, 24
    draws = draws_for(seed=seed, step=step, num_rows=4, row_length=row_length, first_row=first_row)
    for purpose, number in _PURPOSES.items():
        bits = draws.bits_T(purpose).reshape(4, row_length)
        for row, position in ((0, 0), (2, 23), (3, 7)):
            assert (
                int(bits[row, position])
                == reference(reference(seed, step, first_row + row), number, position) >> 11
            )


@pytest.mark.parametrize("purpose", PURPOSES)
def test_uniform(purpose):
    u = uniform(purpose)
    assert u.dtype == torch.float64
    assert u.shape == (64 * 512,)
    assert u.min() >= 0
    assert u.max() < 1
    n = u.numel()
    cells = torch.histc(u, 256, 0, 1)
    assert ((cells - n / 256) ** 2 / (n / 256)).sum() < chi_square_bound(256)
    rank = torch.arange(1, n + 1, dtype=torch.float64) / n
    assert (u.sort().values - rank).abs().max() < 1.95 / n**0.5, "Kolmogorov-Smirnov at 0.1 %"


def test_any_split_into_ranks_and_micro_batches_sees_the_same_numbers():
    whole = draws_for(seed=9, step=4, num_rows=12, row_length=16)
    for size in (1, 3, 4, 6):
        for first in range(0, 12, size):
            part = draws_for(seed=9, step=4, num_rows=size, row_length=16, first_row=first)
            for purpose in PURPOSES:
                expected = whole.uniform_T(purpose)[first * 16 : (first + size) * 16]
                assert torch.equal(part.uniform_T(purpose), expected)
                assert torch.equal(whole.rows(first, first + size).uniform_T(purpose), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_agree_to_the_bit():
    draws = draws_for(seed=1, step=2, num_rows=8, row_length=128)
    for purpose in PURPOSES:
        on_gpu = mapped(draws, Tensor.cuda).uniform_T(purpose)
        assert torch.equal(on_gpu.cpu(), draws.uniform_T(purpose))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(0, 31))
def test_numbers_and_tensors_are_the_same_coordinates(coordinates, as_tensors):
    """Python's integers stay outside of tensors as long as they can, and the hash is the same."""
    mixed = [torch.tensor([c]) if as_tensors >> i & 1 else c for i, c in enumerate(coordinates)]
    wanted = hashed(*(torch.tensor([c]) for c in coordinates))
    assert int(hashed(*mixed)) == int(hashed(*coordinates)) == int(wanted)


FIELDS = ("ids_T", "seq_T", "pos_T", "segment_T")


def two_rows() -> Tokens:
    """A row of two sequences and one of a single sequence and two pads."""
    ids = torch.tensor([2, 7, 3, 2, 8, 3, 2, 9, 9, 3, 0, 0])
    seq = torch.tensor([1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 0, 0])
    pos = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 0, 0])
    return Tokens(ids, seq, pos, torch.zeros(12, dtype=torch.long), row_length=6)


def test_specials_that_are_never_chosen():
    """[UNK] is a candidate; further specials of the tokenizer are not."""
    assert SpecialIds(pad=0, unk=100, cls=101, sep=102, mask=103).never_chosen == (0, 101, 102, 103)
    assert SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4, others=(9, 1, 2)).never_chosen == (
        0,
        2,
        3,
        4,
        9,
    )


def test_rows_are_views_of_whole_rows():
    tokens = two_rows()
    second = tokens.rows(1, 2)
    assert second.ids_T.tolist() == [2, 9, 9, 3, 0, 0]
    assert second.seq_T.tolist() == [1, 1, 1, 1, 0, 0]
    assert second.pos_T.tolist() == [0, 1, 2, 3, 0, 0]
    assert (second.num_rows, second.row_length) == (1, 6)
    assert all(getattr(second, f).data_ptr() == getattr(tokens, f)[6:].data_ptr() for f in FIELDS)
    assert tokens.rows(0, 0).num_rows == 0
    assert all(torch.equal(getattr(tokens.rows(0, 2), f), getattr(tokens, f)) for f in FIELDS)


def test_from_sequences_by_hand():
    tokens = from_sequences([[2, 7, 3], [2, 3], []], row_length=4, pad=5)
    assert tokens.ids_T.tolist() == [2, 7, 3, 5, 2, 3, 5, 5, 5, 5, 5, 5]
    assert tokens.seq_T.tolist() == [1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert tokens.pos_T.tolist() == [0, 1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert tokens.segment_T.tolist() == [0] * 12
    assert (tokens.num_rows, tokens.row_length) == (3, 4)
    assert {getattr(tokens, f).dtype for f in FIELDS} == {torch.long}


def test_some_rows_of_a_batch_keep_what_packed_kernels_need():
    ids_T = torch.arange(12)
    tokens = Tokens(ids_T, ids_T // 2, ids_T % 2, ids_T * 0, row_length=4, runs=9)
    own = tokens.rows(1, 3)
    assert (own.ids_T.tolist(), own.runs, own.num_rows) == ([*range(4, 12)], 9, 2)
