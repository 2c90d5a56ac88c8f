"""Whole words, rare tokens first, sequences left whole; where words begin; and how draws move over
a run."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import (
    SPECIAL,
    VOCAB,
    VOCABULARY,
    at_of,
    built,
    draws_of,
    pack,
    packed_batches,
    sequences_of,
)
from electrify.corruption.choosing import Chooser, count, cut, rarity
from electrify.corruption.sampling import Sampling
from electrify.draws import Draws
from electrify.model.costs import Share
from electrify.recipe import Corruption
from electrify.text.tokenizer import save_trained, word_edges
from electrify.text.vocabulary import train
from electrify.tokens import Tokens
from electrify.train.monitor import counts_of_chosen

EDGES = VOCABULARY.edges
assert EDGES is not None
NEVER = {0, 2, 3, 4, 5}


def words_of(tokens: Tokens, cut: slice) -> list[list[int]]:
    """The words of a sequence, in plain Python: ids from VOCAB / 2 on join the candidate before
    them."""
    words: list[list[int]] = []
    ids = tokens.ids_T.tolist()
    for i in range(cut.start, cut.stop):
        if ids[i] in NEVER:
            continue
        joins = ids[i] >= VOCAB // 2 and i > cut.start and ids[i - 1] not in NEVER
        if joins:
            words[-1].append(i)
        else:
            words.append([i])
    return words


@given(packed_batches(), st.sampled_from([0.05, 0.15, 0.5]), st.integers(0, 2**40))
@settings(max_examples=60)
def test_words_are_chosen_whole_and_about_as_many(tokens: Tokens, rate: float, seed: int) -> None:
    chooser, draws = Chooser(SPECIAL, VOCAB, rate=rate, edges=EDGES), draws_of(tokens, seed=seed)
    plan = chooser.plan(tokens, draws)
    at = plan.at_M.tolist()
    assert int(count(plan)) == len(at) == int(count(chooser.plan(tokens, draws, fixed=True)))
    for _, _, span in sequences_of(tokens):
        words = words_of(tokens, span)
        taken = [w for w in words if set(w) <= set(at)]
        assert sorted(i for w in taken for i in w) == [
            i for i in at if span.start <= i < span.stop
        ], "no half of a word"
        want = min(sum(map(len, words)), max(1, round(rate * (span.stop - span.start))))
        if words:
            longest = max(map(len, words))
            assert len(taken) >= 1
            assert abs(sum(map(len, taken)) - want) <= max(longest / 2, longest - want)


def test_rare_tokens_are_chosen_more_often() -> None:
    """Two kinds of token with weights 1 and 3, one of eight drawn: the share of the heavy kind is
    3/4 (4000 rows, five standard errors)."""
    rows, weight = 4000, torch.ones(VOCAB, dtype=torch.float64)
    weight[7] = 3.0
    tokens = pack([[[6, 7] * 4]] * rows, row_length=8)
    at = at_of(Chooser(SPECIAL, VOCAB, rate=0.1, weight_V=weight), tokens, draws_of(tokens))
    assert len(at) == rows
    share = float((tokens.ids_T[at] == 7).double().mean())
    assert abs(share - 0.75) < 5 * (0.75 * 0.25 / rows) ** 0.5


def test_how_often_each_token_is_chosen_where_rare_ones_are_preferred() -> None:
    """As counted, and so the best loss without context; with half of all tokens chosen the
    preference must weaken. In spans of at most 3 tokens every second one is a first token."""
    weight_V = 1.0 / torch.arange(1, VOCAB + 1)
    weight_V[sorted(NEVER)] = 0
    ids = torch.multinomial(
        weight_V, 200_000, replacement=True, generator=torch.Generator().manual_seed(5)
    )
    counts_V = torch.bincount(ids, minlength=VOCAB).double()
    tokens = pack([[row] for row in ids.view(-1, 1000).tolist()], row_length=1000)
    for rate, span in ((0.15, 1), (0.5, 1), (0.15, 3)):
        chooser = Chooser(SPECIAL, VOCAB, rate=rate, span_length=span, weight_V=rarity(counts_V))
        seen_V = torch.bincount(
            tokens.ids_T[at_of(chooser, tokens, draws_of(tokens))], minlength=VOCAB
        )
        c = Corruption(
            corruptor="mask",
            mask_rate=rate,
            mask_choice="rare",
            mask_unit="span" if span > 1 else "token",
        )
        found_V = counts_of_chosen(counts_V, c)
        assert abs(entropy(found_V) - entropy(seen_V)) < 0.01
        assert entropy(found_V) > entropy(counts_V) + 0.1
        assert entropy(found_V) < entropy(counts_V * rarity(counts_V)) - 0.01


def entropy(counts_V: torch.Tensor) -> float:
    p = counts_V[counts_V > 0].double() / counts_V.sum()
    return float(-(p * p.log()).sum())


def test_rarity_by_hand() -> None:
    assert rarity(torch.tensor([1, 3, 0])).tolist() == pytest.approx(
        [1.609438, 0.510826, 1.609438], abs=1e-6
    )  # log 5, log 5/3; none counts as one


def test_sequences_left_whole() -> None:
    tokens = pack([[[2, 7, 8, 9, 3], [2, 10, 11, 3]]] * 2000, row_length=9)
    chooser, draws = Chooser(SPECIAL, VOCAB, rate=0.3, clean_rate=0.2), draws_of(tokens)
    at = set(at_of(chooser, tokens, draws).tolist())
    whole = sum(not at & set(range(cut.start, cut.stop)) for _, _, cut in sequences_of(tokens))
    assert abs(whole / 4000 - 0.2) < 5 * (0.2 * 0.8 / 4000) ** 0.5
    assert int(count(chooser.plan(tokens, draws))) == len(at)


def test_disallow_correct_and_temperature() -> None:
    logits = torch.zeros(5000, 4)
    logits[:, 2] = 2.0
    was, u = torch.full((5000,), 2), (torch.arange(5000) + 0.5) / 5000
    drawn, p = Sampling(disallow_correct=True).draw(logits, was, u, torch.tensor(0.0))
    assert p is None, "not the softmax of the logits"
    assert torch.bincount(drawn, minlength=4).tolist() == pytest.approx(
        [1667, 1667, 0, 1666], abs=2
    )
    moving = Sampling(1.0, 4.0)
    start, end = (moving.draw(logits, was, u, torch.tensor(progress))[0] for progress in (0.0, 1.0))
    # e^2 / (3 + e^2) = .7112; at temperature 4 e^.5 / (3 + e^.5) = .3547
    assert float((start == 2).double().mean()) == pytest.approx(0.7112, abs=1e-3)
    assert float((end == 2).double().mean()) == pytest.approx(0.3547, abs=1e-3)


SENTENCES = [
    "the gardener of the umbrella was not unremarkable, was it?",
    "tokenization of antidisestablishmentarianism (and floccinaucinihilipilification) takes one.",
    "wavelength of the gardener and umbrellas; remarkable pieces of tokens...",
]
OTHERS = (
    "the pieces unumbrellable gardenerization takes, wavelengthening remarkableness tokenizational "
    "umbrellagarden, piecestoken takespieces."
)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_words_are_those_of_the_tokenizer(kind: str, tmp_path: Path) -> None:
    """Read from the vocabulary alone, equal to what the tokenizer's own splitting says."""
    vocab_size = {"wordpiece": 480, "bpe": 300, "unigram": 120}[kind]
    how: dict[str, Any] = {"kind": kind, "lowercase": True, "strip_accents": True}
    tokenizer = train(SENTENCES * 3, vocab_size=vocab_size, min_frequency=1, **how)
    save_trained(tokenizer, tmp_path, **how)
    edges, joined = word_edges(tmp_path), 0
    for text in [*SENTENCES, OTHERS]:
        found = tokenizer.encode(text, add_special_tokens=False)
        ids = torch.tensor(found.ids)
        joins = edges.joins(ids[:-1], ids[1:]).tolist()
        want = [a == b for a, b in zip(found.word_ids[:-1], found.word_ids[1:], strict=True)]
        assert joins == want, found.tokens
        joined += sum(joins)
    assert joined > 10, "no word fell into pieces; the test saw nothing"


