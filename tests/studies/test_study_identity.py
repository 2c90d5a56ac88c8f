"""The plan of a study and its folder: what is checked before the first run, and what is kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from electrify.data.loader import Loader
from electrify.data.phases import phases_of
from electrify.errors import UserError
from electrify.finetuning.tasks import TASKS
from electrify.methods import DISCRIMINATOR
from electrify.recipe import load, override
from electrify.studies import study as studies
from electrify.studies.budgets import UNTRAINED
from electrify.studies.measures import digest_of, measure_named, network_of, read_score
from electrify.studies.options import CompareConfig
from electrify.studies.study import (
    PRETRAIN,
    STUDY,
    Result,
    Study,
    entries_of,
    identity,
    merged,
    plan_study,
    read_results,
    record,
    write_study,
)
from electrify.text.corpus import Corpus
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


@pytest.fixture(scope="module")
def planned(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return plan_study(config(small_data, tmp_path_factory.mktemp("planned")))


def line(study: Study, k: int, **fields: Any) -> Result:
    """The result of a trial."""
    t = study.trials[k]
    given = {"steps": t.steps, "flops": t.flops, "tokens": 10.0, "seconds": 2.0 * t.steps}
    given |= {"parameters": 1000, "scores": {"blimp": {"metric": "accuracy", "scores": [0.5]}}}
    return Result(*t.key, **(given | fields))


def test_recipes_of_words_and_of_a_file(small_data: Path, tmp_path: Path) -> None:
    """Commas stand between recipes and between changes; a file gives names."""
    path = tmp_path / "recipes.yaml"
    path.write_text("more masks:\n  recipe: electra-tiny\n  mask-rate: 0.3\n")
    words = ("bert-tiny", "electra-tiny:mask_rate=.3", "tie=all", "electra-15-tiny")
    asked = config(small_data, tmp_path, recipes=words, recipe_file=str(path))
    assert [(e.name, e.recipe, e.changes) for e in entries_of(asked)] == [
        ("bert-tiny", "bert-tiny", {}),
        ("electra-tiny:mask_rate=.3,tie=all", "electra-tiny", {"mask_rate": ".3", "tie": "all"}),
        ("electra-15-tiny", "electra-15-tiny", {}),
        ("more masks", "electra-tiny", {"mask_rate": "0.3"}),
    ]


def test_every_recipe_budget_and_seed_and_the_baselines(planned: Study) -> None:
    trials = planned.trials
    assert len(trials) == 2 * 2 * 2 + len(UNTRAINED) * 2
    assert len({planned.folder(t) for t in trials}) == len(trials)
    assert {t.entry for t in trials} == {*planned.recipes, *UNTRAINED}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tasks": ("stsb:frosen",)}, "not measured as 'frosen'; did you mean 'frozen'"),
        (
            {"tasks": ("substitution", "substitution:mlm")},
            "substitution:mlm: a run of objective rtd leaves no",
        ),
        ({"tasks": ("substitution",), "data_dir": None}, "its held-out part gives only"),
        ({"budgets": (1e3,)}, "bert-tiny:.*warmup_steps"),
        ({"data_dir": "nowhere"}, "data_dir nowhere: no folder"),
        ({"recipes": ("bert-tiny", "bert-tiny")}, "twice"),
        ({"recipes": (f"bert-tiny:{TINY},seed=7",)}, "seed is set by --seed"),
        # Scores that cannot decide, as score.yaml.
        (
            {"score": "families: {a: {blimp: 0.9, substitution: 1}}"},
            "the score needs --tasks substitution",
        ),
        ({"score": "families: {a: {blimp: 0.9}}", "baselines": False}, "needs --baselines"),
        ({"score": "families: {a: {blimp: high}}"}, "is not a score"),
    ],
)
def test_mistakes_are_found_before_the_first_run(small_data, tmp_path, fields, says):
    fields = dict(fields)
    if "score" in fields:
        fields["score_file"] = str(tmp_path / "score.yaml")
        (tmp_path / "score.yaml").write_text(fields.pop("score") + "\n")
    with pytest.raises(UserError, match=says):
        plan_study(config(small_data, tmp_path, **fields))
    assert not (tmp_path / "out").exists()


def test_where_tasks_lie_and_which_network_is_measured(tmp_path: Path) -> None:
    (tmp_path / "glue").mkdir()
    stsb = measure_named("STS-B:cosine", str(tmp_path))
    assert (stsb.name, stsb.folder) == ("stsb:cosine", str(tmp_path / "glue"))
    plain, by_likelihood, best = (
        measure_named(name, None)
        for name in ("substitution", "Substitution:mlm", "substitution:best")
    )
    for recipe, network in (("bert-tiny", DISCRIMINATOR), ("corrective-tiny", "corrector")):
        assert network_of(plain, load(recipe)) == DISCRIMINATOR
        assert network_of(by_likelihood, load(recipe)) == network_of(best, load(recipe)) == network
    # The generator is another encoder.
    assert network_of(best, load("electra-tiny")) == DISCRIMINATOR
    alone = override(load("corrective-tiny"), {"mlm_share": 0.4, "correction": "none"})
    for found in (load("electra-tiny"), alone):
        with pytest.raises(UserError, match="leaves no masked language model of its encoder"):
            network_of(by_likelihood, found)


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("learning_rate", 2e-3, False),
        ("correction", "gate", False),
        ("save_steps", 7, True),
        ("per_device_train_batch_size", 4, True),
    ],
)
def test_what_makes_another_recipe(name: str, value: Any, same: bool) -> None:
    """What decides the scores, and not how the work is done."""
    kept = {"data": "corpus", "task_data": {"stsb": "examples"}, "task_seeds": 3}
    recipes = [override(load("corrective-tiny"), {name: x} if x else {}) for x in (None, value)]
    one, other = (identity("corrective-tiny", recipe, kept) for recipe in recipes)
    assert (one == other) == same


def test_an_untrained_encoder_has_its_first_weights(small_data, planned, tmp_path, without_exports):
    weights = []
    for trial in (t for t in planned.trials if t.entry in UNTRAINED and t.seed == 0):
        recipe = override(trial.recipe, {"report_to": (), "device": "cpu"})
        run = pretrain(small_data, output_dir=tmp_path / trial.entry, recipe=recipe).folder
        weights.append(load_file(run / "checkpoint-1" / "model.safetensors"))
        for name, tensor in weights[-1].items():
            if "norm" in name.lower() and name.endswith("weight"):
                assert (tensor - 1).abs().max() < 1e-11, name
    # Words from co-occurrence are other words, and nothing else differs.
    differ = {n for n in weights[0] if not weights[0][n].allclose(weights[1][n], atol=1e-9)}
    assert differ
    assert all("word" in name for name in differ), differ


def test_recipes_that_start_from_folders(small_data: Path, planned: Study, tmp_path: Path) -> None:
    """They cost what the shapes of the folders cost, their weights belong to them, and baselines
    have those shapes but no weights."""
    deep = override(
        planned.trials[0].recipe, {"num_hidden_layers": 5, "max_steps": 2, "warmup_steps": 1}
    )
    model = pretrain(small_data, output_dir=tmp_path / "deep", recipe=deep).exported[DISCRIMINATOR]
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
        ({"tasks": ("blimp", "blimp:mlm"), "recipes": (f"bert-tiny:{TINY}",)}, "other --tasks"),
    ):
        with pytest.raises(UserError, match=says):
            plan_study(config(small_data, tmp_path, **fields))
    examples = tmp_path / "tasks" / "blimp" / "agreement.jsonl"
    examples.write_text(examples.read_text().replace("the cat sees", "a cat sees"))
    with pytest.raises(UserError, match="or other examples"):
        plan_study(config(small_data, tmp_path))


def test_a_score_of_ones_own(small_data: Path, tmp_path: Path) -> None:
    """It is written before the first run, names the tasks, and cannot be changed."""
    file = tmp_path / "score.yaml"
    file.write_text('families: {pairs: {blimp: 0.9, "blimp:best": 1}}\nfloors: {blimp: 0.5}\n')
    asked = config(small_data, tmp_path, tasks=(), score_file=str(file))
    study = plan_study(asked)
    assert study.tasks == list(study.config.tasks) == ["blimp", "blimp:best"]
    study.out.mkdir()
    write_study(study)
    declared = yaml.safe_load((study.out / STUDY).read_text())["score"]
    assert declared == {
        "families": {"pairs": {"blimp": 0.9, "blimp:best": 1.0}},
        "floors": {"blimp": 0.5},
    }
    file.write_text(file.read_text().replace("0.9", "0.8"))
    with pytest.raises(UserError, match="a study with another score"):
        plan_study(asked)
    file.write_text(file.read_text().replace("floors: {blimp", "floors: {blump"))
    with pytest.raises(UserError, match="blump has a floor and no family"):
        read_score(str(file))
    for wrong, says in (
        ("floors: {blimp: 0.8}", "the floor of blimp must be below its ceiling, 0.8"),
        ("floor: {blimp: 0.5}", "no key 'floor'; did you mean 'floors'"),
    ):
        file.write_text(f"families: {{pairs: {{blimp: 0.8}}}}\n{wrong}\n")
        with pytest.raises(UserError, match=says):
            read_score(str(file))


def test_the_declared_score_names_measures() -> None:
    declared = read_score()
    assert len(declared.families) == 5
    for name in declared.tasks:
        assert measure_named(name, str(Path(__file__).parent)).name == name
    full = dict.fromkeys(declared.tasks, 1.0)
    ceilings = {t: c for of in declared.families.values() for t, c in of.items()}
    random = dict.fromkeys(declared.tasks, 0.1)
    assert declared.of(ceilings, random) == pytest.approx(1)
    assert declared.of(random | {"stsb": 0.653}, random) == pytest.approx(0)
    assert declared.of(full, random) > 1
    assert declared.of(full, full | ceilings) == 0  # random weights are not beaten


def test_what_a_task_says_of_its_examples_belongs_to_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BabyLM's rows name the metric that counts, the epochs and the length."""
    row = TASKS["babylm_mrpc"]
    text = json.dumps({"sentence1": "a", "sentence2": "b", "label": 1}) + "\n"
    for name in (*row.train, *row.validation):
        (tmp_path / name).write_text(text)
    found = set[str]()
    for changed in ({}, {"metrics": ("accuracy", "f1")}, {"epochs": 3}, {"max_seq_length": 128}):
        monkeypatch.setitem(TASKS, row.name, replace(row, **changed))
        found.add(digest_of(measure_named(row.name, str(tmp_path)), tmp_path))
    assert len(found) == 4


