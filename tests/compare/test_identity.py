"""Results stay valid when the program learns new options: the identity of a result."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from electrify.compare.cost import Cost
from electrify.compare.identity import COMPARED, LATER, corrected, identity
from electrify.compare.options import CompareConfig
from electrify.compare.plan import Cell, cells, configured
from electrify.compare.study import Study, kept
from electrify.compare.untrained import UNTRAINED, untrained
from electrify.config.own_source import own_source
from electrify.recipe import Train, entry, load, names, override
from electrify.rules import check
from electrify.tables import OBJECTIVES

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


def cell_of(entry: str) -> Cell:
    found = cells([entry(entry)], [1e13], [0], Cost(8192), schedule="wsd")
    return found[0]


@pytest.mark.parametrize(
    ("recipe", "known"),
    [
        ("bert-tiny", "b17153eeca88758c"),
        ("electra-tiny", "9d215c7b869a9ead"),
        ("teams-tiny", "ea79c55c2ff0cdd0"),
        ("corrective-tiny", "14460090e8d0ad39"),
        ("electra-deberta-tiny", "a069b2694ed6daad"),
    ],
)
def test_results_that_were_written_before_are_found_again(recipe: str, known: str):
    """If this fails, a new option of recipes entered the hash. Where its default leaves recipes
    what they were, it belongs into LATER; else the results of old versions are rightly void."""
    assert identity(cell_of(recipe), kept(STUDY)) == known


@pytest.mark.parametrize(
    ("schedule", "known"),
    [
        ({64: 0.9}, "a0fe42175cbb01fd"),
        ({32: 0.25, 64: 0.5}, "aef4d41d554025c3"),
        ({64: 0.5, 32: 0.25}, "9852dbe0c41604e9"),
    ],
)
def test_another_order_of_a_schedule_is_another_recipe(
    schedule: dict[int, float], known: str
) -> None:
    """Rising ones are found as they were before the order was looked at."""
    cell = cell_of("bert-tiny")
    config = override(cell.config, {"seq_length_schedule": schedule})
    assert identity(Cell(**vars(cell) | {"config": config}), kept(STUDY)) == known


def test_results_of_a_mistake_are_not_found_again() -> None:
    """Earlier versions clipped the generator's word table with the encoder that reads it."""
    gdes = "electra-tiny:tie=gdes,generator_size=1.0"
    assert identity(cell_of(gdes), kept(STUDY)) == "ce48f3bfd27b3689"
    for more in ("clip=apart", "generator_learning_rate=1e-4", "generator_warmup_steps=9"):
        assert corrected(cell_of(f"{gdes},{more}").config) == ["the word table is the generator's"]
        assert not corrected(cell_of(f"electra-tiny:{more}").config)


def test_results_of_a_table_that_began_as_noise_are_not_found_again() -> None:
    """Earlier versions gave a generator none of the words of the encoder's folder beside it."""
    config = cell_of("electra-tiny:tie=gdes,generator_size=1.0").config
    folder = {"init_discriminator": "there"}
    (why,) = corrected(override(config, folder))
    assert why == "the generator begins with the words of the folder"
    for more in ({"init_generator": "there"}, {"tie": "none"}):
        assert not corrected(override(config, folder | more))
    assert not corrected(override(config, {"init_generator": "there"}))


@pytest.mark.parametrize("name", LATER)
def test_a_later_option_with_another_value_is_another_recipe(name: str):
    other: dict[str, Any] = {
        "generator_dropout": 0.1,
        "tie_layers": 1,
        "init_scale": "depth",
        "init_rtd_bias": "replaced",
        "mask_rate_end": 0.1,
        "span_length": 5,
        "temperature_schedule": "exponential",
        "temperature_decay": 0.2,
        "generator_warmup_steps": 100,
        "generator_weight_decay": 0.1,
        "clip": "apart",
        "contrast_rows": 32,
        "contrast_temperature": 0.5,
        "crop_share": 0.8,
        "layer_norm_eps": 1e-6,
        "mask_decoder": True,
        "extend_positions": 1024,
        "extend_rope_theta": 1e5,
    }
    of = dict.fromkeys(("extend_positions", "extend_rope_theta"), "electra-modernbert-tiny")
    of["mask_decoder"] = "electra-deberta-tiny"
    cell = cell_of(of.get(name, "corrective-tiny"))
    changed = Cell(**vars(cell) | {"config": override(cell.config, {name: other[name]})})
    assert identity(changed, kept(STUDY)) != identity(cell, kept(STUDY))
    same = Cell(**vars(cell) | {"config": override(cell.config, {name: LATER[name]})})
    assert identity(same, kept(STUDY)) == identity(cell, kept(STUDY))


