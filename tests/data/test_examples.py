"""Documents cut into sequences, and sequences packed into rows."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.data import examples
from electrify.data.examples import SHORTEST, pack, sequences

lengths_of_shards = st.lists(st.lists(st.integers(0, 90), max_size=8), max_size=3)


def offsets(lengths: list[list[int]]) -> list[np.ndarray]:
    return [np.cumsum([0, *shard]).astype(np.int64) for shard in lengths]


@settings(max_examples=200, deadline=None)
@given(lengths_of_shards, st.integers(5, 40), st.sampled_from([1, 2]))
def test_every_token_is_in_exactly_one_sequence_and_no_sequence_crosses_a_document(
    lengths, row_length, num_segments
):
    """A short sequence is a short document; one token cannot be split in two."""
    found = sequences(offsets(lengths), max_seq_length=row_length, num_segments=num_segments)
    ends = found.start_N + found.length_N
    covered = [t for a, b in zip(found.start_N, ends, strict=True) for t in range(a, b)]
    assert covered == list(range(sum(map(sum, lengths))))
    sizes = [n for shard in lengths for n in shard]
    document_of_token = np.repeat(np.arange(len(sizes)), sizes)
    shortest = min(SHORTEST, (row_length - 1 - num_segments) // 2)
    for start, end, slots in zip(found.start_N, ends, found.slots_N, strict=True):
        assert end > start
        assert slots <= row_length
        assert document_of_token[start] == document_of_token[end - 1]
        assert end - start >= shortest or end - start in sizes
    assert found.single_N.all() if num_segments == 1 else found.single_N[found.length_N == 1].all()


def test_cut_by_hand():
    """Room for 30 tokens of text in 32 slots. 30 -> 30; 61 -> 30 + 30 + 1, whose rest takes 7; 38
    -> 30 + 8 as it stands; 3 -> 3."""
    found = sequences(offsets([[30, 0, 61], [38, 3]]), max_seq_length=32, num_segments=1)
    assert found.length_N.tolist() == [30, 30, 23, 8, 30, 8, 3]
    assert found.start_N.tolist() == [0, 30, 60, 83, 91, 121, 129]
    assert found.slots_N.tolist() == [32, 32, 25, 10, 32, 10, 5]


def test_one_in_ten_is_single_and_fills_the_row_too():
    found = sequences(offsets([[1000] * 2000]), max_seq_length=32, num_segments=2)
    share, spread = found.single_N.mean(), np.sqrt(0.09 / len(found))
    assert abs(share - 0.1) < 4 * spread
    full = found.slots_N == 32
    assert set(found.length_N[full & found.single_N]) == {30}
    assert set(found.length_N[full & ~found.single_N]) == {29}


def test_single_depends_on_the_document_and_the_piece_and_not_on_the_shards(monkeypatch):
    lengths = [70, 3, 0, 500, 12, 80] * 30
    whole = sequences(offsets([lengths]), max_seq_length=16, num_segments=2)
    split = sequences(offsets([lengths[:50], [], lengths[50:]]), max_seq_length=16, num_segments=2)
    monkeypatch.setattr(examples, "_DOCUMENTS_AT_ONCE", 7)
    in_parts = sequences(offsets([lengths]), max_seq_length=16, num_segments=2)
    for name in ("start_N", "length_N", "single_N"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(split, name))
        np.testing.assert_array_equal(getattr(whole, name), getattr(in_parts, name))
    pieces_of_one = sequences(offsets([[5000]]), max_seq_length=16, num_segments=2).single_N
    assert 0 < pieces_of_one.sum() < len(pieces_of_one), "the piece must matter"
    documents = sequences(offsets([[10] * 400]), max_seq_length=16, num_segments=2).single_N
    assert 0 < documents.sum() < len(documents), "the document must matter"


@pytest.mark.parametrize(("num_segments", "least"), [(1, 3), (2, 5)])
def test_the_shortest_row(num_segments, least):
    found = sequences(offsets([[7, 1, 0]]), max_seq_length=least, num_segments=num_segments)
    assert found.length_N.sum() == 8
    assert found.slots_N.max() == least


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
def test_counts_pack_as_the_textbook_packs_one_by_one(slots, row_length):
    """Every sequence in exactly one row. Equally full rows may be chosen in another order, so the
    fills of the rows are compared, not the rows."""
    order, first = pack(np.array(slots, np.int32), row_length=row_length)
    assert sorted(order) == list(range(len(slots)))
    assert (first[0], first[-1]) == (0, len(slots))
    rows = [[slots[i] for i in order[a:b]] for a, b in pairwise(first)]
    assert all(rows)
    assert Counter(map(sum, rows)) == Counter(map(sum, best_fit_decreasing(slots, row_length)))


def test_the_same_rows_every_time_and_not_neighbours_of_the_corpus():
    """A random order of 4000 numbers has a mean step of 1333."""
    slots = np.full(4000, 10, np.int32)
    (order, first), (again, _) = pack(slots, row_length=40), pack(slots, row_length=40)
    np.testing.assert_array_equal(order, again)
    assert set(np.diff(first)) == {4}
    assert np.abs(np.diff(order)).mean() > 1000


def test_golden_order():
    """Runs are continued with the same data only while this order stays."""
    order, first = pack(np.array([4, 4, 4, 9, 2, 4, 2, 9], np.int32), row_length=12)
    assert order.tolist() == [0, 2, 1, 3, 4, 7, 6, 5]
    assert first.tolist() == [0, 3, 5, 7, 8]
