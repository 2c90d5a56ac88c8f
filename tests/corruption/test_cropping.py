"""Crops: of every sequence a contiguous part of the size asked for, behind a [CLS] of its own."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from batches import draws_of, pack, packed_batches, sequences_of
from electrify.corruption.cropping import View, crop
from electrify.tokens import Tokens


@given(
    tokens=packed_batches(),
    share=st.sampled_from([0.1, 0.5, 0.9, 0.99]),
    seed=st.integers(0, 2**30),
    fixed=st.booleans(),
)
def test_a_contiguous_part_behind_a_first_token_of_its_own(
    tokens: Tokens, share: float, seed: int, fixed: bool
) -> None:
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


def test_rows_alone_are_cropped_as_rows_together() -> None:
    tokens = pack([[[2, 9, 8, 7, 6, 3], [2, 9, 3]], [[2, 7, 7, 8, 3]]] * 8, row_length=16)
    whole = crop(tokens, draws_of(tokens), share=0.6).tokens
    for row in range(tokens.num_rows):
        draws = draws_of(tokens).rows(row, row + 1)
        alone: View = crop(tokens.rows(row, row + 1), draws, share=0.6)
        assert torch.equal(alone.tokens.ids_T, whole.rows(row, row + 1).ids_T)
        assert torch.equal(alone.tokens.seq_T, whole.rows(row, row + 1).seq_T)
