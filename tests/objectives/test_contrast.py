"""The contrast of sequences and their crops."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import draws_of, pack, packed_batches, sequences_of, text_batch
from electrify.corruption.choosing import enough
from electrify.objectives.corrective import crop, partner_ce


@given(
    tokens=packed_batches(),
    share=st.sampled_from([0.1, 0.5, 0.9, 0.99]),
    seed=st.integers(0, 2**30),
    fixed=st.booleans(),
)
def test_a_contiguous_part_behind_a_first_token_of_its_own(tokens, share, seed, fixed):
    view = crop(tokens, draws_of(tokens, seed=seed), share=share, fixed=fixed)
    crops = view.tokens
    inside = torch.zeros_like(tokens.real_T)
    firsts, crop_firsts = [], []
    for _, number, cut in sequences_of(tokens):
        (at,) = (crops.seq_T[cut] == number).nonzero(as_tuple=True)
        size = cut.stop - cut.start - 1
        kept = min(size, max(1, round(size * share)))
        assert len(at) == kept + 1, "its [CLS] and the part"
        first, last = cut.start + int(at[0]), cut.start + int(at[-1])
        assert last - first == kept, "contiguous"
        part = slice(first, last + 1)
        assert crops.pos_T[part].tolist() == list(range(kept + 1))
        assert crops.ids_T[first] == tokens.ids_T[cut.start]
        assert crops.segment_T[first] == 0, "as every [CLS]"
        assert torch.equal(crops.ids_T[first + 1 : part.stop], tokens.ids_T[first + 1 : part.stop])
        inside[part] = True
        firsts.append(cut.start)
        crop_firsts.append(first)
    assert torch.equal(crops.real_T, inside), "everything else counts as padding"
    valid = view.first_S.new_ones(len(view.first_S)).bool()
    valid = valid if view.valid_S is None else view.valid_S
    assert view.first_S[valid].tolist() == firsts
    assert view.crop_first_S[valid].tolist() == crop_firsts
    assert (view.valid_S is not None) == fixed


def test_every_place_is_drawn_equally_often() -> None:
    tokens = pack([[[2, *range(10, 20)]]] * 3000, row_length=11)
    view = crop(tokens, draws_of(tokens, seed=3), share=0.7)
    found = Counter((view.crop_first_S % 11).tolist())
    assert sorted(found) == [0, 1, 2, 3]
    assert all(abs(n - 750) < 4 * (750 * 0.75) ** 0.5 for n in found.values()), found


@pytest.mark.parametrize("runs", [7, 20, 40])
def test_the_runs_of_a_crop_are_one_of_few_numbers(runs: int) -> None:
    """A compiled step is compiled anew for each."""
    tokens = replace(text_batch(seed=4, rows=4, row_length=32), runs=runs)
    exact = crop(tokens, draws_of(tokens), share=0.9, fixed=False).tokens.runs
    few = crop(tokens, draws_of(tokens), share=0.9, fixed=True).tokens.runs
    assert exact == 3 * runs
    assert few == enough(4, 3 * runs) >= 3 * runs
    assert crop(tokens, draws_of(tokens), share=0.9, fixed=True).tokens.runs == few


def at(*degrees: float) -> torch.Tensor:
    radians_N = torch.tensor(degrees).deg2rad()
    return 7 * torch.stack([radians_N.cos(), radians_N.sin()], dim=1)


@pytest.mark.parametrize("filled", [False, True])
def test_partners_by_hand(filled: bool) -> None:
    """A group of two sequences at 0 and 30 degrees, whose partners lie at 60 and 90, and a group of
    one, where only the partner is left. With temperature .5 the first vector has exp(2 cos 60) for
    its partner, beside exp(2 cos 30) and exp(2 cos 90)."""
    group_S = torch.tensor([0, 0, 1, 0][: 3 + filled])
    valid_S = torch.tensor([True, True, True, False]) if filled else None
    views = [(0, 30, 45, 0)[: 3 + filled], (60, 90, 200, 0)[: 3 + filled]]
    loss_K, found_K = partner_ce(
        torch.cat([at(*views[0]), at(*views[1])]), group_S, valid_S, temperature=0.5
    )

    def ce(partner: float, *others: float) -> float:
        logits = [2 * math.cos(math.radians(x)) for x in (partner, *others)]
        return math.log(sum(map(math.exp, logits))) - logits[0]

    real = [0, 1, 2, *range(3 + filled, 6 + filled)]
    wanted = [ce(60, 30, 90), ce(60, 30, 30), 0.0, ce(60, 30, 30), ce(60, 90, 30), 0.0]
    assert loss_K[real].tolist() == pytest.approx(wanted, abs=1e-5)
    assert loss_K.isfinite().all()
    assert found_K[real].tolist() == [False, False, True, False, False, True]
