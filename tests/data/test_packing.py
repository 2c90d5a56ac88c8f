from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.data.packing import pack, row_patterns

some_slots = st.lists(st.integers(1, 24), max_size=120)


def best_fit_decreasing(slots: list[int], row_length: int) -> list[tuple[int, ...]]:
    """The textbook algorithm, one sequence at a time."""
    rows: list[list[int]] = []
    for length in sorted(slots, reverse=True):
        fits = [row for row in rows if sum(row) + length <= row_length]
        if fits:
            max(fits, key=sum).append(length)
        else:
            rows.append([length])
    return [tuple(row) for row in rows]


@settings(max_examples=300, deadline=None)
@given(some_slots, st.integers(24, 40))
def test_every_sequence_in_exactly_one_row_and_no_row_too_long(slots, row_length):
    order, first = pack(np.array(slots, np.int32), row_length=row_length)
    assert sorted(order) == list(range(len(slots)))
    assert first[0] == 0
    assert first[-1] == len(slots)
    for start, stop in pairwise(first):
        assert stop > start
        assert sum(slots[i] for i in order[start:stop]) <= row_length


@settings(max_examples=300, deadline=None)
@given(some_slots, st.integers(24, 40))
def test_counts_pack_as_the_textbook_packs_one_by_one(slots, row_length):
    """Equally full rows may be chosen in another order, so the fills of the rows are compared, not
    the rows."""
    kinds = row_patterns(
        np.bincount(slots, minlength=row_length + 1).tolist() if slots else [0] * (row_length + 1),
        row_length=row_length,
    )
    ours: Counter[int] = Counter()
    for lengths, rows in kinds:
        ours[sum(lengths)] += rows
    assert ours == Counter(map(sum, best_fit_decreasing(slots, row_length)))


def test_rows_by_hand():
    """12 slots: 12 | 7 + 5 | 6 + 6 | 3 + 3 + 3 + 3; one 3 is left alone."""
    slots = np.array([3, 6, 3, 12, 5, 3, 6, 3, 7, 3], np.int32)
    order, first = pack(slots, row_length=12)
    rows = [tuple(slots[order[a:b]].tolist()) for a, b in pairwise(first)]
    assert sorted(rows) == [(3,), (3, 3, 3, 3), (6, 6), (7, 5), (12,)]


def test_the_same_rows_every_time_and_not_neighbours_of_the_corpus():
    slots = np.full(4000, 10, np.int32)
    (order, first), (again, _) = pack(slots, row_length=40), pack(slots, row_length=40)
    np.testing.assert_array_equal(order, again)
    assert set(np.diff(first)) == {4}
    assert np.abs(np.diff(order)).mean() > 1000, (
        "a random order of 4000 numbers has a mean step of 1333"
    )


def test_golden_order():
    """Runs are continued with the same data only while this order stays."""
    order, first = pack(np.array([4, 4, 4, 9, 2, 4, 2, 9], np.int32), row_length=12)
    assert (order.tolist(), first.tolist()) == GOLDEN


GOLDEN = ([0, 2, 1, 3, 4, 7, 6, 5], [0, 3, 5, 7, 8])