def chooser(rate: float = 0.15, span_length: int = 3, rate_end: float | None = None) -> Chooser:
    return Chooser(SPECIAL, VOCAB, rate=rate, rate_end=rate_end, span_length=span_length)


def at_share(draws: Draws, progress: float) -> Draws:
    return replace(draws, progress=torch.tensor(progress))


@given(packed_batches(), st.integers(2, 5), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_spans_are_as_long_as_drawn_and_never_cross(tokens, longest, seed):
    """Against the plain loop that the cut stands for: from the start of a stretch, draw a length,
    go on behind the span."""
    c = chooser(span_length=longest)
    draws = draws_of(tokens, seed=seed)
    candidate_T = c.candidates(tokens)
    starts_RL = c.unit_starts(tokens, candidate_T, draws)
    drawn_RL = 1 + (draws.uniform_T("span").view(starts_RL.shape) * longest).long()
    candidate_RL = candidate_T.view(starts_RL.shape)
    first_RL = (tokens.pos_T == 0).view(starts_RL.shape)
    for row in range(len(starts_RL)):
        want: list[int] = []
        for i in range(tokens.row_length):
            before = bool(i) and bool(candidate_RL[row, i - 1]) and not bool(first_RL[row, i])
            if not (before and bool(candidate_RL[row, i])):
                want.append(i)  # a stretch begins
            elif i - want[-1] < int(drawn_RL[row, want[-1]]):
                want.append(want[-1])  # the span goes on
            else:
                want.append(i)
        assert starts_RL[row].tolist() == want


@given(packed_batches(), st.sampled_from([0.1, 0.3, 0.5]), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_about_as_many_tokens_as_without_spans(tokens: Tokens, rate: float, seed: int) -> None:
    """Up to half a span more or fewer, as with whole words; never a special token."""
    c = chooser(rate)
    draws = draws_of(tokens, seed=seed)
    at = set(at_of(c, tokens, draws).tolist())
    candidate_T = c.candidates(tokens)
    assert all(bool(candidate_T[i]) for i in at)
    for _, s, where in sequences_of(tokens):
        places = range(where.start, where.stop)
        number = sum(bool(candidate_T[i]) for i in places)
        wanted = min(max(1, round(len(places) * rate)), number)
        taken = len(at & set(places))
        assert abs(taken - wanted) <= 1 or taken <= 3, (s, taken, wanted)


@pytest.mark.parametrize(("progress", "number"), [(0.0, 12), (0.5, 9), (1.0, 6)])
def test_the_share_falls_during_the_run(progress: float, number: int) -> None:
    tokens = pack([[[2, *range(6, 44), 3]]], row_length=40)
    c = chooser(0.3, 1, 0.15)
    draws = at_share(draws_of(tokens), progress)
    assert len(at_of(c, tokens, draws)) == number
    assert isinstance(c.share, Share)
    assert c.share.at(0.5) == pytest.approx(0.225)
    assert c.share.at(progress) * 40 == pytest.approx(number)
    assert chooser(0.3).share == 0.3
    plan = c.plan(tokens, draws, fixed=True)
    assert plan.valid_M is not None
    assert int(plan.valid_M.sum()) == number
    # One length of the list for the whole run, so that one compiled step fits all of it.
    assert len(plan.at_M) == len(c.plan(tokens, at_share(draws, 0.0), fixed=True).at_M)


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.25, 1.0])
def test_temperature_by_its_formula(progress: float) -> None:
    """2310.07347: T = 1 + (T0 - 1) exp(-u / tau), which at the end is slightly above 1."""
    moved = Sampling(2.0, 1.0, schedule="exponential", decay=0.1)
    got = float(moved.temperature_at(torch.tensor(progress)))
    assert got == pytest.approx(1 + math.exp(-progress / 0.1), rel=1e-6)
    assert float(Sampling(2.0, 1.0).temperature_at(torch.tensor(progress))) == pytest.approx(
        2 - progress
    )
    still = Sampling(1.5, None, schedule="exponential")
    assert still.temperature_at(torch.tensor(progress)) == 1.5


