"""Step -> batch, as a pure function of (seed, step). So no state of the data has to be saved, and
each rank takes its own rows.

The rows of the corpus form an endless stream, with a new permutation for each epoch; batch k is
rows k * B to (k + 1) * B of this stream. If the row length changes during the run, each length has
its own stream (see phases.py).

Shape suffixes: N sequences of the corpus, S sequences of a batch, K runs of a batch (its sequences,
and the padding at the end of each row), R rows, T = rows * row_length flat tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch

from ..draws import hashed
from ..errors import UserError
from ..text.corpus import Corpus
from ..tokens import Tokens
from .examples import pack, sequences
from .phases import Phases

A = TypeVar("A")

_SPLIT = 0x73706C6974  # "split": the purpose of this hash, apart from the purposes in draws.py


class Rows:
    """A corpus as packed rows of one length. Opening it takes one pass over the document offsets,
    not over the tokens."""

    def __init__(self, corpus: Corpus, *, max_seq_length: int, num_segments: int) -> None:
        """Raises UserError if `max_seq_length` is too short for any sequence."""
        found = sequences(
            corpus.documents, max_seq_length=max_seq_length, num_segments=num_segments
        )
        order_N, self.first_R = pack(found.slots_N, row_length=max_seq_length)
        self.sequences = found.take(order_N)  # in the order of the rows
        self.row_length = max_seq_length
        self.special_ids = corpus.manifest.special_ids
        # A slice of a memmap takes ten times as long as a slice of an array.
        self.shards = [np.asarray(shard) for shard in corpus.tokens]
        self.shard_start = np.cumsum([0] + [len(shard) for shard in self.shards])

    @property
    def num_rows(self) -> int:
        return len(self.first_R) - 1

    @property
    def num_tokens(self) -> int:
        """The number of slots with a token, [CLS] and [SEP] included."""
        return int(self.sequences.slots_N.sum(dtype=np.int64))

    @property
    def fill_rate(self) -> float:
        """Share of the slots that hold a token."""
        return self.num_tokens / max(1, self.num_rows * self.row_length)

    def tokens(self, rows: np.ndarray, key_R: torch.Tensor) -> Tokens:
        """The given rows as a batch. key_R: 64 random bits for each row, which decide where its
        sequences are split into two segments."""
        count_R = self.first_R[rows + 1] - self.first_R[rows]
        number_S = _ranges(count_R)
        index_S = np.repeat(self.first_R[rows], count_R) + number_S
        length_S = self.sequences.length_N[index_S].astype(np.int64)
        single_S = self.sequences.single_N[index_S]
        a_S = self._first_segment(length_S, single_S, number_S, np.repeat(key_R.numpy(), count_R))
        # The padding at the end of a row is one more run. All runs together are exactly T slots, so
        # every field is made by one `repeat`.
        end_R = np.cumsum(count_R)
        slots_S = length_S + np.where(single_S, 2, 3)
        used_R = np.diff(np.cumsum(slots_S)[end_R - 1], prepend=0)
        slots_K = np.insert(slots_S, end_R, self.row_length - used_R)
        seq_T = np.repeat(np.insert(number_S + 1, end_R, 0), slots_K)
        pos_T = _ranges(slots_K) * (seq_T > 0)
        # The position of the first [SEP].
        sep_T = np.repeat(np.insert(a_S + 1, end_R, self.row_length), slots_K)
        last_T = np.repeat(np.insert(slots_S - 1, end_R, self.row_length), slots_K)
        text_T = (pos_T > 0) & (pos_T != sep_T) & (pos_T != last_T)
        ids_T = np.where(pos_T > 0, self.special_ids.sep, self.special_ids.cls)
        ids_T[seq_T == 0] = self.special_ids.pad
        ids_T[text_T] = self._text(self.sequences.start_N[index_S], length_S)
        fields = (ids_T, seq_T, pos_T, (pos_T > sep_T).astype(np.int64))
        return Tokens(
            *map(torch.from_numpy, fields),
            row_length=self.row_length,
            runs=int((slots_K > 0).sum()),
        )

    def _first_segment(
        self, length_S: np.ndarray, single_S: np.ndarray, number_S: np.ndarray, key_S: np.ndarray
    ) -> np.ndarray:
        """The number of tokens in the first segment: all for a single sequence, else 1 to length -
        1 with equal probability.

        The border is uniform and not near the middle, because the pairs of fine-tuning are of
        unequal length (a question and a paragraph), so every position must see both token types.
        """
        if single_S.all():
            return length_S
        bits = hashed(torch.from_numpy(key_S), _SPLIT, torch.from_numpy(number_S)).numpy().view(
            np.uint64
        ) >> np.uint64(11)
        inner = 1 + (bits * 2.0**-53 * (length_S - 1)).astype(np.int64)
        return np.where(single_S, length_S, inner)

    def _text(self, start_S: np.ndarray, length_S: np.ndarray) -> np.ndarray:
        shard_S = np.searchsorted(self.shard_start, start_S, side="right") - 1
        start_S = start_S - self.shard_start[shard_S]
        pieces = zip(shard_S.tolist(), start_S.tolist(), (start_S + length_S).tolist(), strict=True)
        return np.concatenate([self.shards[shard][start:stop] for shard, start, stop in pieces])

    def sequential(self, num_rows: int, *, limit: int | None = None) -> Iterator[Tokens]:
        """Batches of `num_rows` rows, always the same, for validation: `limit` rows, or all.
        Missing rows in the last batch hold only padding."""
        # Shuffled, because the packer puts similar rows next to each other, and `limit` must give a
        # fair sample.
        order = _permutation(self.num_rows, 0, 0)[:limit]
        for first in range(0, len(order), num_rows):
            rows = order[first : first + num_rows]
            yield _with_empty_rows(
                self.tokens(rows, hashed(_SPLIT, torch.from_numpy(rows))),
                num_rows=num_rows,
                pad=self.special_ids.pad,
            )


class Loader:
    """The endless streams of training rows, one for each length."""

    def __init__(self, corpus: Corpus, *, phases: Phases, num_segments: int, seed: int) -> None:
        """Raises UserError if the corpus is smaller than a batch."""
        self.corpus = corpus
        self.phases = phases
        self.seed = seed
        self.streams = {
            length: Rows(corpus, max_seq_length=length, num_segments=num_segments)
            for length in phases.row_lengths
        }
        self._permutations: dict[tuple[int, int], np.ndarray] = {}
        for phase in phases.all:
            rows = self.streams[phase.row_length].num_rows
            if rows < phase.batch_rows:
                raise UserError(
                    f"{corpus.folder}: the {corpus.split} split fills {rows} rows of "
                    f"{phase.row_length} tokens and one batch takes "
                    f"{phase.batch_rows}. Lower train_batch_size or max_seq_length, or prepare "
                    "more text"
                )

    def epoch(self, step: int) -> float:
        """The number of times that the corpus was seen before `step`."""
        return sum(
            taken / self.streams[length].num_rows
            for length, taken in self.phases.rows_taken(step).items()
        )

    def batch(self, step: int, *, first_row: int = 0, num_rows: int | None = None) -> Tokens:
        """Rows first_row to first_row + num_rows of the global batch of `step` (all rows by
        default)."""
        phase = self.phases.at(step)
        stop = phase.batch_rows if num_rows is None else first_row + num_rows
        row = torch.arange(first_row, stop)
        return self.streams[phase.row_length].tokens(
            self.rows(step, first_row, stop), hashed(self.seed, step, row)
        )

    def rows(self, step: int, first_row: int = 0, stop: int | None = None) -> np.ndarray:
        """The numbers of the global batch's rows (or some of them) among all rows of that
        length."""
        phase = self.phases.at(step)
        wanted = np.arange(first_row, phase.batch_rows if stop is None else stop)
        epoch, place = np.divmod(
            self.phases.first_row(step) + wanted, self.streams[phase.row_length].num_rows
        )
        return np.concatenate(
            [
                self._permutation(phase.row_length, e)[place[epoch == e]]
                for e in range(epoch[0], epoch[-1] + 1)
            ]
        )

    def _permutation(self, length: int, epoch: int) -> np.ndarray:
        # Replaced as a whole and never modified, because the thread that reads ahead uses it, too.
        known = self._permutations
        if (length, epoch) not in known:
            keep = {
                key: p for key, p in known.items() if key[0] == length and abs(key[1] - epoch) == 1
            }
            self._permutations = known = keep | {
                (length, epoch): _permutation(self.streams[length].num_rows, self.seed, epoch)
            }
        return known[length, epoch]


def prefetch(function: Callable[[int], A], steps: Iterable[int], *, depth: int = 2) -> Iterator[A]:
    """Yields function(step) for every step in order, computed by one thread up to `depth` steps
    ahead. Its exceptions are raised here."""
    waiting: deque[Future[A]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        try:
            for step in steps:
                waiting.append(thread.submit(function, step))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _permutation(size: int, *key: int) -> np.ndarray:
    # This uses argsort of raw bits and not Generator.permutation, whose algorithm numpy may change.
    bits = np.random.Philox(key=np.array(key, np.int64).view(np.uint64)).random_raw(size)
    return np.argsort(bits, kind="stable")


def _ranges(counts: np.ndarray) -> np.ndarray:
    """0 to counts[0] - 1, 0 to counts[1] - 1, ... in one int64 array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


def _with_empty_rows(tokens: Tokens, *, num_rows: int, pad: int) -> Tokens:
    missing = (num_rows - tokens.num_rows) * tokens.row_length
    if not missing:
        return tokens
    fields = ((tokens.ids_T, pad), (tokens.seq_T, 0), (tokens.pos_T, 0), (tokens.segment_T, 0))
    return Tokens(
        *(torch.nn.functional.pad(field, (0, missing), value=empty) for field, empty in fields),
        row_length=tokens.row_length,
    )