@pytest.mark.parametrize("name", COMPARED)
def test_a_guard_with_another_value_is_another_recipe(name: str) -> None:
    """Which updates are refused decides the scores: the name of an entry of a recipe file may stay
    while its guards change. Results of recipes with the default guards stay as they are."""
    other: dict[str, Any] = {
        "non_finite": "skip",
        "max_non_finite": 3,
        "spike": "rollback",
        "spike_sigmas": 2.0,
        "max_spikes": 3,
        "eval_rows": 64,
    }
    cell = cell_of("electra-tiny")

    def with_value(value: Any) -> str:
        return identity(replace(cell, config=override(cell.config, {name: value})), kept(STUDY))

    assert with_value(other[name]) != identity(cell, kept(STUDY))
    assert with_value(getattr(Train, name)) == "9d215c7b869a9ead"


@pytest.mark.parametrize("name", names())
def test_no_shipped_recipe_has_guards_of_its_own(name: str) -> None:
    """If this fails, the results that earlier versions have of it are not found again."""
    train = load(name).train
    assert {guard: getattr(train, guard) for guard in COMPARED} == {
        guard: getattr(Train, guard) for guard in COMPARED
    }


@pytest.mark.parametrize("recipe", [n for n in names() if n.endswith("-tiny")])
def test_any_recipe_can_be_the_first_of_a_study(recipe: str) -> None:
    """Its encoder before training is a row of the table."""
    for name in UNTRAINED:
        check(untrained(configured(entry(recipe), schedule="constant", seed=0), name, 0).config)


def with_objective(name: str) -> Cell:
    recipe = cell_of("electra-tiny")
    return replace(recipe, config=override(recipe.config, {"objective": name}))


@pytest.mark.parametrize("place", ["class", "function"])
def test_the_source_of_a_row_of_ones_own_is_a_part_of_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments and docstrings are not."""

    module = f"own_source_of_a_{place}"  # one each: an imported one stays

    def written(source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    written("def silent_share(options):\n    return 0.0\n")
    if place == "class":
        row = replace(OBJECTIVES["rtd"], cls=f"{module}:Mine")
    else:
        function = importlib.import_module(module).silent_share
        row = replace(OBJECTIVES["rtd"], silent_share=function)
    monkeypatch.setitem(OBJECTIVES, "mine", row)
    cell = with_objective("mine")

    def of(source: str) -> str:
        written(source)
        return identity(cell, kept(STUDY))

    first = of("class Mine:\n    x = 1\n")
    assert of('"""A text."""\n# One more.\nclass Mine:\n    """Mine."""\n\n    x = 1\n') == first
    assert of("class Mine:\n    x = 2\n") != first
    assert of("class Mine:\n    pass\n\nx = 1\n") != first
    assert of("class Mine:\n    x = (\n") not in (first, of("class Mine:\n    x = [\n"))


def test_a_row_without_a_source_counts_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_by_hand", ModuleType("made_by_hand"))
    monkeypatch.setitem(OBJECTIVES, "mine", replace(OBJECTIVES["rtd"], cls="made_by_hand:Mine"))
    assert own_source(with_objective("mine").config) == ["made_by_hand"]


@pytest.mark.parametrize("name", names())
def test_no_module_counts_for_shipped_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where a row was told that it can grade the text of a corruptor of one's own."""
    row = OBJECTIVES["rtd"]
    monkeypatch.setitem(OBJECTIVES, "rtd", replace(row, corruptors=(*row.corruptors, "mine")))
    assert own_source(load(name)) == []
