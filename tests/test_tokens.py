from __future__ import annotations

import dataclasses

import pytest
import torch

from electrify.tokens import SpecialIds, Tokens, from_sequences

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


def test_real_is_what_is_no_pad():
    tokens = two_rows()
    assert tokens.num_rows == 2
    assert tokens.real_T.tolist() == [True] * 10 + [False] * 2


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


def test_with_ids_changes_the_ids_alone():
    tokens = two_rows()
    changed = tokens.with_ids(tokens.ids_T + 1)
    assert changed.ids_T.tolist() == [i + 1 for i in tokens.ids_T.tolist()]
    assert all(getattr(changed, f) is getattr(tokens, f) for f in FIELDS[1:])
    assert changed.row_length == 6
    assert tokens.ids_T[0] == 2


def test_tokens_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        two_rows().row_length = 12  # type: ignore[misc]


def test_from_sequences_by_hand():
    tokens = from_sequences([[2, 7, 3], [2, 3], []], row_length=4, pad=5)
    assert tokens.ids_T.tolist() == [2, 7, 3, 5, 2, 3, 5, 5, 5, 5, 5, 5]
    assert tokens.seq_T.tolist() == [1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert tokens.pos_T.tolist() == [0, 1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert tokens.segment_T.tolist() == [0] * 12
    assert (tokens.num_rows, tokens.row_length) == (3, 4)
    assert {getattr(tokens, f).dtype for f in FIELDS} == {torch.long}
