"""Options that go with every recipe, and those with which they do not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from batches import one_update, tiny
from electrify.compare.plan import can_share
from electrify.config.checks import check
from electrify.config.pretrain import load_recipe, override
from electrify.errors import UserError

SHALLOW = {"generator_size": 1.0, "generator_num_hidden_layers": 2}
LOWER = SHALLOW | {"tie": "lower", "tie_layers": 2}


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        ("electra-tiny", LOWER),
        ("corrective-tiny", LOWER | {"mask_unit": "span", "clip": "apart"}),
        ("electra-tiny", {"tie": "tokens", "generator_dropout": 0.0}),
        ("electra-tiny", {"clip": "apart", "generator_warmup_steps": 50, "init_scale": "depth"}),
        ("bert-tiny", {"mask_rate": 0.3, "mask_rate_end": 0.15, "mask_unit": "span"}),
        ("electric-tiny", {"mask_rate_end": 0.3, "clip": "apart"}),
        (
            "two-stage-tiny",
            {"temperature": 2.0, "temperature_end": 1.0, "temperature_schedule": "exponential"},
        ),
        ("adversarial-tiny", {"clip": "apart", "init_rtd_bias": "replaced"}),
        ("two-stage-tiny", {"generator_warmup_steps": 50, "generator_dropout": 0.0}),
    ],
)
def test_they_go_together(recipe: str, fields: dict[str, Any], tmp_path: Path) -> None:
    config = override(load_recipe(recipe), fields)
    check(config)
    small = tiny(
        recipe, **{"generator_size": config.model.generator_size} | fields, train_batch_size=2
    )
    check(small)
    found = one_update(small, tmp_path)
    assert found.keys() >= small.objective.term_weights.keys()
    assert all(math.isfinite(number) for number in found.values())


@pytest.mark.parametrize(
    ("recipe", "fields", "says"),
    [
        ("electra-tiny", {"tie": "lower"}, "tie lower and tie_layers go together"),
        ("electra-tiny", {"tie_layers": 2}, "tie lower and tie_layers go together"),
        (
            "electra-tiny",
            {"tie": "lower", "tie_layers": 2},
            "tie lower needs equal widths: the generator has hidden_size 64 for 128",
        ),
        ("electra-tiny", LOWER | {"tie_layers": 3}, "tie_layers must lie between 1 and 2"),
        ("electra-tiny", LOWER | {"tie_layers": 0}, "tie_layers must lie between 1 and 2"),
        ("electra-tiny", LOWER | {"init_generator": "x"}, "leave generator_steps and init_gen"),
        (
            "electric-tiny",
            {"tie": "lower", "tie_layers": 2, "generator_size": 1.0},
            "tie lower is for corruptor generator, which is one language model, not for two_tower",
        ),
        ("bert-tiny", {"tie_layers": 2}, "tie_layers: corruptor mask has no generator"),
        ("bert-tiny", {"generator_dropout": 0.0}, "generator_dropout: corruptor mask has no"),
        ("electra-tiny", {"generator_dropout": 0.0}, "with tie embeddings both networks read"),
        (
            "electra-tiny",
            {"tie": "tokens", "generator_dropout": 1.0},
            r"generator_dropout must lie in \[0, 1\), not 1.0",
        ),
        (
            "electra-tiny",
            {"generator_training": "frozen", "init_generator": "x", "tie": "none"}
            | {"generator_dropout": 0.5, "term_weights": {"rtd": 50.0}},
            "generator_dropout: a frozen generator has none",
        ),
        (
            "electra-tiny",
            {"init_rtd_bias": "replaced", "init_discriminator": "x"},
            "init_rtd_bias and init_discriminator exclude each other",
        ),
        (
            "corrective-tiny",
            {"mlm_share": 0.99, "max_steps": 12},
            "mlm_share 0.99 of 12 updates leaves none for what comes after",
        ),
        ("electric-tiny", {"mask_unit": "word"}, "exact for plain draws only: leave mask_unit"),
        ("bert-tiny", {"clip": "apart"}, "clip apart: no generator is trained"),
        ("two-stage-tiny", {"clip": "apart"}, "clip apart: no generator is trained"),
        ("electra-tiny", {"clip": "apart", "max_grad_norm": 0}, "clip apart needs a max_grad_norm"),
        ("unigram-tiny", {"generator_warmup_steps": 5}, "generator_warmup_steps: no generator"),
        ("electra-tiny", {"generator_warmup_steps": -1}, "generator_warmup_steps cannot be neg"),
        ("bert-tiny", {"generator_weight_decay": 0.1}, "generator_weight_decay: no generator"),
        ("electra-tiny", {"generator_weight_decay": -1}, "generator_weight_decay cannot be neg"),
        ("electra-tiny", {"generator_weight_decay": math.inf}, "must be a finite number"),
        ("bert-tiny", {"init_rtd_bias": "replaced"}, "is for heads that detect replaced tokens"),
        ("electric-tiny", {"init_rtd_bias": "replaced"}, "is for heads that detect replaced"),
        ("electra-15-tiny", {"init_rtd_bias": "replaced"}, "leave one of the two out"),
        ("electra-tiny", {"mask_rate_end": 1.0}, "mask_rate_end must lie between 0 and 1"),
        *[
            ("electric-tiny", {"mask_unit": unit}, "exact for plain draws only: leave mask_unit at")
            for unit in ("word", "span")
        ],
        ("electra-tiny", {"span_length": 5}, "span_length is for mask_unit span, not token"),
        ("electra-tiny", {"mask_unit": "span", "span_length": 1}, "must lie between 2 and 64"),
        (
            "electra-tiny",
            {"temperature": 2.0, "temperature_schedule": "exponential"},
            "temperature_schedule exponential needs another temp",
        ),
        ("electra-tiny", {"temperature_decay": 0.5}, "temperature_decay is for temperature_sched"),
        (
            "electra-tiny",
            {"temperature_end": 2.0, "temperature_schedule": "exponential"}
            | {"temperature_decay": 0.0},
            "temperature_decay must be positive",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    recipe: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        check(override(load_recipe(recipe), fields))


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({}, True),
        ({"mask_rate_end": 0.15}, True),  # that of the recipe
        ({"mask_rate_end": 0.3}, False),
        ({"temperature_end": 2.0, "temperature_schedule": "exponential"}, False),
        ({"clip": "apart", "generator_warmup_steps": 50, "mask_unit": "span"}, True),
    ],
)
def test_whether_a_shorter_run_may_start_from_a_longer_one(
    fields: dict[str, Any], shared: bool
) -> None:
    given = {"lr_scheduler_type": "wsd"} | fields
    assert can_share(override(load_recipe("electra-tiny"), given)) == shared


@pytest.mark.parametrize(
    ("recipe", "fields", "says"),
    [
        ("bert-tiny", {"generator_size": 0.5}, "generator_size does nothing here: corruptor mask"),
        ("unigram-tiny", {"tie": "none"}, "tie does nothing here: corruptor unigram has no gen"),
        ("unigram-tiny", {"mask_mix": (0.8, 0.1, 0.1)}, "mask_mix does nothing here: corruptor un"),
        ("electric-tiny", {"mask_mix": (0.8, 0.1, 0.1)}, "mask_mix does nothing here: corruptor t"),
        (
            "electra-tiny",
            {"init": "bert", "local_amplitude": 2.0},
            "it is for init local, not bert",
        ),
    ],
)
def test_what_does_nothing_is_refused_where_somebody_wrote_it(
    recipe: str, fields: dict[str, Any], says: str
) -> None:
    config = override(load_recipe(recipe), fields)
    check(config)  # a recipe may carry it along
    with pytest.raises(UserError, match=says):
        check(config, fields)


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        ("electric-tiny", {"generator_size": 0.25, "tie": "none"}),
        ("amos-tiny", {"generator_size": 0.25, "mask_mix": (0.8, 0.1, 0.1)}),
        ("bert-tiny", {"mask_mix": (0.9, 0.05, 0.05), "local_amplitude": 2.0}),
        ("unigram-tiny", {"corruptor": "generator", "generator_size": 0.25}),
    ],
)
def test_what_does_something_may_be_written(recipe: str, fields: dict[str, Any]) -> None:
    config = override(load_recipe(recipe), fields)
    config = override(config, {"objective": config.objective.objective, "term_weights": {}})
    check(config, fields)
