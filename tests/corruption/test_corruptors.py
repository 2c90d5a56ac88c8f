"""What holds for every corruptor, whatever the text, and how those beside the generator draw."""

from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pooled import p_of_draws
from torch import Tensor, nn

from batches import (
    SPECIAL,
    VOCAB,
    built,
    corrupted,
    draws_of,
    pack,
    packed_batches,
    ragged_batch,
    sequences_of,
)
from electrify.corruption.choosing import Chooser, count
from electrify.corruption.generator import Generator
from electrify.corruption.masking import Frequency, MaskMix
from electrify.corruption.sampling import Sampling, sample
from electrify.objectives.contrast import crop
from electrify.tokens import Tokens

NEVER_CHOSEN = {0, 2, 3, 4, 5}  # [UNK] may be asked for
NEVER_DRAWN = NEVER_CHOSEN | {SPECIAL.unk}
CORRUPTORS = ("electra", "bert", "electric", "amos", "unigram", "uniform")


@cache
def corruptor_of(name: str) -> Any:
    return built(f"{name}-tiny", mask_rate=0.4).objective.corruptor


@pytest.mark.parametrize("name", CORRUPTORS)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40))
@settings(max_examples=12, deadline=None)
def test_only_chosen_tokens_change(name: str, tokens: Tokens, seed: int) -> None:
    draws = draws_of(tokens, seed=seed)
    z = corrupted(corruptor_of(name), tokens, draws)
    at, before, after = set(z.at_M.tolist()), tokens.ids_T.tolist(), z.tokens.ids_T.tolist()
    assert z.at_M.tolist() == sorted(at)
    assert len(at) == int(count(z.plan))
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


def test_two_towers_draw_from_what_they_believe() -> None:
    """The same sentence in 4000 rows: at each position the draws follow the softmax of the towers'
    logits there."""
    corruptor: Any = built("electric-tiny", mask_rate=0.5, init="bert").objective.corruptor.eval()
    with torch.no_grad():
        corruptor.head.bias_V.normal_(
            generator=torch.Generator().manual_seed(2)
        )  # so that there is something to follow
        for p in corruptor.left.parameters():
            p.mul_(3)
    tokens = pack([[[2, 9, 20, 31, 3]]] * 2000, row_length=5)
    z = corrupted(corruptor, tokens, draws_of(tokens, seed=5))
    seen = []
    for place in (1, 2, 3):
        here_M = z.at_M % 5 == place
        probability_V = z.logits_MV[here_M][0].detach().softmax(-1)
        assert p_of_draws(z.now_M[here_M], probability_V) > 1e-3
        seen.append(probability_V)
    assert float((seen[0] - seen[1]).abs().max()) > 1e-3, "the context counts"


@given(
    tokens=packed_batches(),
    share=st.sampled_from([0.1, 0.5, 0.9, 0.99]),
    seed=st.integers(0, 2**30),
    fixed=st.booleans(),
)
def test_a_contiguous_part_behind_a_first_token_of_its_own(tokens, share, seed, fixed):
    view = crop(tokens, draws_of(tokens, seed=seed), share=share, fixed=fixed)
    crops = view.tokens
    inside = torch.zeros_like(tokens.real_T)
    firsts, crop_firsts = [], []
    for _, number, cut in sequences_of(tokens):
        (at,) = (crops.seq_T[cut] == number).nonzero(as_tuple=True)
        size = cut.stop - cut.start - 1
        kept = min(size, max(1, round(size * share)))
        assert len(at) == kept + 1, "its [CLS] and the part"
        first, last = cut.start + int(at[0]), cut.start + int(at[-1])
        assert last - first == kept, "contiguous"
        part = slice(first, last + 1)
        assert crops.pos_T[part].tolist() == list(range(kept + 1))
        assert crops.ids_T[first] == tokens.ids_T[cut.start]
        assert crops.segment_T[first] == 0, "as every [CLS]"
        assert torch.equal(crops.ids_T[first + 1 : part.stop], tokens.ids_T[first + 1 : part.stop])
        inside[part] = True
        firsts.append(cut.start)
        crop_firsts.append(first)
    assert torch.equal(crops.real_T, inside), "everything else counts as padding"
    valid = view.first_S.new_ones(len(view.first_S)).bool()
    valid = valid if view.valid_S is None else view.valid_S
    assert view.first_S[valid].tolist() == firsts
    assert view.crop_first_S[valid].tolist() == crop_firsts
    assert (view.valid_S is not None) == fixed