def test_the_draws_follow_the_temperature_of_the_moment() -> None:
    fields = {"temperature": 50.0, "temperature_end": 0.02, "temperature_schedule": "exponential"}
    corruptor = built("electra-tiny", mask_rate=0.5, **fields).objective.corruptor
    tokens = pack([[[2, *range(6, 36), 3]]] * 50, row_length=32)
    kinds = []
    for progress in (0.0, 1.0):
        draws = at_share(draws_of(tokens), progress)
        z = corruptor(tokens, corruptor.plan(tokens, draws))
        assert z.p_MV is None
        best_M = z.logits_MV.argmax(-1)
        kinds.append(float((z.now_M == best_M).float().mean()))
    assert kinds[0] < 0.2
    assert kinds[1] > 0.9


def test_cutting_by_hand() -> None:
    """Two stretches, of 5 and 3 tokens. From 0 a span of 2, from 2 one of 2, from 4 one that its
    stretch cuts off; from 5 one of 3. What is drawn inside of a span counts nowhere."""
    begins = torch.tensor([[1, 0, 0, 0, 0, 1, 0, 0]]).bool()
    lengths = torch.tensor([[2, 9, 2, 1, 3, 3, 1, 1]])
    assert cut(begins, lengths).tolist() == [[True, False] * 2 + [True, True, False, False]]
