"""Documents -> sequences -> rows: where each sequence starts in the corpus, how long it is, and
which sequences share a row of fixed length. No token is read or masked here.

A document is cut into consecutive pieces, each as long as a row allows, and a shorter last piece
(the rest). Nothing is dropped, and no sequence contains two documents:

    one segment     [CLS] a [SEP]            row_length - 2 tokens of text at most
    two segments    [CLS] a [SEP] b [SEP]    row_length - 3
                    [CLS] a [SEP]            row_length - 2: one sequence in ten (single)

Rows are packed by best fit decreasing (Johnson 1974): longest sequence first, each into the fullest
row that still holds it. Lengths are small integers, so the algorithm runs on counts of equal rows
instead of on single sequences: the work grows with the square of the row length, whatever the size
of the corpus.

Shape suffixes: D documents of a shard, N sequences, R rows, L row length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ..draws import hashed

SINGLE_SHARE = 0.1
"""Share of sequences with one segment if two segments are asked for (as in the data of BERT and
ELECTRA, because the model must know both forms)."""

SHORTEST = 8
"""A rest shorter than this takes tokens from the piece before it. A sequence of one or two words
teaches nothing: there is no context to predict from. Measured on 9 M tokens of English at 128
slots, it costs 0.04 % of the slots; 32 would cost 0.8 %, and always halving the last two pieces 4.7
%."""

# With this many, the arrays of one cut fit into the cache, and memory is bounded for a shard of any
# size.
_DOCUMENTS_AT_ONCE = 1 << 15
_SINGLE = 0x73696E676C65  # "single": the purpose of this hash, apart from the purposes in draws.py


@dataclass(frozen=True)
class Sequences:
    """Sequences in the order of the corpus.

    start_N: offset of the first token, all shards end to end (int64). length_N: tokens of text,
    without special tokens (int32). single_N: True for [CLS] a [SEP], False for [CLS] a [SEP] b
    [SEP] (bool).
    """

    start_N: np.ndarray
    length_N: np.ndarray
    single_N: np.ndarray

    def __len__(self) -> int:
        return len(self.start_N)

    @property
    def slots_N(self) -> np.ndarray:
        """Slots of a row that each sequence takes, including special tokens (int32)."""
        return self.length_N + np.where(self.single_N, np.int32(2), np.int32(3))

    def take(self, order: np.ndarray) -> Sequences:
        return Sequences(self.start_N[order], self.length_N[order], self.single_N[order])


def sequences(documents: list[np.ndarray], *, max_seq_length: int, num_segments: int) -> Sequences:
    """Cuts every document into sequences of at most `max_seq_length` slots.

    documents: for each shard, one int64 array of documents + 1 token offsets (Corpus.documents).
    Whether a sequence is single depends only on the numbers of its document and of its piece, so it
    is the same in every epoch.
    """
    parts = list(_shards(documents, max_seq_length=max_seq_length, num_segments=num_segments))
    return Sequences(
        *(
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("start_N", "length_N", "single_N")
        )
    )


def _shards(
    documents: list[np.ndarray], *, max_seq_length: int, num_segments: int
) -> Iterator[Sequences]:
    yield Sequences(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, bool))
    first_document = first_token = 0
    for offsets in documents:
        for first in range(0, len(offsets) - 1, _DOCUMENTS_AT_ONCE):
            some = offsets[first : first + _DOCUMENTS_AT_ONCE + 1] + first_token
            yield _cut(
                some,
                first_document=first_document + first,
                max_seq_length=max_seq_length,
                num_segments=num_segments,
            )
        first_document += len(offsets) - 1
        first_token += int(offsets[-1])


def _cut(
    offsets: np.ndarray, *, first_document: int, max_seq_length: int, num_segments: int
) -> Sequences:
    length_D = np.diff(offsets)
    room = max_seq_length - 1 - num_segments
    pieces_D = -(-length_D // room)  # an upper bound: a single sequence holds one token more
    doc_N = np.repeat(np.arange(len(length_D)), pieces_D)
    # The index of the first piece of the same document.
    head_N = np.repeat(np.cumsum(pieces_D) - pieces_D, pieces_D)
    single_N = np.ones(len(doc_N), bool)
    if num_segments == 2:
        single_N = _is_single(doc_N + first_document, np.arange(len(doc_N)) - head_N)
    room_N = room + (single_N & (num_segments == 2))
    before_N = np.cumsum(room_N) - room_N
    inside_N = before_N - before_N[head_N]  # where the piece starts in its document
    length_N = np.minimum(room_N, length_D[doc_N] - inside_N)
    keep = length_N > 0
    start_N = (offsets[doc_N] + inside_N)[keep]
    doc_N = doc_N[keep]
    length_N = length_N[keep]
    single_N = single_N[keep]
    _lengthen_rests(doc_N, start_N, length_N, shortest=min(SHORTEST, room // 2))
    return Sequences(start_N, length_N.astype(np.int32), single_N | (length_N == 1))


def _lengthen_rests(
    doc_N: np.ndarray, start_N: np.ndarray, length_N: np.ndarray, *, shortest: int
) -> None:
    """In place: a rest shorter than `shortest` takes the tokens it lacks from the end of the piece
    before it."""
    rest = np.flatnonzero((doc_N[1:] == doc_N[:-1]) & (length_N[1:] < shortest)) + 1
    lacks = shortest - length_N[rest]
    start_N[rest] -= lacks
    length_N[rest] += lacks
    length_N[rest - 1] -= lacks


def _is_single(document_N: np.ndarray, piece_N: np.ndarray) -> np.ndarray:
    bits = (
        hashed(_SINGLE, torch.from_numpy(document_N), torch.from_numpy(piece_N))
        .numpy()
        .view(np.uint64)
    )
    return bits < np.uint64(SINGLE_SHARE * 2**64)


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
