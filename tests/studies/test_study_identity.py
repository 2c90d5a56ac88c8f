"""The plan of a study and its folder: what is checked before the first run, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from electrify.data.loader import Loader
from electrify.data.phases import phases_of
from electrify.errors import UserError
from electrify.flop_counts import recipe_flops
from electrify.recipe import entry, joined, load, override
from electrify.studies.budgets import (
    UNTRAINED,
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
from electrify.studies.measures import measure_named, network_of
from electrify.studies.options import CompareConfig
from electrify.studies.study import (
    PRETRAIN,
    STUDY,
    Result,
    entries_of,
    identity,
    merged,
    plan_study,
    write_study,
)
from electrify.tables import KEPT
from electrify.text.corpus import Corpus
from electrify.train.optim import planned
from electrify.train.run import pretrain

TINY = (
    "num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=64,"
    "embedding_size=32,max_position_embeddings=128,max_seq_length=16,train_batch_size=4,"
    "warmup_steps=5,eval_rows=16,bf16=false"
)


def blimp(folder: Path) -> Path:
    """A folder with one paradigm."""
    folder.mkdir(parents=True)
    pair = {"sentence_good": "the cat sees it.", "sentence_bad": "the cat see it."}
    (folder / "agreement.jsonl").write_text((json.dumps(pair) + "\n") * 4)
    return folder


def config(corpus: Path, tmp_path: Path, **fields: Any) -> CompareConfig:
    tasks = tmp_path / "tasks"
    if not tasks.exists():
        blimp(tasks / "blimp")
    given: dict[str, Any] = {
        "data": str(corpus),
        "recipes": (f"bert-tiny:{TINY}", f"electra-tiny:{TINY}"),
        "budgets": (2e8, 1e8),
        "seeds": 2,
        "tasks": ("blimp",),
        "data_dir": str(tasks),
        "output_dir": str(tmp_path / "out"),
        "device": "cpu",
    }
    return CompareConfig(**(given | fields))


# ------------------------------------------------------------------ what is asked for


def test_a_recipe_file_gives_names(small_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "recipes.yaml"
    path.write_text("more masks:\n  recipe: electra-tiny\n  mask-rate: 0.3\n")
    found = entries_of(config(small_data, tmp_path, recipes=(), recipe_file=str(path)))
    assert [(e.name, e.recipe, e.changes) for e in found] == [
        ("more masks", "electra-tiny", {"mask_rate": "0.3"})
    ]
    path.write_text("more masks: electra-tiny\n")
    with pytest.raises(UserError, match="more masks names no recipe"):
        entries_of(config(small_data, tmp_path, recipes=(), recipe_file=str(path)))


def test_every_recipe_budget_and_seed_and_the_baselines(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    assert len(study.trials) == 2 * 2 * 2 + len(UNTRAINED) * 2
    assert len({study.folder(t) for t in study.trials}) == len(study.trials)
    assert {t.entry for t in study.trials} == {*study.recipes, *UNTRAINED}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tasks": ("stsbb",)}, "stsb"),
        ({"tasks": ("glue",)}, "stands for several"),
        ({"tasks": ("cola:cosine",)}, "cola is not measured as 'cosine'"),
        ({"tasks": ("planted", "planted:mlm")}, "planted:mlm: a run of objective rtd leaves no"),
        ({"tasks": ("blimp", "BLiMP:")}, "blimp is given twice"),
        ({"budgets": (1e3,)}, "bert-tiny:.*warmup_steps"),
        ({"data_dir": "nowhere"}, "--data-dir nowhere: no folder"),
        ({"recipes": ("bert-tiny", "bert-tiny")}, "twice"),
        ({"recipes": (f"bert-tiny:{TINY},seed=7",)}, "seed is set by --seed"),
        ({"recipes": ("bert-tinny",)}, "bert-tiny"),
    ],
)
def test_mistakes_are_found_before_the_first_run(small_data, tmp_path, fields, says):
    with pytest.raises(UserError, match=says):
        plan_study(config(small_data, tmp_path, **fields))
    assert not (tmp_path / "out").exists()


def test_where_tasks_lie_and_which_network_is_measured(tmp_path: Path) -> None:
    (tmp_path / "glue").mkdir()
    stsb = measure_named("STS-B:cosine", str(tmp_path))
    assert (stsb.name, stsb.folder) == ("stsb:cosine", str(tmp_path / "glue"))
    plain, by_likelihood = (measure_named(n, None) for n in ("planted", "Planted:mlm"))
    for recipe, network in (("bert-tiny", KEPT), ("corrective-tiny", "corrector")):
        assert network_of(plain, load(recipe)) == KEPT
        assert network_of(by_likelihood, load(recipe)) == network
    alone = override(load("corrective-tiny"), {"mlm_share": 0.4, "correction": "none"})
    for found in (*map(load, ("electra-tiny", "teams-tiny", "electric-tiny")), alone):
        with pytest.raises(UserError, match="leaves no masked language model of its encoder"):
            network_of(by_likelihood, found)


# ------------------------------------------------------------------ what a trial is


KEPT_BY_STUDY = {"data": "corpus", "task_data": {"stsb": "examples"}, "task_seeds": 3}


def identity_of(recipe: str, **fields: Any) -> str:
    (trial,) = trials_of(entry(recipe), [1e13], [0], Cost(8192), "wsd")
    return identity(recipe, override(trial.recipe, fields), KEPT_BY_STUDY)


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
    assert identity_of("corrective-tiny", **{name: value}) != identity_of("corrective-tiny")


@pytest.mark.parametrize(
    ("name", "value"), [("threads", "2"), ("save_steps", 7), ("per_device_train_batch_size", 4)]
)
def test_how_the_work_is_done_is_not_a_part_of_it(name: str, value: Any) -> None:
    assert identity_of("electra-tiny", **{name: value}) == identity_of("electra-tiny")


def test_an_untrained_encoder_has_its_first_weights(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    weights = []
    for trial in (t for t in study.trials if t.entry in UNTRAINED and t.seed == 0):
        recipe = override(trial.recipe, {"report_to": (), "device": "cpu"})
        run = pretrain(small_data, output_dir=study.folder(trial), config=recipe).run
        weights.append(load_file(run / "checkpoint-1" / "model.safetensors"))
        for name, tensor in weights[-1].items():
            if "norm" in name.lower() and name.endswith("weight"):
                assert (tensor - 1).abs().max() < 1e-11, name
    # Words from co-occurrence are other words, and nothing else differs.
    differ = {n for n in weights[0] if not weights[0][n].allclose(weights[1][n], atol=1e-9)}
    assert differ
    assert all("word" in name for name in differ), differ


def test_recipes_that_start_from_folders(small_data: Path, tmp_path: Path) -> None:
    """They cost what the shapes of the folders cost, their weights belong to them, and baselines
    have those shapes but no weights."""
    recipe = plan_study(config(small_data, tmp_path)).trials[0].recipe
    deep = override(recipe, {"num_hidden_layers": 5, "max_steps": 2, "warmup_steps": 1})
    model = pretrain(small_data, output_dir=tmp_path / "deep", config=deep).exported[KEPT]
    recipes = (
        f"bert-tiny:{TINY},init_discriminator={model}",
        f"bert-tiny:{TINY}".replace("layers=1", "layers=5"),
        f"bert-tiny:{TINY}",
    )
    asked = config(small_data, tmp_path, recipes=recipes, budgets=(1e9,), seeds=1)
    study = plan_study(asked)
    started, as_deep, shallow = (t for t in study.trials if t.budget)
    assert started.steps == as_deep.steps < shallow.steps
    assert started.flops == as_deep.flops == pytest.approx(1e9, rel=0.05)
    for trial in (t for t in study.trials if not t.budget):
        assert trial.recipe.train.init_discriminator is None
        assert trial.recipe.model.num_hidden_layers == 5
    settings = model / "config.json"
    settings.write_text(settings.read_text() + "\n")
    again = plan_study(asked).trials
    assert [t.identity == o.identity for t, o in zip(again, study.trials, strict=True)] == [
        t is not started for t in study.trials
    ]


def test_epochs_over_the_corpus(small_data: Path, tmp_path: Path) -> None:
    """The same updates for both recipes, as many epochs as a run's log counts."""
    study = plan_study(config(small_data, tmp_path, equal="epochs", budgets=(3.0, 2.0), seeds=1))
    bert, electra = (t for t in study.trials if t.budget == 2.0)
    corpus = Corpus(small_data, "train")
    filled = Loader(corpus, phases=phases_of(bert.recipe), num_segments=2, seed=0)
    batch = bert.recipe.train.train_batch_size / filled.streams[16].num_rows
    assert filled.epoch(bert.steps) == pytest.approx(2.0, abs=batch)
    assert bert.steps == electra.steps
    assert bert.starts_at == pytest.approx(0.8 * bert.steps, abs=1)


