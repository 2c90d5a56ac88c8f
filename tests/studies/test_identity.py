"""What decides the scores of an encoder is in the identity of its result."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from electrify.recipe import entry, names, override
from electrify.rules import check
from electrify.studies.cost import Cost
from electrify.studies.options import CompareConfig
from electrify.studies.plan import Cell, cells, configured
from electrify.studies.study import COMPARED, Study, identity, kept
from electrify.studies.untrained import UNTRAINED, untrained

STUDY = cast(
    "Study",
    SimpleNamespace(
        config=CompareConfig(
            data="d",
            output_dir="o",
            recipes=("bert-tiny",),
            budgets=(1e13,),
            tasks=("stsb",),
            data_dir="t",
            seeds=1,
        ),
        manifest=SimpleNamespace(fingerprint="corpus"),
        task_data={"stsb": "examples"},
    ),
)


def cell_of(recipe: str) -> Cell:
    return cells([entry(recipe)], [1e13], [0], Cost(8192), schedule="wsd")[0]


def with_fields(cell: Cell, **fields: Any) -> str:
    return identity(replace(cell, config=override(cell.config, fields)), kept(STUDY))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 2e-3),
        ("clip", "apart"),
        ("mask_rate_end", 0.1),
        ("correction", "gate"),
        ("layer_norm_eps", 1e-6),
        ("seq_length_schedule", {32: 0.25}),
        ("non_finite", "skip"),
        ("spike_sigmas", 2.0),
        ("eval_rows", 64),
    ],
)
def test_a_field_with_another_value_is_another_recipe(name: str, value: Any) -> None:
    cell = cell_of("corrective-tiny")
    assert with_fields(cell, **{name: value}) != identity(cell, kept(STUDY))


@pytest.mark.parametrize(
    ("name", "value"), [("threads", "2"), ("save_steps", 7), ("per_device_train_batch_size", 4)]
)
def test_how_the_work_is_done_is_not_a_part_of_it(name: str, value: Any) -> None:
    cell = cell_of("electra-tiny")
    assert with_fields(cell, **{name: value}) == identity(cell, kept(STUDY))


def test_another_order_of_a_schedule_is_another_recipe() -> None:
    cell = cell_of("bert-tiny")
    orders = [{32: 0.25, 64: 0.5}, {64: 0.5, 32: 0.25}]
    first, second = (with_fields(cell, seq_length_schedule=order) for order in orders)
    assert first != second


def test_every_guard_counts() -> None:
    """Which updates are refused decides the scores."""
    assert {"non_finite", "spike", "eval_rows"} <= {*COMPARED}


@pytest.mark.parametrize("recipe", [n for n in names() if n.endswith("-tiny")])
def test_any_recipe_can_be_the_first_of_a_study(recipe: str) -> None:
    """Its encoder before training is a row of the table."""
    for name in UNTRAINED:
        check(untrained(configured(entry(recipe), schedule="constant", seed=0), name, 0).config)
