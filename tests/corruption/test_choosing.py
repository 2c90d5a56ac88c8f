"""Which positions are chosen: how many, as tokens, words or spans, uniformly or rare ones first;
where words begin; and how the rate moves over a run."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from batches import (
    NEVER_CHOSEN,
    SPECIAL,
    VOCAB,
    VOCABULARY,
    at_of,
    draws_of,
    pack,
    packed_batches,
    sequences_of,
)
from electrify.corruption.choosing import Chooser, count, rarity, wanted
from electrify.model.costs import MovingShare
from electrify.recipe import Corruption
from electrify.text.options import PrepareConfig
from electrify.text.tokenizer import save_trained, word_edges
from electrify.text.vocabulary import train
from electrify.tokens import Tokens
from electrify.train.monitor import counts_of_chosen


def chooser(rate: float = 0.15, **how: Any) -> Chooser:
    return Chooser(SPECIAL, VOCAB, rate=rate, **how)


@given(packed_batches(), st.sampled_from([0.01, 0.15, 0.25, 0.3, 0.5, 0.99]), st.integers(0, 2**40))
def test_exact_counts_never_a_special_never_padding(tokens: Tokens, rate: float, seed: int) -> None:
    at = at_of(chooser(rate), tokens, draws_of(tokens, seed=seed)).tolist()
    assert all(a < b for a, b in pairwise(at)), "ascending, so without replacement"
    ids = tokens.ids_T.tolist()
    for _, _, cut in sequences_of(tokens):
        allowed = [i for i in range(cut.start, cut.stop) if ids[i] not in NEVER_CHOSEN]
        chosen = [i for i in at if cut.start <= i < cut.stop]
        assert len(chosen) == min(len(allowed), max(1, round(rate * (cut.stop - cut.start))))
        assert set(chosen) <= set(allowed)
        at = [i for i in at if i not in chosen]
    assert at == [], "nothing chosen outside the sequences"


@pytest.mark.parametrize("rate", [0.07, 0.15, 0.25, 0.35, 0.55])
def test_rounding_is_pythons(rate: float) -> None:
    """Half to even. torch.round in float64 agrees; in float32 it does not (0.15 * 190)."""
    for length in range(1, 513):
        tokens = Tokens(*torch.ones(4, length, dtype=torch.long), row_length=length)
        number = int(wanted(tokens, torch.ones(length, dtype=torch.bool), rate).sum())
        assert number == max(1, round(rate * length)), length


def test_every_subset_is_equally_likely() -> None:
    tokens = pack([[[6, 7, 8, 9, 10]]] * 20_000, row_length=5)
    at = at_of(chooser(0.4), tokens, draws_of(tokens, seed=1)).view(-1, 2) % 5
    counts = torch.bincount(at[:, 0] * 5 + at[:, 1], minlength=25)
    assert chisquare(counts[counts > 0].numpy()).pvalue > 1e-3
    assert int((counts > 0).sum()) == 10


def units_of(tokens: Tokens, cut: slice, *, words: bool, length_T: list[int]) -> list[list[int]]:
    """The words or spans of a sequence, in plain Python: ids from VOCAB / 2 on join the candidate
    before them, and a span has the length drawn at its first token."""
    units: list[list[int]] = []
    ids = tokens.ids_T.tolist()
    for i in range(cut.start, cut.stop):
        if ids[i] in NEVER_CHOSEN:
            continue
        joins = i > cut.start and ids[i - 1] not in NEVER_CHOSEN
        joins = joins and (ids[i] >= VOCAB // 2 or not words)
        if joins and i - units[-1][0] < length_T[units[-1][0]]:
            units[-1].append(i)
        else:
            units.append([i])
    return units


@pytest.mark.parametrize(("words", "longest"), [(True, 1), (False, 2), (False, 5), (True, 3)])
@given(packed_batches(), st.sampled_from([0.05, 0.15, 0.5]), st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_words_and_spans_are_chosen_whole_and_about_as_many(words, longest, tokens, rate, seed):
    c = chooser(rate, edges=VOCABULARY.edges if words else None, span_length=longest)
    draws = draws_of(tokens, seed=seed)
    drawn_T = 1 + (draws.uniform_T("span") * longest).long()
    length_T = drawn_T.tolist() if longest > 1 else [tokens.row_length] * len(drawn_T)
    starts_RL = c.unit_starts(tokens, c.candidates(tokens), draws)
    starts = (starts_RL + tokens.row_length * torch.arange(tokens.num_rows)[:, None]).flatten()
    at = at_of(c, tokens, draws).tolist()
    assert len(at) == int(count(c.plan(tokens, draws, fixed=True)))
    for _, _, cut in sequences_of(tokens):
        units = units_of(tokens, cut, words=words, length_T=length_T)
        assert all(set(starts[unit].tolist()) == {unit[0]} for unit in units)
        taken = [unit for unit in units if set(unit) <= set(at)]
        inside = [i for i in at if cut.start <= i < cut.stop]
        assert sorted(i for unit in taken for i in unit) == inside, "no half of a unit"
        want = min(sum(map(len, units)), max(1, round(rate * (cut.stop - cut.start))))
        if units:
            most = max(map(len, units))
            assert len(taken) >= 1
            assert abs(len(inside) - want) <= max(most / 2, most - want)


def test_rare_tokens_are_chosen_more_often() -> None:
    """Two kinds of token with weights 1 and 3, one of eight drawn: the share of the heavy kind is
    3/4 (4000 rows, five standard errors)."""
    rows, weight_V = 4000, torch.ones(VOCAB, dtype=torch.float64)
    weight_V[7] = 3.0
    tokens = pack([[[6, 7] * 4]] * rows, row_length=8)
    at = at_of(chooser(0.1, weight_V=weight_V), tokens, draws_of(tokens))
    assert len(at) == rows
    share = float((tokens.ids_T[at] == 7).double().mean())
    assert abs(share - 0.75) < 5 * (0.75 * 0.25 / rows) ** 0.5
    # log 5, log 5/3; none counts as one
    found = rarity(torch.tensor([1, 3, 0])).tolist()
    assert found == pytest.approx([1.609438, 0.510826, 1.609438], abs=1e-6)


def entropy(counts_V: torch.Tensor) -> float:
    p = counts_V[counts_V > 0].double() / counts_V.sum()
    return float(-(p * p.log()).sum())


@pytest.mark.parametrize(("rate", "span"), [(0.15, 1), (0.5, 1), (0.15, 3)])
def test_how_often_each_token_is_chosen_where_rare_ones_are_preferred(rate, span):
    """As counted, and so the best loss without context; with half of all tokens chosen the
    preference must weaken. In spans of at most 3 tokens every second one is a first token."""
    weight_V = 1.0 / torch.arange(1, VOCAB + 1)
    weight_V[sorted(NEVER_CHOSEN)] = 0
    rng = torch.Generator().manual_seed(5)
    ids = torch.multinomial(weight_V, 200_000, replacement=True, generator=rng)
    counts_V = torch.bincount(ids, minlength=VOCAB).double()
    tokens = pack([[row] for row in ids.view(-1, 1000).tolist()], row_length=1000)
    at = at_of(chooser(rate, span_length=span, weight_V=rarity(counts_V)), tokens, draws_of(tokens))
    seen_V = torch.bincount(tokens.ids_T[at], minlength=VOCAB)
    unit = "span" if span > 1 else "token"
    c = Corruption(corruptor="mask", mask_rate=rate, mask_choice="rare", mask_unit=unit)
    found_V = counts_of_chosen(counts_V, c)
    assert abs(entropy(found_V) - entropy(seen_V)) < 0.01
    assert entropy(found_V) > entropy(counts_V) + 0.1
    assert entropy(found_V) < entropy(counts_V * rarity(counts_V)) - 0.01


def test_sequences_left_whole() -> None:
    tokens = pack([[[2, 7, 8, 9, 3], [2, 10, 11, 3]]] * 2000, row_length=9)
    at = set(at_of(chooser(0.3, clean_rate=0.2), tokens, draws_of(tokens)).tolist())
    whole = sum(not at & set(range(cut.start, cut.stop)) for _, _, cut in sequences_of(tokens))
    assert abs(whole / 4000 - 0.2) < 5 * (0.2 * 0.8 / 4000) ** 0.5


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
    how: dict[str, Any] = {"tokenizer": kind, "vocab_size": vocab_size, "min_frequency": 1}
    options = PrepareConfig(inputs=("x",), output_dir="x", **how)
    tokenizer = train(SENTENCES * 3, options)
    save_trained(tokenizer, tmp_path, options)
    edges, joined = word_edges(tmp_path), 0
    for text in [*SENTENCES, OTHERS]:
        found = tokenizer.encode(text, add_special_tokens=False)
        ids = torch.tensor(found.ids)
        joins = edges.joins(ids[:-1], ids[1:]).tolist()
        want = [a == b for a, b in zip(found.word_ids[:-1], found.word_ids[1:], strict=True)]
        assert joins == want, found.tokens
        joined += sum(joins)
    assert joined > 10, "no word fell into pieces; the test saw nothing"


@pytest.mark.parametrize(("progress", "number"), [(0.0, 12), (0.5, 9), (1.0, 6)])
def test_the_share_falls_during_the_run(progress: float, number: int) -> None:
    tokens = pack([[[2, *range(6, 44), 3]]], row_length=40)
    c = chooser(0.3, rate_end=0.15)
    first = draws_of(tokens)
    draws = replace(first, progress=torch.tensor(progress))
    assert len(at_of(c, tokens, draws)) == number
    assert isinstance(c.share, MovingShare)
    assert c.share.at(progress) * 40 == pytest.approx(number)
    assert chooser(0.3).share == 0.3
    plan = c.plan(tokens, draws, fixed=True)
    assert int(count(plan)) == number
    # One length of the list for the whole run, so that one compiled step fits all of it.
    assert len(plan.at_M) == len(c.plan(tokens, first, fixed=True).at_M)
