"""What holds for every system of the study and its variants, whatever the text and the numbers."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from stubs import outcome, whole

from batches import SPECIAL, built, counts_of, draws_of, packed_batches, terms_of, tiny, value
from electrify.objectives.adversarial import baseline, reward
from electrify.objectives.all_tokens import copy_log_probability
from electrify.objectives.electric import noise_logit
from electrify.objectives.losses import binary_ce
from electrify.terms import weighted
from electrify.tokens import Tokens
from systems import SYSTEMS
from variants import VARIANTS

EVERY: dict[str, tuple[str, dict[str, Any]]] = {name: (f"{name}-tiny", {}) for name in SYSTEMS}
EVERY |= VARIANTS


@cache
def objective_of(name: str) -> Any:
    recipe, fields = EVERY[name]
    return built(recipe, **{"mask_rate": 0.4} | fields).objective


@cache
def towers() -> Any:
    return built("electric-tiny", init="bert").objective.corruptor


@pytest.mark.parametrize("name", EVERY)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40))
@settings(max_examples=4, deadline=None)
def test_any_text(name: str, tokens: Tokens, seed: int) -> None:
    """Empty rows, sequences of one token or of specials only: losses are finite and not negative
    (but for REINFORCE), counts are known before, weights name them, and rates carry no graph."""
    objective, draws = objective_of(name).train(), draws_of(tokens, seed=seed)
    terms, counts = outcome(objective, tokens, draws)
    assert whole(counts) == {n: int(terms[n].count) for n in counts}
    for n in counts:
        assert bool(terms[n].sum.isfinite())
        assert n == "reinforce" or value(terms[n].sum) >= 0
        assert int(counts[n]) > 0 or value(terms[n].sum) == 0
    assert not any(t.sum.requires_grad for n, t in terms.items() if n not in counts)
    objective.zero_grad(set_to_none=True)
    recipe, fields = EVERY[name]
    weights = tiny(recipe, **fields).objective.term_weights
    weighted(terms, weights, counts).backward()
    assert all(bool(p.grad.isfinite().all()) for p in objective.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", SYSTEMS)
@given(tokens=packed_batches(), seed=st.integers(0, 2**40), other=st.integers(6, 47))
@settings(max_examples=3, deadline=None)
def test_what_stands_in_padding_is_in_no_loss(
    name: str, tokens: Tokens, seed: int, other: int
) -> None:
    objective, draws = objective_of(name).eval(), draws_of(tokens, seed=seed)
    pads = ~tokens.real_T
    assume(bool(pads.any()))
    with torch.no_grad():
        one = terms_of(objective, tokens, draws)
        two = terms_of(objective, tokens.with_ids(tokens.ids_T.masked_fill(pads, other)), draws)
    for n in counts_of(objective, tokens, draws):
        torch.testing.assert_close(one[n].sum, two[n].sum, rtol=1e-5, atol=1e-5)


@given(tokens=packed_batches(), data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_towers_are_blind_to_the_token_itself(tokens: Tokens, data: st.DataObject) -> None:
    """And to other sequences."""
    real = tokens.real_T.nonzero().squeeze(1).tolist()
    assume(real)
    i = data.draw(st.sampled_from(real))
    other = data.draw(
        st.sampled_from([x for x in (SPECIAL.unk, 9, 30, 47) if x != int(tokens.ids_T[i])])
    )
    with torch.no_grad():
        before_TD = towers().context(tokens)
        after_TD = towers().context(
            tokens.with_ids(tokens.ids_T.index_fill(0, torch.tensor([i]), other))
        )
    moved_T = (after_TD - before_TD).abs().amax(1) > 1e-6
    row_T = torch.arange(len(moved_T)) // tokens.row_length
    own_T = (tokens.seq_T == tokens.seq_T[i]) & (row_T == row_T[i])
    assert not bool(moved_T[i])
    assert not bool((moved_T & ~own_T & tokens.real_T).any())


numbers = st.floats(-20, 20, width=32)


@given(arrays("float32", st.integers(2, 30), elements=numbers), st.floats(-40, 40), st.data())
def test_all_tokens_likelihood_sums_to_one(logits: Any, gate: float, data: st.DataObject) -> None:
    log_p_V = torch.from_numpy(logits).log_softmax(-1)
    stands = data.draw(st.integers(0, len(log_p_V) - 1))
    log_all_V = copy_log_probability(
        log_p_V, torch.full_like(log_p_V, gate), torch.arange(len(log_p_V)) == stands
    )
    assert float(log_all_V.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    assert bool((log_all_V <= 1e-6).all())


masses = arrays("float64", 5, elements=st.floats(0.05, 1.0))


@given(masses, masses, st.floats(0.05, 0.95), arrays("float64", 5, elements=st.floats(-2, 2)))
def test_noise_contrast_has_its_minimum_at_the_data(
    p_V: Any, q_V: Any, k: float, step_V: Any
) -> None:
    """Data p, noise q, a share k of noise: at exp(-E) = p the expected loss has no gradient, and
    any other energies cost more."""
    p, q = (torch.from_numpy(x / x.sum()) for x in (p_V, q_V))
    odds = torch.tensor(k / (1 - k)).log().double()

    def loss(energy: Any) -> Any:
        logit = noise_logit(energy, q.log(), odds)
        return (1 - k) * (p * binary_ce(logit, torch.zeros(5))).sum() + k * (
            q * binary_ce(logit, torch.ones(5))
        ).sum()

    best = (-p.log()).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(best), [best])
    assert float(gradient.abs().max()) < 1e-6
    assert value(loss(best + torch.from_numpy(step_V))) >= value(loss(best)) - 1e-6


@given(st.floats(-30, 30), st.booleans())
def test_what_the_generator_is_paid(logit: float, replaced: bool) -> None:
    """The discriminator's loss, without a gradient; the baseline is the reward that it expects."""
    logits = torch.tensor([logit], requires_grad=True)
    paid = reward(logits, torch.tensor([replaced]))
    assert not paid.requires_grad
    torch.testing.assert_close(paid, binary_ce(logits.detach(), torch.tensor([replaced])))
    torch.testing.assert_close(torch.sigmoid(logits.detach()), (-baseline(logits.detach())).exp())