def test_results_alone_are_enough_to_go_on(
    small_data: Path, planned: Study, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    record(elsewhere, {}, line(planned, 0))
    study = plan_study(config(small_data, tmp_path, output_dir=str(elsewhere)))
    assert study.finished(read_results(elsewhere)) == {study.trials[0].key}
    file = elsewhere / "results.jsonl"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(UserError, match="line 1 is damaged"):
        read_results(elsewhere)


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


def test_short_runs_without_files(small_data, tmp_path, monkeypatch):
    """A warm-up that would last to the end is a tenth of its run, unless the user chose it; runs
    with other warm-ups begin differently. Word substitution needs no files."""
    monkeypatch.setattr(studies, "digest_of", lambda measure, corpus: "")  # the corpus is short
    words = ("bert-tiny:" + TINY.replace("warmup_steps=5,", ""), f"electra-tiny:{TINY}")
    given = {"recipes": words, "budgets": (4e8, 8e9), "tasks": (), "data_dir": None}
    study = plan_study(config(small_data, tmp_path, **given, baselines=False, seeds=1))
    assert study.tasks == ["substitution"]
    found = {(t.entry[:4], t.budget): (t.recipe.train.warmup_steps, t) for t in study.trials}
    short, long = found["bert", 4e8], found["bert", 8e9]
    assert short[0] == short[1].steps // 10 < 200 == long[0]
    assert short[1].starts_at is None
    assert found["elec", 4e8][0] == 5
    assert found["elec", 4e8][1].starts_at
    given["recipes"] = (words[0] + ",warmup_steps=200",)
    with pytest.raises(UserError, match="warmup_steps 200 is not below"):
        plan_study(config(small_data, tmp_path, **given, baselines=False))
