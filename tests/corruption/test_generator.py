from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from batches import SPECIAL, VOCAB, corrupted, draws_of, packed_batches, ragged_batch
from electrify.corruption.choosing import Chooser
from electrify.corruption.generator import Generator
from electrify.corruption.masking import MaskMix
from electrify.corruption.sampling import Sampling, sample
from electrify.tokens import Tokens


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


def test_logits_keep_their_gradient_and_samples_have_none() -> None:
    g, lm = generator(torch.zeros(VOCAB))
    tokens = ragged_batch()
    z = corrupted(g, tokens, draws_of(tokens))
    assert z.logits_MV is not None
    assert z.logits_MV.requires_grad
    assert not z.tokens.ids_T.requires_grad
    z.logits_MV.sum().backward()
    assert lm.logits_V.grad is not None


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


def test_the_split_into_rows_changes_nothing() -> None:
    tokens = ragged_batch()
    g, _ = generator(torch.zeros(VOCAB))
    whole = corrupted(g, tokens, draws_of(tokens, seed=4))
    parts = [
        corrupted(g, tokens.rows(r, r + 1), draws_of(tokens.rows(r, r + 1), seed=4, first_row=r))
        for r in range(tokens.num_rows)
    ]
    assert torch.equal(whole.tokens.ids_T, torch.cat([p.tokens.ids_T for p in parts]))