def test_every_place_is_drawn_equally_often() -> None:
    tokens = pack([[[2, *range(10, 20)]]] * 3000, row_length=11)
    view = crop(tokens, draws_of(tokens, seed=3), share=0.7)
    found = Counter((view.crop_first_S % 11).tolist())
    assert sorted(found) == [0, 1, 2, 3]
    assert all(abs(n - 750) < 4 * (750 * 0.75) ** 0.5 for n in found.values()), found


class Fixed(nn.Module):
    """A language model that believes the same whatever it sees, and remembers what it saw."""

    def __init__(self, logits_V: Tensor) -> None:
        super().__init__()
        self.logits_V = nn.Parameter(logits_V)

        self.head = nn.Identity()

    def states(self, tokens: Tokens, at_M: Tensor) -> Tensor:
        self.saw, self.at_M = tokens, at_M
        return self.logits_V.expand(len(at_M), -1)


def generator(
    logits_V: Tensor,
    *,
    rate: float = 0.5,
    mix: tuple[float, ...] = (0.4, 0.3, 0.3),
    temperature: float = 1.0,
) -> tuple[Generator, Fixed]:
    lm = Fixed(logits_V)
    return Generator(
        MaskMix(Chooser(SPECIAL, VOCAB, rate=rate), SPECIAL, VOCAB, mix=mix),
        lm,
        sampling=Sampling(temperature),
    ), lm  # type: ignore[arg-type]


def only(token: int) -> Tensor:
    return torch.full((VOCAB,), -torch.inf).index_fill(0, torch.tensor([token]), 0.0)


@given(packed_batches(), st.integers(0, 2**40))
@settings(max_examples=60)
def test_the_corrupted_text_starts_from_the_original(tokens: Tokens, seed: int) -> None:
    """Also where the mix kept or randomised a token: no [MASK] and no random token of the
    generator's input survives."""
    g, lm = generator(torch.zeros(VOCAB))
    draws = draws_of(tokens, seed=seed)
    z = corrupted(g, tokens, draws)
    sampled, _ = sample(torch.zeros(len(z.at_M), VOCAB), draws.uniform_T("sample")[z.at_M])
    assert torch.equal(z.tokens.ids_T, tokens.ids_T.scatter(0, z.at_M, sampled))
    assert torch.equal(z.original_T, tokens.ids_T)
    masked = corrupted(g.mask, tokens, draws)
    assert torch.equal(lm.saw.ids_T, masked.tokens.ids_T), "the language model sees the masked text"
    assert torch.equal(z.plan.shown_M, masked.plan.shown_M)
    assert torch.equal(z.at_M, masked.at_M)
    assert torch.equal(lm.at_M, masked.at_M)
    assert int(g.plan(tokens, draws).counts["generator"]) == len(z.at_M)


def test_a_sample_equal_to_the_original_is_original() -> None:
    tokens = ragged_batch()
    favourite = 9
    g, _ = generator(only(favourite), rate=0.9)
    z = corrupted(g, tokens, draws_of(tokens))
    chosen = torch.zeros_like(tokens.ids_T, dtype=torch.bool).index_fill(0, z.at_M, True)
    assert torch.equal(z.replaced_T, chosen & (tokens.ids_T != favourite))
    assert bool((chosen & (tokens.ids_T == favourite)).any()), "the case occurs"
    assert bool((z.plan.shown_M[z.was_M == favourite] != favourite).any()), (
        "also where another token was shown"
    )


def test_temperature_reaches_the_sampler_but_not_the_logits() -> None:
    logits = torch.zeros(VOCAB)
    logits[20] = 1.0
    tokens = ragged_batch()
    cold, _ = generator(logits, temperature=1e-3)
    z = corrupted(cold, tokens, draws_of(tokens))
    assert set(z.tokens.ids_T[z.at_M].tolist()) == {20}
    assert z.logits_MV is not None
    assert torch.equal(z.logits_MV[0], logits), "the generator is graded at temperature 1"
    warm, _ = generator(logits)
    assert len(set(corrupted(warm, tokens, draws_of(tokens)).tokens.ids_T[z.at_M].tolist())) > 10
