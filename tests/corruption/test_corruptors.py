"""What holds for every corruptor, whatever the text, and how each of them draws."""

from dataclasses import replace
from functools import cache
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
    built,
    corrupted,
    draws_of,
    p_of_draws,
    pack,
    packed_batches,
)
from electrify.corruption.choosing import Chooser, count
from electrify.corruption.masking import Frequency, MaskMix
from electrify.corruption.sampling import invert
from electrify.tokens import Tokens

NEVER_DRAWN = NEVER_CHOSEN | {SPECIAL.unk}
CORRUPTORS = ("electra", "bert", "electric", "amos", "unigram", "uniform")


@cache
def corruptor_of(name: str, **fields: Any) -> Any:
    return built(f"{name}-tiny", **{"mask_rate": 0.4} | fields).objective.corruptor


@pytest.mark.parametrize("name", CORRUPTORS)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40))
@settings(max_examples=12, deadline=None)
def test_only_chosen_tokens_change(name: str, tokens: Tokens, seed: int) -> None:
    z = corrupted(corruptor_of(name), tokens, draws_of(tokens, seed=seed))
    at, before, after = set(z.at_M.tolist()), tokens.ids_T.tolist(), z.tokens.ids_T.tolist()
    assert len(at) == len(z.at_M) == int(count(z.plan))
    assert z.original_T.tolist() == before
    for i, (was, now) in enumerate(zip(before, after, strict=True)):
        if i in at:
            assert int(tokens.seq_T[i]) > 0
            assert was not in NEVER_CHOSEN
        else:
            assert was == now
    assert z.replaced_T.tolist() == [a != b for a, b in zip(before, after, strict=True)]
    for name_T in ("seq_T", "pos_T", "segment_T"):
        assert torch.equal(getattr(z.tokens, name_T), getattr(tokens, name_T))
    if name in ("unigram", "uniform"):
        assert not NEVER_DRAWN & {after[i] for i in at}


def mask(rate: float, mix: tuple[float, ...], *, vocab: int = VOCAB) -> MaskMix:
    return MaskMix(Chooser(SPECIAL, vocab, rate=rate), SPECIAL, vocab, mix=mix)


TABLE_8 = [
    (0.8, 0.1, 0.1),
    (1.0, 0.0, 0.0),
    (0.8, 0.0, 0.2),
    (0.8, 0.2, 0.0),
    (0.0, 0.2, 0.8),
    (0.0, 0.0, 1.0),
]  # 1810.04805, Table 8


@pytest.mark.parametrize("mix", TABLE_8, ids=str)
def test_mix_shares_of_berts_table_8(mix: tuple[float, ...]) -> None:
    """The vocabulary is large, so that a random token is the original one time in 1000 only; the
    expectation corrects for it. Random tokens are uniform and never special, [UNK] included."""
    vocab = 1006
    ids = 6 + torch.arange(400 * 500) % (vocab - 6)
    one = torch.ones_like(ids)
    tokens = Tokens(ids, one, torch.arange(500).repeat(400), 0 * one, row_length=500)
    z = corrupted(mask(0.2, mix, vocab=vocab), tokens, draws_of(tokens, seed=11))
    n = len(z.at_M)
    assert n == 400 * 100
    masked, kept = z.plan.shown_M == SPECIAL.mask, z.plan.shown_M == z.was_M
    expected = [mix[0], mix[1] + mix[2] / 1000, mix[2] * 999 / 1000]
    seen = [int(masked.sum()), int(kept.sum()), int((~masked & ~kept).sum())]
    assert sum(seen) == n
    for share, number in zip(expected, seen, strict=True):
        assert abs(number - n * share) <= 4 * (n * share * (1 - share)) ** 0.5 + 1e-6, share
    counts = torch.bincount(z.plan.shown_M[~masked], minlength=vocab)
    assert counts[:6].tolist() == [0] * 6
    if mix[2] == 1:
        assert chisquare(counts[6:].numpy()).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["skewed", "even", "with gaps"])
def test_frequency_follows_the_counts(kind: str) -> None:
    """20 000 chosen tokens; specials and [UNK] have the largest counts, and no share."""
    counts = {
        "skewed": 1000 // (1 + torch.arange(VOCAB)),
        "even": torch.ones(VOCAB),
        "with gaps": torch.arange(VOCAB) % 3,
    }[kind]
    tokens = pack([[[7] * 20]] * 2000, row_length=20)
    corruptor = Frequency(Chooser(SPECIAL, VOCAB, rate=0.5), SPECIAL, VOCAB, counts_V=counts)
    z = corrupted(corruptor, tokens, draws_of(tokens))
    assert len(z.at_M) == 20_000
    allowed = counts.double().index_fill(0, torch.tensor(sorted(NEVER_DRAWN)), 0.0)
    assert p_of_draws(z.now_M, allowed / allowed.sum()) > 1e-3


@pytest.mark.parametrize("name", ["electra", "electric", "amos"])
@given(packed_batches(), st.integers(0, 2**40))
@settings(max_examples=15, deadline=None)
def test_draws_of_a_network_start_from_the_original(name: str, tokens: Tokens, seed: int) -> None:
    """They follow its logits, also where the mix kept or randomised a token: no [MASK] and no
    random token of the generator's input survives."""
    c = corruptor_of(name, mask_mix=(0.4, 0.3, 0.3))
    draws, saw = draws_of(tokens, seed=seed), []
    encoder = c.left if name == "electric" else c.lm.encoder.embeddings
    hook = encoder.register_forward_pre_hook(lambda _, given: saw.append(given[0].ids_T))
    z = corrupted(c, tokens, draws)
    hook.remove()
    p_MV = z.logits_MV.softmax(-1, dtype=torch.float32)
    drawn_M = invert(p_MV, draws.uniform_T("sample")[z.at_M])
    assert torch.equal(z.tokens.ids_T, tokens.ids_T.scatter(0, z.at_M, drawn_M))
    masked = tokens if name == "electric" else corrupted(c.mask, tokens, draws).tokens
    assert torch.equal(saw[0], masked.ids_T), "a language model sees the masked text"
    number = z.plan.candidates_T.sum() if name == "electric" else len(z.at_M)
    assert int(c.plan(tokens, draws).counts["generator"]) == int(number)


def test_the_draws_follow_the_temperature_of_the_moment() -> None:
    """And the generator is graded at temperature 1."""
    fields = {"temperature": 50.0, "temperature_end": 0.02, "temperature_schedule": "exponential"}
    hot, plain = (corruptor_of("electra", **own) for own in (fields, {}))
    tokens = pack([[[2, *range(6, 36), 3]]] * 50, row_length=32)
    best = []
    for progress in (0.0, 1.0):
        draws = replace(draws_of(tokens), progress=torch.tensor(progress))
        z = corrupted(hot, tokens, draws)
        assert z.p_MV is None, "not the softmax from which the draws are"
        assert torch.equal(z.logits_MV, corrupted(plain, tokens, draws).logits_MV)
        best.append(float((z.now_M == z.logits_MV.argmax(-1)).float().mean()))
    assert best[0] < 0.2
    assert best[1] > 0.9
