"""Batches as a function of seed and step: rows, epochs, lengths, and what every row holds."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import SPECIAL, lognormal_lengths, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import one_phase
from electrify.data.loader import Loader, Rows, prefetch
from electrify.data.phases import Phases, phases_of
from electrify.errors import UserError
from electrify.recipe import load, override
from electrify.text.corpus import Corpus
from electrify.tokens import Tokens


def same(one: Tokens, other: Tokens) -> bool:
    return all(
        torch.equal(getattr(one, f), getattr(other, f))
        for f in ("ids_T", "seq_T", "pos_T", "segment_T")
    )


def texts(tokens: Tokens) -> list[tuple[list[int], int]]:
    """An independent reader: (text, tokens of the first segment) of every sequence; asserts the
    layout on the way."""
    found, runs = [], 0
    length = tokens.row_length
    names = ("ids_T", "seq_T", "pos_T", "segment_T")
    fields = [getattr(tokens, name).view(-1, length).tolist() for name in names]
    for ids, seq, pos, segment in zip(*fields, strict=True):
        used = sum(s > 0 for s in seq)
        assert ids[used:] == [SPECIAL.pad] * (length - used)
        assert seq[used:] == pos[used:] == segment[used:] == [0] * (length - used)
        runs += max(seq) + (used < length)
        start = 0
        for number in range(1, max(seq) + 1):
            size = seq.count(number)
            cut = slice(start, start + size)
            assert seq[cut] == [number] * size
            assert pos[cut] == list(range(size))
            one = ids[cut]
            assert (one[0], one[-1]) == (SPECIAL.cls, SPECIAL.sep)
            seps = [i for i, token in enumerate(one) if token == SPECIAL.sep]
            assert len(seps) in (1, 2)
            assert segment[cut] == [0] * (seps[0] + 1) + [1] * (size - seps[0] - 1)
            text = [t for t in one if t > SPECIAL.mask]
            assert len(text) == size - 1 - len(seps)
            found.append((text, seps[0] - 1))
            start += size
        assert start == used
    assert tokens.runs in (None, runs)
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return write_corpus(
        tmp_path_factory.mktemp("corpus"),
        [lognormal_lengths(300), [], [0, 1, 0], lognormal_lengths(200, seed=1)],
        vocab_size=400_000,
    )


def loader(
    corpus: Corpus,
    *,
    batch_rows: int = 16,
    num_segments: int = 2,
    seed: int = 1,
    max_seq_length: int = 128,
) -> Loader:
    return Loader(
        corpus,
        phases=one_phase(row_length=max_seq_length, batch_rows=batch_rows),
        num_segments=num_segments,
        seed=seed,
    )


def only(data: Loader) -> Rows:
    """The rows of a loader of one length."""
    (rows,) = data.streams.values()
    return rows


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), max_size=6), min_size=1, max_size=3),
    st.integers(5, 24),
    st.sampled_from([1, 2]),
    st.sampled_from([3000, 70_000]),
    st.integers(1, 5),
)
def test_no_token_is_lost_and_documents_keep_their_order(
    tmp_path_factory, lengths, row_length, num_segments, vocab_size, num_rows
):
    corpus = write_corpus(tmp_path_factory.mktemp("c"), lengths, vocab_size=vocab_size)
    assert corpus.tokens[0].dtype == (np.uint32 if vocab_size == 70_000 else np.uint16)
    rows = Rows(corpus, max_seq_length=row_length, num_segments=num_segments)
    batches = list(rows.sequential(num_rows))
    pieces = [text for tokens in batches for text, _ in texts(tokens)]
    # Ids count upwards through the corpus, so sorted pieces stand in the order of the corpus.
    assert [t for piece in sorted(pieces) for t in piece] == np.concatenate(corpus.tokens).tolist()
    assert len(pieces) == len(rows.sequences)
    used = sum(int(tokens.real_T.sum()) for tokens in batches)
    assert used == rows.num_tokens == round(rows.fill_rate * rows.num_rows * row_length)


def test_golden_batch(tmp_path):
    """A run is resumed with the same data only while this stays."""
    corpus = write_corpus(tmp_path, [[9, 30, 4], [2, 17]])
    tokens = loader(corpus, batch_rows=3, max_seq_length=16, seed=7).batch(5)
    assert tokens.runs == 6
    assert tokens.ids_T.reshape(3, 16).tolist() == [
        [2, 5, 6, 7, 8, 3, 9, 10, 11, 12, 13, 3, 0, 0, 0, 0],
        [2, 50, 51, 52, 53, 54, 55, 56, 3, 57, 58, 59, 60, 3, 0, 0],
        [2, 27, 28, 29, 3, 30, 31, 32, 33, 34, 35, 36, 37, 3, 0, 0],
    ]


@pytest.mark.parametrize("num_segments", [1, 2])
def test_each_epoch_shows_every_row_once_in_a_new_order(corpus, num_segments):
    data = loader(corpus, num_segments=num_segments)
    steps = -(-3 * only(data).num_rows // 16)
    stream = torch.cat([data.batch(step).ids_T.reshape(-1, 128) for step in range(steps)])
    # A row is known by the text it holds: where its sequences are split changes from visit to
    # visit.
    rows = [tuple(t for t in row if t > SPECIAL.mask) for row in stream.tolist()]
    epochs = [rows[e * only(data).num_rows : (e + 1) * only(data).num_rows] for e in range(3)]
    assert len(set(epochs[0])) == only(data).num_rows
    assert set(epochs[0]) == set(epochs[1]) == set(epochs[2])
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.mean([a == b for a, b in zip(epochs[one], epochs[other], strict=True)]) < 0.05


def test_a_batch_is_a_function_of_seed_and_step_alone(corpus):
    one, other = loader(corpus), loader(corpus)
    last = 3 * only(one).num_rows // 16 + 1
    forward = {step: one.batch(step) for step in range(last)}
    for step in reversed(range(last)):
        assert same(other.batch(step), forward[step])
    other_seed = loader(corpus, seed=2)
    assert not any(same(other_seed.batch(step), forward[step]) for step in range(last))


@pytest.mark.parametrize("size", [1, 3, 16])
def test_slices_are_parts_of_the_global_batch(corpus, size):
    data = loader(corpus)
    straddling = only(data).num_rows // 16
    assert only(data).num_rows % 16, "this test wants a batch that belongs to two epochs"
    for step in (0, straddling, straddling + 1):
        whole = data.batch(step)
        for first in range(0, 16, size):
            count = min(size, 16 - first)
            assert same(
                data.batch(step, first_row=first, num_rows=count), whole.rows(first, first + count)
            )


@pytest.mark.parametrize(
    ("max_seq_length", "num_segments"), [(128, 1), (128, 2), (256, 2), (512, 2)]
)
def test_98_percent_of_the_slots_hold_a_token(tmp_path, max_seq_length, num_segments):
    corpus = write_corpus(tmp_path, [lognormal_lengths(4000, median=150, spread=1.1)])
    assert Rows(corpus, max_seq_length=max_seq_length, num_segments=num_segments).fill_rate >= 0.98


def test_where_a_pair_is_split_is_uniform_and_changes_with_every_visit(tmp_path):
    data = loader(write_corpus(tmp_path, [[13] * 40]), max_seq_length=16, batch_rows=40)
    firsts = [a for step in range(100) for text, a in texts(data.batch(step)) if a < len(text)]
    counts = np.bincount(firsts, minlength=14)
    assert counts[[0, 13]].tolist() == [0, 0]
    expected = len(firsts) / 12
    chi_square = ((counts[1:13] - expected) ** 2 / expected).sum()
    assert chi_square < 11 + 4 * np.sqrt(22)
    per_text: dict[tuple[int, ...], set[int]] = {}
    for step in range(20):
        for text, a in texts(data.batch(step)):
            per_text.setdefault(tuple(text), set()).add(a)
    assert all(len(seen) > 3 or seen == {13} for seen in per_text.values())


def test_sequential_is_fixed_and_pads_the_last_batch(corpus):
    rows = Rows(corpus, max_seq_length=128, num_segments=2)
    assert rows.num_rows % 50
    batches = list(rows.sequential(50))
    assert [t.num_rows for t in batches] == [50] * -(-rows.num_rows // 50)
    assert all(same(a, b) for a, b in zip(batches, rows.sequential(50), strict=True))
    missing = 50 - rows.num_rows % 50
    empty = batches[-1].rows(50 - missing, 50)
    assert (empty.ids_T == SPECIAL.pad).all()
    assert not empty.seq_T.any()
    assert not empty.pos_T.any()
    assert not empty.segment_T.any()
    assert batches[-1].rows(49 - missing, 50 - missing).seq_T.any()
    # The size of the batches changes nothing about the rows.
    assert same(next(rows.sequential(20)), batches[0].rows(0, 20))


def test_limit_is_a_fair_sample(tmp_path):
    """The packer leaves rows of one kind together: the first tenth would be full rows only."""
    rows = Rows(
        write_corpus(tmp_path, [lognormal_lengths(3000, median=60, spread=0.8)]),
        max_seq_length=128,
        num_segments=1,
    )
    (sample,) = rows.sequential(rows.num_rows // 5, limit=rows.num_rows // 5)
    per_row = sample.seq_T.reshape(-1, 128).amax(1).double()
    assert abs(per_row.mean() - len(rows.sequences) / rows.num_rows) < 4 * per_row.std() / np.sqrt(
        len(per_row)
    )
    assert len(list(rows.sequential(10, limit=25))) == 3
    assert (
        sum(int(t.seq_T.reshape(-1, 128).any(1).sum()) for t in rows.sequential(10, limit=25)) == 25
    )


def test_prefetch_keeps_the_order_runs_ahead_and_raises_at_its_step():
    ahead, released = threading.Event(), threading.Event()

    def function(step: int) -> int:
        if step == 2:
            ahead.set()
        if step == 3:
            assert released.wait(10)
        if step == 5:
            raise UserError("step 5 is broken")
        return step * step

    results = prefetch(function, range(10), depth=2)
    assert next(results) == 0
    assert ahead.wait(10), "step 2 is computed before step 1 is asked for"
    released.set()
    assert [next(results) for _ in range(4)] == [1, 4, 9, 16]
    with pytest.raises(UserError, match="step 5 is broken"):
        next(results)
    assert not [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def two_lengths(**fields: Any) -> Phases:
    """100 updates: 60 with rows of 8, the rest of 16; batches of 2 for the first 30, then of 4."""
    recipe = {
        "max_steps": 100,
        "max_seq_length": 16,
        "train_batch_size": 4,
        "seq_length_schedule": {8: 0.6},
        "batch_size_schedule": {2: 0.3},
    }
    return phases_of(override(load("electra-tiny"), recipe | fields))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, [(0, 8, 2), (30, 8, 4), (60, 16, 4)]),
        ({"batch_size_schedule": {2: 0.7}}, [(0, 8, 2), (60, 16, 2), (70, 16, 4)]),
        ({"batch_size_schedule": {}}, [(0, 8, 4), (60, 16, 4)]),
        ({"seq_length_schedule": {}, "batch_size_schedule": {}}, [(0, 16, 4)]),
        (
            {"seq_length_schedule": {16: 0.2, 8: 0.3}, "batch_size_schedule": {}},
            [(0, 16, 4), (20, 8, 4), (50, 16, 4)],
        ),
        ({"seq_length_schedule": {8: 0.001}, "batch_size_schedule": {}}, [(0, 16, 4)]),
    ],
)
def test_phases_by_hand(fields: dict[str, Any], wanted: list[tuple[int, int, int]]):
    phases = two_lengths(**fields)
    assert [(p.first, p.row_length, p.batch_rows) for p in phases.all] == wanted
    slots = 0
    taken = dict.fromkeys(phases.row_lengths, 0)
    for step in range(120):
        now = phases.at(step)
        assert (phases.slots(step), phases.first_row(step)) == (slots, taken[now.row_length])
        assert phases.rows_taken(step) == taken
        slots += now.row_length * now.batch_rows
        taken[now.row_length] += now.batch_rows


def test_each_length_goes_through_the_corpus_once_an_epoch(tmp_path: Path):
    corpus = write_corpus(tmp_path, [lognormal_lengths(12, median=20, spread=0.5)])
    phases = two_lengths()
    data = Loader(corpus, phases=phases, num_segments=1, seed=3)
    batches = [data.batch(step) for step in range(100)]
    assert [(b.num_rows, b.row_length) for b in batches[::10]] == [(2, 8)] * 3 + [(4, 8)] * 3 + [
        (4, 16)
    ] * 4
    for length, stream in data.streams.items():
        rows = [
            tuple(row)
            for b in batches
            if b.row_length == length
            for row in b.ids_T.view(-1, length).tolist()
        ]
        epoch = stream.num_rows
        assert len(rows) > epoch, "this test wants more than an epoch"
        assert len(set(rows[:epoch])) == len(set(rows)) == epoch
    assert data.epoch(60) == pytest.approx(180 / data.streams[8].num_rows)
    assert data.epoch(70) == pytest.approx(
        180 / data.streams[8].num_rows + 40 / data.streams[16].num_rows
    )
    again = Loader(corpus, phases=phases, num_segments=1, seed=3)
    assert same(again.batch(65), batches[65])
    alone = Loader(corpus, phases=one_phase(row_length=8, batch_rows=2), num_segments=1, seed=3)
    assert same(alone.batch(7), batches[7])
