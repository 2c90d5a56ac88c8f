"""Budgets: which encoders are pre-trained, for how long, and from where."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.flop_counts import recipe_flops
from electrify.recipe import entry, override
from electrify.studies.budgets import (
    Cost,
    Trial,
    can_share,
    configured,
    leaves_at,
    of_length,
    steps_for,
    tokens_of,
    trials_of,
)
from electrify.train.optim import planned

V = 1000
COST = Cost(V)
PASSES = Cost(V, lambda length, _: 4_000_000 // length, equal="epochs")
RECIPES = (
    "electra-tiny",
    "bert-tiny",
    "two-stage-tiny",
    "electra-tiny:batch_size_schedule=8=.2,warmup_steps=10",
)


def cells(
    texts: Sequence[str], budgets: Sequence[float], seeds: Sequence[int] = (0,), cost: Cost = COST
) -> list[Trial]:
    return [t for text in texts for t in trials_of(entry(text), budgets, seeds, cost, "wsd")]


def test_an_entry_is_a_recipe_with_changes() -> None:
    mine = entry("electra-tiny:mask_rate=0.3, tie=gdes")
    assert (mine.recipe, mine.changes) == ("electra-tiny", {"mask_rate": "0.3", "tie": "gdes"})
    config = configured(mine, schedule="wsd", seed=3)
    assert (config.corruption.mask_rate, config.model.tie) == (0.3, "gdes")
    assert (config.train.lr_scheduler_type, config.train.seed) == ("wsd", 3)
    assert configured(entry("bert-tiny"), schedule=None, seed=0).train.lr_scheduler_type != ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("electra-tiny:mask_rate", "'mask_rate' is not a change. Write field=value"),
        ("electra-tiny:,", "no change after the colon"),
        ("electra-tiny:seed=1,seed=2", "seed is changed twice"),
        ("electra-tiny:mask_rat=1", "there is no field 'mask_rat'"),
        ("electra-tiny:mask_rate=much", "electra-tiny:mask_rate=much: "),
        ("elektra-tiny", "elektra-tiny: "),
    ],
)
def test_what_is_not_an_entry(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        configured(entry(text), schedule="wsd", seed=0)


@pytest.mark.parametrize("text", RECIPES)
def test_a_budget_is_met_to_within_an_update(text: str) -> None:
    config = configured(entry(text), schedule="wsd", seed=0)
    steps = steps_for(config, 3e13, COST)
    flops = COST.flops(of_length(config, steps))
    one = recipe_flops(config, vocab_size=V, convention="hardware").step
    # A first stage grows along, so one more update is more than one update's cost.
    assert flops == pytest.approx(3e13, abs=3 * one)
    assert of_length(config, steps).train.max_steps == steps


@pytest.mark.parametrize("text", RECIPES)
def test_a_budget_of_text_is_met_to_within_an_update(text: str) -> None:
    """Tokens are counted by hand: the rows of every batch times their length, twice where a first
    stage reads as many."""
    config = configured(entry(text), schedule="wsd", seed=0)
    tokens = Cost(V, equal="tokens")
    steps = steps_for(config, 12e6, tokens)
    found = of_length(config, steps)
    rows, length = found.train.train_batch_size, found.data.max_seq_length
    early = 0.2 * steps * (rows - 8) if "batch_size" in text else 0.0
    updates = steps + found.train.generator_steps
    assert tokens.spent(found) == pytest.approx((updates * rows - early) * length, rel=1e-3)
    assert tokens.spent(found) == pytest.approx(12e6, abs=2 * rows * length)
    # A corpus that fills 5 % more places than rows of this length have tokens.
    passes = Cost(V, lambda length, _: round(1.05 * 4_000_000 / length), equal="epochs")
    assert passes.spent(found) == pytest.approx(3.0 / 1.05, rel=1e-3)
    assert steps_for(config, 3.0 / 1.05, passes) == pytest.approx(steps, abs=1)


@pytest.mark.parametrize(
    ("text", "budget", "cost", "says"),
    [
        (
            "bert-tiny:warmup_steps=0,train_batch_size=4096",
            0.1,
            PASSES,
            "0.1 epochs .* numbers of updates: 2 of them would be 0.131 epo",
        ),
        ("bert-tiny:warmup_steps=1", 1e-3, COST, "which end within warmup_steps 1"),
        ("bert-tiny", 1e12, COST, r"1e\+12 FLOPs is .* which end within warmup_steps"),
        ("two-stage-tiny:generator_warmup_steps=9000", 1e14, COST, "generator_warmup_steps 9,000"),
        ("gdes-tiny:generator_warmup_steps=100000", 1e13, COST, "generator_warmup_steps 100,000"),
        (
            "corrective-tiny:mlm_share=.9999,warmup_steps=0",
            1e13,
            COST,
            r"^corrective-tiny.*: mlm_share 0.9999 of .* larger --budgets",
        ),
    ],
)
def test_a_budget_that_does_not_fit_is_refused(
    text: str, budget: float, cost: Cost, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        cells([text], [budget], cost=cost)


def test_a_first_stage_goes_through_its_own_schedule() -> None:
    """By hand: 16 places for the first nine tenths of each stage, 64 for the last."""
    base = configured(entry("two-stage-tiny"), schedule="wsd", seed=0)
    fields = {"seq_length_schedule": {16: 0.9}, "train_batch_size": 2}
    config = override(base, fields | {"generator_steps": 400, "max_steps": 1000})
    assert tokens_of(config) == 2 * (1260 * 16 + 140 * 64)
    assert PASSES.epochs(config) == pytest.approx(tokens_of(config) / 4_000_000)


@settings(max_examples=60, deadline=None)
@given(
    short=st.integers(20, 5000),
    more=st.integers(0, 5000),
    warmup=st.integers(0, 15),
)
def test_runs_are_shared_exactly_as_long_as_their_learning_rates_agree(
    short: int, more: int, warmup: int
) -> None:
    base = configured(entry(f"bert-tiny:warmup_steps={warmup}"), schedule="wsd", seed=0)
    a, b = of_length(base, short), of_length(base, short + more)
    at = leaves_at(a, b)
    assert all(planned(a.train, k) == planned(b.train, k) for k in range(at))
    if more > 5:
        assert planned(a.train, at) != planned(b.train, at)
        assert abs(at - 0.8 * short) <= 1
    if not more:
        assert at == short


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("bert-tiny", True),
        ("electra-tiny", True),
        ("electra-tiny:temperature=2,temperature_end=1", False),
        ("electra-tiny:lr_scheduler_type=linear", False),
        ("electra-tiny:batch_size_schedule=8=.2", False),
        ("two-stage-tiny", False),
    ],
)
def test_which_recipes_share_a_prefix(text: str, shares: bool) -> None:
    config = configured(entry(text), schedule="wsd", seed=0)
    assert can_share(config) == shares


def test_the_trials_of_a_study() -> None:
    texts = ["bert-tiny:warmup_steps=10", "two-stage-tiny:warmup_steps=10"]
    found = cells(texts, [1e13, 4e13], [5, 6])
    assert [(c.entry, c.budget, c.seed) for c in found] == [
        (text, budget, seed) for text in texts for seed in (5, 6) for budget in (4e13, 1e13)
    ]
    for cell in found:
        assert cell.flops == pytest.approx(cell.budget, rel=0.02)
        assert cell.recipe.train.seed == cell.seed
        shares = cell.entry.startswith("bert") and cell.budget == 1e13
        assert (cell.starts_at is not None) == shares
        if cell.starts_at is not None:
            assert cell.starts_at == pytest.approx(0.8 * cell.steps, abs=1)
            assert cell.own_steps == cell.steps - cell.starts_at
