"""Every shipped recipe builds, takes a step, and costs what recipes/costs.yaml says. The paper's
sizes keep their widths' ratios, with one layer and a small vocabulary. The values of recipes are
tested in test_shipped_recipes.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from batches import VOCABULARY, counts_of, draws_of, terms_of, text_batch
from electrify.build import build
from electrify.flop_counts import PAPER_VOCABULARY, recipe_flops
from electrify.recipe import RECIPES, load, names, override
from electrify.terms import weighted
from electrify.train.optim import make_optimizer, parameter_groups
from electrify.values import plain_yaml

NAMES = names()
COSTS = plain_yaml((RECIPES / "costs.yaml").read_text(encoding="utf-8"), "costs.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_listed_costs_are_the_count(name: str) -> None:
    cost = recipe_flops(load(name), vocab_size=PAPER_VOCABULARY, convention="hardware")
    assert cost.parameters == int(COSTS[name]["parameters"])
    assert cost.train == pytest.approx(float(COSTS[name]["flops"]), rel=1e-4)


def step_costs_seconds(name: str) -> bool:
    """Whether a recipe is as wide as base or wider, and not one of the two that most others are
    like."""
    return not name.endswith(("-tiny", "-mini", "-small", "-small-pp")) and name not in (
        "bert-base",
        "electra-base",
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * step_costs_seconds(n)) for n in NAMES],
)
def test_builds_and_takes_a_step(name: str) -> None:
    """Every parameter that is not frozen gets a finite gradient and one update of the recipe's own
    optimiser; the loss of the same batch falls (where the generator is paid for raising the
    discriminator's, it need not)."""
    fields = {"num_hidden_layers": 1, "max_seq_length": 32}
    fields |= {"dropout": 0.0, "attention_dropout": 0.0}
    if load(name).model.tie == "lower":
        fields |= {"num_hidden_layers": 2, "generator_num_hidden_layers": 2, "tie_layers": 1}
    config = override(load(name), fields)
    objective: Any = build(config, VOCABULARY).objective
    tokens = text_batch(seed=0, rows=2, row_length=32)
    named = dict(objective.named_parameters())
    t = config.train
    groups = parameter_groups(named, rates=dict.fromkeys(named, 2e-5), weight_decay=t.weight_decay)
    optimizer = make_optimizer(
        t.optim, groups, betas=(t.adam_beta1, t.adam_beta2), eps=t.adam_epsilon
    )

    def loss() -> torch.Tensor:
        return weighted(
            terms_of(objective, tokens, draws_of(tokens)),
            config.objective.term_weights,
            counts_of(objective, tokens, draws_of(tokens)),
        )

    before = loss()
    before.backward()
    assert bool(before.isfinite())
    frozen = (
        {id(p) for p in objective.corruptor.parameters()}
        if config.corruption.generator_training == "frozen"
        else set()
    )
    for n, p in named.items():
        assert (p.grad is None) == (id(p) in frozen), n
        assert p.grad is None or bool(p.grad.isfinite().all()), n
    optimizer.step()
    after = loss().detach()
    assert bool(after.isfinite())
    assert float(after) < float(before.detach()) or config.objective.objective == "adversarial"
