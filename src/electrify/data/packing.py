"""Sequences -> rows: several whole sequences in each row of fixed length, with hardly any slots
left over.

Best fit decreasing (Johnson 1974): longest sequence first, each into the fullest row that still
holds it. Lengths are small integers, so the algorithm runs on counts of equal rows instead of on
single sequences: the work grows with the square of the row length, whatever the size of the corpus.

Shape suffixes: N sequences, R rows, L row length.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

_RANDOM_BITS = 40


def pack(slots_N: np.ndarray, *, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """The order of the sequences, row after row (int64 [N]), and where each row begins in that
    order (int64 [R + 1]).

    slots_N: slots that each sequence takes, 1 to row_length. Sequences of equal length are
    interchangeable: which of them goes where is random but fixed, so that a row does not hold
    sequences that are neighbours in the corpus, which would make a batch less varied.
    """
    # Philox is specified bit by bit, so the order does not depend on the version of numpy
    # (permutation() may).
    keys = np.random.Philox(key=0).random_raw(len(slots_N)) >> np.uint64(64 - _RANDOM_BITS)
    by_length = np.argsort(
        (slots_N.astype(np.uint64) << np.uint64(_RANDOM_BITS)) | keys, kind="stable"
    )
    count_L = np.bincount(slots_N, minlength=row_length + 1)
    taken_L = np.cumsum(count_L) - count_L  # index in by_length of the next sequence of each length
    order = [np.empty(0, np.int64)]
    per_row = [np.empty(0, np.int64)]
    for lengths, rows in row_patterns(count_L.tolist(), row_length=row_length):
        columns = []
        for length, times in Counter(lengths).items():
            columns.append(
                by_length[taken_L[length] : taken_L[length] + rows * times].reshape(rows, times)
            )
            taken_L[length] += rows * times
        order.append(np.hstack(columns).ravel())
        per_row.append(np.full(rows, len(lengths)))
    return np.concatenate(order), np.concatenate([[0], np.cumsum(np.concatenate(per_row))])


def row_patterns(count_L: list[int], *, row_length: int) -> list[tuple[tuple[int, ...], int]]:
    """Best fit decreasing on counts. count_L: how many sequences take 0, 1, ..., row_length slots.

    Returns (lengths in one row, longest first; number of such rows).
    """
    # rows_with[room]: the kinds of rows that have `room` free slots.
    rows_with: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in range(row_length + 1)]
    for length in range(row_length, 0, -1):
        left = count_L[length]
        rows_with[row_length] = [((), left)]  # as many empty rows as could be needed
        for room in range(length, row_length + 1):
            # The fullest row remains the fullest as long as it can hold one more sequence, so it
            # takes all it can before the next row.
            fit = room // length
            kinds = rows_with[room]
            while left and kinds:
                lengths, rows = kinds.pop()
                times, taken = (fit, min(rows, left // fit)) if left >= fit else (left, 1)
                left -= times * taken
                rows_with[room - times * length].append((lengths + (length,) * times, taken))
                if rows > taken:
                    kinds.append((lengths, rows - taken))
    return [kind for kinds in rows_with[:row_length] for kind in kinds]