# ------------------------------------------------------------------ the folder


def test_what_a_study_keeps(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    write_study(study)
    path = study.out / STUDY
    assert yaml.safe_load(path.read_text())["score"] == "mean rank over the tasks"
    # More recipes, budgets and seeds belong to the same study; other measures do not.
    plan_study(config(small_data, tmp_path, seeds=3, budgets=(4e8, 1e8)))
    for fields, says in (
        ({"task_seeds": 5}, "a study with --task-seeds 3, not 5"),
        ({"max_eval_samples": 3}, "a study with --max-eval-samples None, not 3"),
        ({"lr_scheduler_type": "recipe"}, "--lr-scheduler-type wsd"),
        ({"equal": "epochs", "budgets": (2.0,)}, "--equal flops, not epochs"),
        (
            {"tasks": ("blimp", "blimp:mlm"), "recipes": (f"bert-tiny:{TINY}",)},
            "a study with other --tasks",
        ),
    ):
        with pytest.raises(UserError, match=says):
            plan_study(config(small_data, tmp_path, **fields))
    examples = tmp_path / "tasks" / "blimp" / "agreement.jsonl"
    examples.write_text(examples.read_text().replace("the cat sees", "a cat sees"))
    with pytest.raises(UserError, match="or other examples"):
        plan_study(config(small_data, tmp_path))
    path.write_text("mine: 1\n")
    with pytest.raises(UserError, match="not the plan of a study"):
        plan_study(config(small_data, tmp_path))


# ------------------------------------------------------------------ results.jsonl


def attempt(failed: dict[str, str], steps: int = 10, **scores: float) -> Result:
    found = {k: {"metric": "f1", "scores": [v]} for k, v in scores.items()}
    return Result("first", 1e9, 0, "x", steps, 1e9, 1.0, 2.0, 3, found, failed)


def test_scores_of_several_attempts_are_joined() -> None:
    """Each task by its newest score; a reason only where there is none."""
    had = attempt({"c": "no disk"}, a=0.1, b=0.2)
    new = attempt({"a": "no disk today", "d": "no file"}, b=0.3, c=0.4)
    assert merged(had, new) == attempt({"d": "no file"}, a=0.1, b=0.3, c=0.4)
    assert merged(None, new) == new
    # Scores are not given up for a later failure, which is told.
    killed = attempt({PRETRAIN: "killed"}, steps=0)
    assert merged(had, killed) == replace(had, failed={"c": "no disk", PRETRAIN: "killed"})
    assert merged(killed, had) == had


# ------------------------------------------------------------------ budgets


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
def test_a_budget_that_does_not_fit_is_refused(text, budget, cost, says):
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
def test_runs_are_shared_exactly_as_long_as_their_learning_rates_agree(short, more, warmup):
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


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        ("a,b", ["a", "b"]),
        ("a:x=1,y=2,b", ["a:x=1,y=2", "b"]),
        ("a:x=1,b:y=2,z=3", ["a:x=1", "b:y=2,z=3"]),
        ("x=1,a", ["x=1", "a"]),
    ],
)
def test_commas_stand_between_recipes_and_changes(words: str, entries: list[str]) -> None:
    assert joined(words.split(",")) == entries
