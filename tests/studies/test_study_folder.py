"""The folder of a study, and what is checked before its first run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from safetensors.torch import load_file

from electrify.data.loader import Loader
from electrify.data.phases import phases_of
from electrify.errors import UserError
from electrify.files import claim
from electrify.finetuning.tasks import TASKS
from electrify.flop_counts.count import recipe_flops
from electrify.recipe import load, override, parse
from electrify.rules import check
from electrify.scoring.blimp import Accuracy, Paradigm
from electrify.scoring.evaluate import evaluate_pairs
from electrify.studies import compare as compare_module
from electrify.studies import forecast as forecast_module
from electrify.studies import processes
from electrify.studies import study as study_module
from electrify.studies import untrained as untrained_module
from electrify.studies.cell import OUTCOME, Work
from electrify.studies.forecast import Forecast, Line, Rate, probe_of
from electrify.studies.measures import Measuring, digest_of, meant_by, measure, network_of
from electrify.studies.options import CompareConfig
from electrify.studies.plan import Cell
from electrify.studies.processes import CELL, environment
from electrify.studies.results import (
    PRETRAIN,
    RESULTS,
    Result,
    merged,
    read_results,
    write_results,
)
from electrify.studies.run import Runner, Running, result_of, run_study
from electrify.studies.shares import progress_of, weights_of
from electrify.studies.study import (
    STUDY,
    Study,
    declared,
    entries_of,
    finished,
    folder_name,
    key_of,
    must_be_ours,
    plan_study,
    write_study,
)
from electrify.studies.untrained import UNTRAINED, untrained
from electrify.tables import KEPT
from electrify.text.corpus import Corpus
from electrify.train.run import pretrain
from electrify.train.start import content_of

TINY = (
    "num_hidden_layers=1,hidden_size=32,num_attention_heads=2,intermediate_size=64,"
    "embedding_size=32,max_position_embeddings=128,max_seq_length=16,train_batch_size=4,"
    "warmup_steps=5,eval_rows=16,bf16=false"
)


def blimp(folder: Path) -> Path:
    """A folder with one paradigm."""
    folder.mkdir(parents=True)
    pair = {"sentence_good": "the cat sees it.", "sentence_bad": "the cat see it."}
    more = {"field": "syntax", "linguistics_term": "agreement", "UID": "agreement"}
    text = "".join(json.dumps(pair | more | {"pair_id": k}) + "\n" for k in range(4))
    (folder / "agreement.jsonl").write_text(text)
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


def test_planted_pairs_need_no_files(small_data: Path, tmp_path: Path) -> None:
    """They are made of the corpus, of which the small one has too little."""
    with pytest.raises(UserError, match=f"{small_data}: its held-out part gives only"):
        plan_study(config(small_data, tmp_path, tasks=("planted",), data_dir=None))


def test_commas_stand_between_recipes_and_between_changes(small_data: Path, tmp_path: Path) -> None:
    words = ("bert-tiny", "electra-tiny:mask_rate=.3", "tie=all", "electra-15-tiny")
    found = entries_of(config(small_data, tmp_path, recipes=words))
    assert [entry.name for entry in found] == [
        "bert-tiny",
        "electra-tiny:mask_rate=.3,tie=all",
        "electra-15-tiny",
    ]
    assert found[1].changes == {"mask_rate": ".3", "tie": "all"}


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


def test_all_recipes_of_a_seed_before_the_next_seed(small_data: Path, tmp_path: Path) -> None:
    """So a study that is stopped can compare them. The longest run of a recipe comes first."""
    waiting = Runner(plan_study(config(small_data, tmp_path))).waiting
    assert [c.seed for c in waiting] == sorted(c.seed for c in waiting)
    first = [(c.entry.partition("-")[0], c.budget) for c in waiting if c.seed == waiting[0].seed]
    assert first[:4] == [("bert", 2e8), ("bert", 1e8), ("electra", 2e8), ("electra", 1e8)]


def test_a_frozen_generator_is_probed(small_data: Path, tmp_path: Path) -> None:
    """It must have been trained, which the few seconds of a probe had left away."""
    changes = f"{TINY},generator_size=1,generator_steps=20,discriminator_start=random"
    changes += ",generator_warmup_steps=0"  # the first stage is a single update
    study = plan_study(config(small_data, tmp_path, recipes=(f"two-stage-tiny:{changes}",)))
    text = probe_of(study, study.cells[0], str(tmp_path)).recipe
    assert yaml.safe_load(text)["train"]["generator_steps"] == 1
    check(parse(text, "probe"))


def test_every_recipe_budget_and_seed_and_the_untrained(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    assert len(study.cells) == 2 * 2 * 2 + len(UNTRAINED) * 2
    assert len({folder_name(c) for c in study.cells}) == len(study.cells)
    assert len(study.recipes) == 2
    assert {c.entry for c in study.cells} == {*study.recipes, *UNTRAINED}
    weights = weights_of(study.cells)
    assert sum(weights.values()) == pytest.approx(len(study.cells))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tasks": ("stsbb",)}, "stsb"),
        ({"tasks": ("glue",)}, "stands for several"),
        ({"tasks": ("stsb:frosen",)}, "frozen"),
        ({"tasks": ("blimp:frozen",)}, "leave :frozen out"),
        ({"tasks": ("cola:cosine",)}, "cosines are for stsb"),
        ({"tasks": ("squad1:frozen",)}, "only by a fine-tuned encoder"),
        ({"tasks": ("stsb",)}, "STS-B"),
        ({"budgets": (1e3,)}, "warmup_steps"),
        ({"tasks": ("blimp", "blimp:")}, "blimp and blimp: are the same"),
        ({"tasks": ("stsb", "STS-B")}, "stsb and STS-B are the same"),
        ({"data_dir": "nowhere"}, "no such folder"),
        ({"data_dir": None}, "--data-dir is missing: blimp is measured on files; give their fol"),
        ({"data_dir": None, "tasks": ("planted", "cola")}, "--data-dir is missing: cola is"),
        ({"budgets": (1e8, 1.00001e8)}, "are both .* updates"),
        ({"budgets": (1e8, 1e308)}, "more than 1e.12 updates"),
        ({"recipes": ("bert-tiny", "bert-tiny")}, "twice"),
        ({"recipes": (f"bert-tiny:{TINY},seed=7",)}, "seed is set by --seed"),
        (
            {"recipes": (f"bert-tiny:{TINY},max-minutes=1",)},
            "max_minutes is set by the study itself",
        ),
        ({"recipes": (f"bert-tiny:{TINY},mask_rate=nan",)}, "mask_rate"),
        ({"recipes": ("bert-tiny:mask_rate=.3,mask-rate=.4",)}, "mask_rate is changed twice"),
        ({"recipes": ("bert-tinny",)}, "bert-tiny"),
        ({"data": "nowhere"}, "nowhere"),
        ({"processes": 4096}, "processes: there are"),
    ],
)
def test_mistakes_are_found_before_the_first_run(
    small_data: Path, tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        plan_study(config(small_data, tmp_path, **fields))
    assert not (tmp_path / "out").exists()


def test_scipy_is_asked_for_before_the_first_run(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install"):
        plan_study(config(small_data, tmp_path))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_eval_samples": 5}, "--max-eval-samples does nothing: it is for blimp"),
        ({"max_eval_samples": 5, "tasks": ("stsb", "BLiMP:mlm")}, ""),
        ({"max_train_samples": 5, "tasks": ("stsb:cosine", "blimp")}, "--max-train-samples does"),
        (
            {"task_seeds": 2, "tasks": ("planted",), "data_dir": None},
            "--task-seeds does nothing: no task",
        ),
        ({"tasks": ("planted", "Planted:mlm")}, "--data-dir does nothing: planted is made of the"),
        ({"tasks": ("planted",), "data_dir": None}, ""),
        ({"tasks": ("planted", "blimp")}, ""),
        ({"task_seeds": 2, "tasks": ("planted", "cola:frozen")}, ""),
    ],
)
def test_options_that_no_task_reads(
    small_data: Path, tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    given: dict[str, Any] = {"tasks": ("stsb",), "max_eval_samples": None, "task_seeds": 3}
    given |= {"max_train_samples": None}
    lines = list(compare_module.in_vain(config(small_data, tmp_path, **given | fields)))
    assert [line[: len(says)] for line in lines] == ([says] if says else [])


def test_an_axis_that_a_picture_does_not_have(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said, and not refused: a study of one budget may get a second one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compare_module, "forecast", lambda study: None)
        for budgets, says in (((1e8,), True), ((2e8, 1e8), False)):
            compare_module.planned(config(small_data, tmp_path, budgets=budgets, against="tokens"))
            found = "--against tokens changes nothing" in capsys.readouterr().err
            assert found == says


def test_rates_come_from_encoders_that_are_trained_already(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    first = [c.entry == study.recipes[0] for c in study.cells].index(True)
    write_results(study.out, [line(study, first)])
    asked = []

    def probed(study: Any, cell: Any) -> Rate:
        asked.append(cell.entry)
        return Rate(3e-9, 2000)

    monkeypatch.setattr(forecast_module, "probed", probed)
    plan = forecast_module.forecast(study)
    assert asked == [study.recipes[1]]
    one, other = plan.lines[0], plan.lines[2]
    assert one.minutes == pytest.approx(2.0 * one.updates / 60)
    assert other.minutes == pytest.approx(3e-9 * other.flops / 60)
    assert (one.parameters, other.parameters, one.done) == (1000, 2000, 1)
    assert one.tokens == one.updates * 4 * 16
    assert len(set(plan.text().splitlines()[1].split())) > 3


def test_minutes_go_by_flops(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of updates with longer rows later on, of a cheaper first stage, and of the end of a run that
    another one begins, in whatever convention the budgets are."""
    monkeypatch.setattr(forecast_module, "probed", lambda study, cell: Rate(1e-6, 1))
    two = f"two-stage-tiny:{TINY},discriminator_start=random"
    recipes = (f"bert-tiny:{TINY}", f"bert-tiny:{TINY},seq_length_schedule=8=.9", two)
    study = plan_study(
        config(small_data, tmp_path, recipes=recipes, convention="paper", baselines=False)
    )
    cells = [c for c in study.cells if c.seed == 0]
    for cell, row in zip(cells, forecast_module.forecast(study).lines, strict=True):
        found = recipe_flops(
            cell.config, vocab_size=study.cost.vocab_size, convention="hardware"
        ).train
        assert abs(found / cell.flops - 1) > 0.01
        share = 1 if cell.starts_at is None else 1 - cell.starts_at / cell.steps
        assert row.minutes == pytest.approx(1e-6 * share * found / 60)
    assert sum(cell.starts_at is not None for cell in cells) == 1


@pytest.mark.slow
def test_a_probe_begins_with_the_first_update(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes before: here a corpus that is opened for longer than the probe takes, and a
    first stage."""
    slow = (
        "import time; from electrify.train import run; plan = run.plan\n"
        "def late(job): time.sleep(1); return plan(job)\n"
        "run.plan = late\n"
        "from electrify.studies.cell import main; raise SystemExit(main())"
    )
    monkeypatch.setattr(processes, "CELL", [sys.executable, "-P", "-c", slow])
    monkeypatch.setattr(forecast_module, "PROBE_S", 0.3)
    counted = []

    def enough(updates: list[dict[str, Any]]) -> bool:
        counted.append(updates)
        return real(updates)

    real = forecast_module.enough
    monkeypatch.setattr(forecast_module, "enough", enough)
    recipes = (f"two-stage-tiny:{TINY},discriminator_start=random",)
    study = plan_study(config(small_data, tmp_path, recipes=recipes, baselines=False))
    rate = forecast_module.probed(study, study.cells[0])
    assert rate.parameters > 0
    last = counted[-1]
    assert len(last) >= forecast_module.FEW + forecast_module.FEWEST
    slowest = max(1 / r["flops_per_s"] for r in last)
    assert 0 < rate.per_flop <= slowest


def test_what_cannot_be_probed_says_why(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "raise SystemExit('no room for this')"
    monkeypatch.setattr(processes, "CELL", [sys.executable, "-c", words])
    study = plan_study(config(small_data, tmp_path))
    with pytest.raises(UserError, match=r"bert-tiny:.* cannot be trained: no room for this"):
        forecast_module.probed(study, study.cells[0])


def test_when_a_probe_has_enough() -> None:
    def told(*seconds: float) -> bool:
        return forecast_module.enough([{"seconds": s} for s in seconds])

    assert not told()
    assert not told(100.0)
    assert told(100.0, 170.0)
    assert not told(1.0, 30.0)
    assert told(*range(8))
    assert not told(*(0.1 * k for k in range(8)))


def test_an_untrained_encoder_has_its_first_weights(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    cells = [c for c in study.cells if c.entry in UNTRAINED and c.seed == 0]
    weights = []
    for cell in cells:
        recipe = override(cell.config, {"report_to": (), "device": "cpu"})
        run = pretrain(small_data, output_dir=tmp_path / folder_name(cell), config=recipe).run
        weights.append(load_file(run / "checkpoint-1" / "model.safetensors"))
        for name, tensor in weights[-1].items():
            if "norm" in name.lower() and name.endswith("weight"):
                assert (tensor - 1).abs().max() < 1e-11, name
    # Words from co-occurrence are other words, and nothing else differs.
    differ = {n for n in weights[0] if not weights[0][n].allclose(weights[1][n], atol=1e-9)}
    assert differ
    assert all("word" in name for name in differ), differ


def test_where_tasks_lie(tmp_path: Path) -> None:
    (tmp_path / "glue").mkdir()
    assert meant_by("stsb:cosine", str(tmp_path)) == ("stsb", "cosine", str(tmp_path / "glue"))
    assert meant_by("conll2000", str(tmp_path)) == ("conll2000", "", str(tmp_path))


def test_the_network_that_judges_pairs() -> None:
    """By `:mlm` that of the same encoder which says what token stood there, where a run has one."""
    for recipe, own, by_likelihood in (
        ("bert-tiny", "discriminator", "discriminator"),
        ("corrective-tiny", "discriminator", "corrector"),
    ):
        found = load(recipe)
        assert network_of("planted", found) == own
        assert network_of("planted:mlm", found) == by_likelihood
    alone = override(load("corrective-tiny"), {"mlm_share": 0.4, "correction": "none"})
    for found in (*map(load, ("electra-tiny", "teams-tiny", "electric-tiny")), alone):
        assert network_of("blimp", found) == "discriminator"
        with pytest.raises(UserError, match="leaves no masked language model of its encoder"):
            network_of("blimp:mlm", found)


def test_a_recipe_without_a_language_model_is_refused(small_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="planted:mlm: a run of objective rtd leaves no masked"):
        plan_study(config(small_data, tmp_path, tasks=("planted", "planted:mlm")))


def test_what_a_study_keeps(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    write_study(study)
    assert declared(study)["score"] == "mean rank over the tasks"
    # More recipes, budgets and seeds belong to the same study; other measures do not.
    plan_study(config(small_data, tmp_path, seeds=3, budgets=(4e8, 1e8)))
    for fields in ({"task_seeds": 5}, {"max_eval_samples": 3}, {"lr_scheduler_type": "recipe"}):
        with pytest.raises(UserError, match="holds a study with"):
            plan_study(config(small_data, tmp_path, **fields))
    said = (study.out / STUDY).read_text()
    passes = {"equal": "epochs", "budgets": (2.0,)}
    with pytest.raises(UserError, match="holds a study with --equal flops"):
        plan_study(config(small_data, tmp_path, **passes))
    (study.out / STUDY).write_text(said.replace("tasks:\n- blimp\n", ""))
    with pytest.raises(UserError, match="holds a study without --tasks; choose"):
        plan_study(config(small_data, tmp_path))
    (study.out / STUDY).write_text(said)
    with pytest.raises(UserError, match="holds a study without --max-eval-samples; choose"):
        plan_study(config(small_data, tmp_path, max_eval_samples=3))
    (study.out / STUDY).write_text("mine: 1\n")
    with pytest.raises(UserError, match="not the plan of a study"):
        must_be_ours(study)


def test_results_alone_are_enough_to_go_on(small_data: Path, tmp_path: Path) -> None:
    first = plan_study(config(small_data, tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_results(elsewhere, [line(first, 0)])
    study = plan_study(config(small_data, tmp_path, output_dir=str(elsewhere)))
    assert list(finished(study, read_results(elsewhere))) == [key_of(study.cells[0])]
    write_study(study)
    plan_study(config(small_data, tmp_path, output_dir=str(elsewhere)))


@pytest.mark.parametrize("text", ["mine\n", '{"entry": "bert-tiny"}\n'])
def test_a_results_file_of_the_user_is_refused(small_data: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RESULTS).write_text(text)
    with pytest.raises(UserError, match=r"results\.jsonl, line 1"):
        plan_study(config(small_data, tmp_path))
    assert (tmp_path / "out" / RESULTS).read_text() == text


def test_a_folder_of_the_user_is_refused(small_data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is not ours to write into"):
        plan_study(config(small_data, tmp_path))


def line(study: Any, k: int, **fields: Any) -> Result:
    c = study.cells[k]
    scores = {"blimp": {"metric": "accuracy", "scores": [0.5]}}
    given = {"steps": c.steps, "flops": c.flops, "tokens": 10.0, "seconds": 2.0 * c.steps}
    given |= {"parameters": 1000, "scores": scores}
    where = {"entry": c.entry, "budget": c.budget, "seed": c.seed, "recipe": c.identity}
    return Result(**(where | given | fields))


def test_the_examples_of_the_tasks_belong_to_a_study(small_data: Path, tmp_path: Path) -> None:
    """Scores on other examples are not compared, and a line of another study is not believed."""
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    write_study(study)
    path = tmp_path / "tasks" / "blimp" / "agreement.jsonl"
    path.write_text(path.read_text().replace("the cat sees", "a cat sees"))
    with pytest.raises(UserError, match="other examples of its tasks"):
        plan_study(config(small_data, tmp_path))
    other = plan_study(config(small_data, tmp_path, output_dir=str(tmp_path / "other")))
    assert not finished(other, [line(study, 0)])
    assert finished(study, [line(study, 0)])


def supplemented(data_dir: Path) -> Path:
    """A paradigm of supplement/, put beside those of BLiMP."""
    folder = data_dir / "blimp" / "supplement"
    folder.mkdir()
    pair = {"sentence_good": "does it see ?", "sentence_bad": "does it sees ?"}
    (folder / "turns.jsonl").write_text((json.dumps(pair) + "\n") * 3)
    return folder


def test_a_task_has_the_examples_that_it_shows(small_data: Path, tmp_path: Path) -> None:
    """A supplement beside BLiMP changes no score of BLiMP's, nor the other way round."""
    before = plan_study(config(small_data, tmp_path))
    before.out.mkdir()
    write_study(before)
    data_dir = tmp_path / "tasks"
    supplemented(data_dir)
    after = plan_study(config(small_data, tmp_path))
    assert [c.identity for c in after.cells] == [c.identity for c in before.cells]


def test_what_a_row_says_of_its_examples_belongs_to_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BabyLM's rows name the metric that counts, the passes and the length."""
    row = TASKS["babylm_mrpc"]
    text = json.dumps({"sentence1": "a", "sentence2": "b", "label": 1}) + "\n"
    for name in (*row.train, *row.validation):
        (tmp_path / name).write_text(text)
    found = set[str]()
    for changed in ({}, {"metrics": ("accuracy", "f1")}, {"epochs": 3}, {"max_seq_length": 128}):
        monkeypatch.setitem(TASKS, row.name, replace(row, **changed))
        found.add(digest_of(row.name, str(tmp_path), data=""))
    assert len(found) == 4


def test_the_order_and_the_spelling_of_tasks_change_no_study(
    small_data: Path, tmp_path: Path
) -> None:
    alone: dict[str, Any] = {"recipes": (f"bert-tiny:{TINY}",)}
    tasks = ("supplement", "blimp", "blimp:mlm")
    supplemented(Path(config(small_data, tmp_path).data_dir))
    study = plan_study(config(small_data, tmp_path, **alone, tasks=tasks))
    study.out.mkdir()
    write_study(study)
    other = ("BLiMP:mlm", "supplement", "blimp:")
    again = plan_study(config(small_data, tmp_path, **alone, tasks=other))
    assert again.config.tasks == study.config.tasks
    assert again.cells == study.cells
    must_be_ours(again)
    with pytest.raises(UserError, match=r"a study with --tasks supplement,blimp,blimp:mlm; choo"):
        plan_study(config(small_data, tmp_path, **alone, tasks=("blimp", "blimp:mlm")))


def test_the_weights_that_a_recipe_starts_from_belong_to_it(
    small_data: Path, tmp_path: Path
) -> None:
    recipe = override(plan_study(config(small_data, tmp_path)).cells[0].config, {"max_steps": 6})
    texts = []
    for seed in range(2):
        run = tmp_path / f"start{seed}"
        given = override(recipe, {"seed": seed, "report_to": (), "device": "cpu"})
        pretrain(small_data, output_dir=run, config=given)
        start = f"bert-tiny:{TINY},init_discriminator={run / 'discriminator'}"
        path = tmp_path / "recipes.yaml"
        path.write_text(
            "x:\n  recipe: bert-tiny\n"
            + "".join(
                f"  {k}: {v}\n" for k, v in (w.split("=") for w in start[10:].split(",") if w)
            )
        )
        asked = config(small_data, tmp_path, recipes=(), recipe_file=str(path), baselines=False)
        study = plan_study(asked)
        texts.append(study.cells[0])
        work = Runner(study).work(texts[-1], tmp_path, None)
        assert work.starts == {str(run / KEPT): content_of(str(run / KEPT))}
    assert texts[0].identity != texts[1].identity
    assert folder_name(texts[0]) != folder_name(texts[1])


def test_a_cell_is_told_what_the_plan_hashed(small_data: Path, tmp_path: Path) -> None:
    """Whatever is changed while the study runs is not scored as what was there."""
    study = plan_study(config(small_data, tmp_path))
    work = Runner(study).work(study.cells[0], tmp_path, None)
    assert work.measuring is not None
    assert work.measuring.task_data == study.task_data
    assert work.corpus == study.manifest.fingerprint
    assert TypeAdapter(Work).validate_json(json.dumps(asdict(work))) == work


def test_the_untrained_rows_of_another_first_recipe_are_others(
    small_data: Path, tmp_path: Path
) -> None:
    a = plan_study(config(small_data, tmp_path))
    b = plan_study(config(small_data, tmp_path, recipes=tuple(reversed(a.config.recipes))))
    names = [{folder_name(c) for c in s.cells if c.entry in UNTRAINED} for s in (a, b)]
    assert not names[0] & names[1]
    trained = [{folder_name(c) for c in s.cells if c.entry not in UNTRAINED} for s in (a, b)]
    assert trained[0] == trained[1]


class Ended:
    """A process that is over."""

    returncode = 2

    def poll(self) -> int:
        return self.returncode


def collected(study: Study, cell: Cell, log: str = "no room") -> list[Result]:
    runner = Runner(study)
    folder = runner.folder(cell)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_text(log)
    runner.running.append(Running(cell, folder, Ended(), None))  # type: ignore[arg-type]
    runner.collect()
    return read_results(study.out)


def test_scores_are_not_given_up_for_a_later_failure(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    had = line(study, 0, failed={"stsb": "no data"})
    write_results(study.out, [had, line(study, 1)])
    # The newest reason is told.
    kept = replace(had, failed={"stsb": "no room"})
    assert collected(study, study.cells[0])[0] == kept
    found = collected(study, study.cells[2])
    assert [r.failed for r in found] == [kept.failed, {}, {PRETRAIN: "no room"}]


def test_scores_of_several_attempts_are_joined() -> None:
    """Each task by its newest score; a reason only where there is none."""

    def attempt(failed: dict[str, str], **scores: float) -> Result:
        found = {k: {"metric": "f1", "scores": [v]} for k, v in scores.items()}
        return Result("first", 1e9, 0, "x", 10, 1e9, 1.0, 2.0, 3, found, failed)

    had = attempt({"c": "no disk"}, a=0.1, b=0.2)
    new = attempt({"a": "no disk today", "d": "no file"}, b=0.3, c=0.4)
    tasks = ("a", "b", "c", "d")
    assert merged(had, new, tasks) == attempt({"d": "no file"}, a=0.1, b=0.3, c=0.4)
    assert merged(None, new, tasks) == new
    # A task that was added later has no score because of it.
    killed = attempt({PRETRAIN: "killed"})
    whole = attempt({}, a=0.1, b=0.2)
    assert merged(whole, killed, ("a", "b", "e")) == replace(whole, failed={"e": "killed"})


def test_results_of_two_folders_are_joined(small_data: Path, tmp_path: Path) -> None:
    """What was finished in one of them is not run again because it failed in the other."""
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    good, failed = line(study, 0), line(study, 0, scores={}, failed={PRETRAIN: "no room"})
    for lines in ([good, failed], [failed, good]):
        write_results(study.out, lines)
        assert read_results(study.out) == [good]
        runner = Runner(study)
        assert key_of(study.cells[0]) in runner.done
        assert list(runner.kept.values()) == [good]
    stsb = {"stsb": {"metric": "spearman", "scores": [0.3]}}
    half = line(study, 0, scores=stsb, failed={"blimp": "no data"}, seconds=9.0)
    for lines in ([good, half], [half, good]):
        write_results(study.out, lines)
        (found,) = read_results(study.out)
        assert (found.scores, found.failed) == (good.scores | stsb, {})
    # The numbers beside whole scores are those of their own run.
    again = line(study, 0, failed={"blimp": "no data"}, scores={}, seconds=9.0)
    write_results(study.out, [good, again])
    assert read_results(study.out) == [good]


def test_an_encoder_that_the_system_killed(small_data: Path, tmp_path: Path) -> None:
    """The last line of a bar is not a reason."""
    study = plan_study(config(small_data, tmp_path))
    (tmp_path / "log.txt").write_text("train: 310/402 updates\n")
    for number, says in (
        (9, "killed by signal 9 (Killed), perhaps because memory ran out; it said last: train: 3"),
        (11, "killed by signal 11 (Segmentation fault); it said last: train: 3"),
    ):
        ended = Ended()
        ended.returncode = -number
        running = Running(study.cells[0], tmp_path, ended, None)  # type: ignore[arg-type]
        assert result_of(running, ["cola"]).failed[PRETRAIN].startswith(says)


def test_an_encoder_that_was_killed_between_its_tasks(small_data: Path, tmp_path: Path) -> None:
    """It was trained, and keeps the scores that it has; the other tasks failed, each by its name,
    and are tried again."""
    study = plan_study(config(small_data, tmp_path))
    found = {"metric": "f1", "scores": [0.5]}
    figures = dict.fromkeys(("flops", "tokens", "seconds"), 1.0) | {"steps": 1, "parameters": 1}
    outcome = figures | {"scores": {"a": found}, "failed": {}}
    (tmp_path / OUTCOME).write_text(json.dumps(outcome))
    running = Running(study.cells[0], tmp_path, Ended(), None)  # type: ignore[arg-type]
    assert result_of(running, ["a"]).scores == {"a": found}
    found_in_part = result_of(running, ["a", "b", "c"])
    assert found_in_part.scores == {"a": found}
    assert found_in_part.failed == dict.fromkeys("bc", "no reason given")
    assert (found_in_part.steps, found_in_part.seconds) == (1, 1.0)
    (tmp_path / OUTCOME).write_text(json.dumps(outcome | {"failed": {"b": "no such file"}}))
    (tmp_path / "log.txt").write_text("no room\n")
    found_in_part = result_of(running, ["a", "b", "c"])
    assert found_in_part.failed == {"b": "no such file", "c": "no room"}
    one = replace(study, config=replace(study.config, tasks=("a", "b", "c")))
    assert not finished(one, [found_in_part])
    again = replace(found_in_part, scores={"b": found}, failed={"a": "no room", "c": "no room"})
    assert merged(found_in_part, again).scores == {"a": found, "b": found}
    assert merged(found_in_part, again).failed == {"c": "no room"}


def test_a_reason_is_not_that_of_an_earlier_attempt(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    runner = Runner(study)
    folder = runner.folder(study.cells[0])
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("no space left\n")
    with pytest.MonkeyPatch.context() as patched:
        words = [sys.executable, "-c", "raise SystemExit(2)"]
        patched.setattr(processes, "CELL", words)
        running = runner.start(study.cells[0], None)
    running.process.wait(60)
    assert result_of(running, ["cola"]).failed == {PRETRAIN: "no reason given"}


def test_passes_over_the_corpus(small_data: Path, tmp_path: Path) -> None:
    """Budgets of text: the same updates for both recipes, told apart from FLOPs in the folder, and
    shown beside the FLOPs that they cost."""
    passes = plan_study(config(small_data, tmp_path, equal="epochs", budgets=(3.0, 2.0)))
    bert, electra = (
        [c for c in passes.cells if c.entry.startswith(name) and c.budget == 2.0]
        for name in ("bert", "electra")
    )
    corpus = Corpus(small_data, "train")
    batch = bert[0].config.train.train_batch_size
    filled = Loader(corpus, phases=phases_of(bert[0].config), num_segments=2, seed=0)
    for cell in (*bert, *electra):
        assert filled.epoch(cell.steps) == pytest.approx(
            2.0, abs=batch / filled.streams[16].num_rows
        )
    assert bert[0].steps == electra[0].steps
    assert bert[0].starts_at == pytest.approx(0.8 * bert[0].steps, abs=1)
    passes.out.mkdir()
    write_study(passes)
    assert yaml.safe_load((passes.out / STUDY).read_text())["equal"] == "epochs"
    with pytest.raises(UserError, match="holds a study with --equal epochs"):
        plan_study(config(small_data, tmp_path))
    # Even where the budget would make no sense in the other unit.
    with pytest.raises(UserError, match="holds a study with --equal epochs"):
        plan_study(config(small_data, tmp_path, budgets=(2.0,)))
    shown = Forecast([Line("a", 2.0, 3e8, 5, 320, 2.0, None, 1.0, 9, 2, 0)], 2.0, 100, 1, "epochs")
    head, row = (line.split() for line in shown.text().splitlines()[:2])
    assert head[:4] == ["recipe", "budget", "FLOPs", "updates"]
    assert row[:4] == ["a", "2", "3e+08", "5"]


def test_recipes_that_start_from_folders(small_data: Path, tmp_path: Path) -> None:
    """They cost what the shapes of the folders cost; untrained rows have those, but no weights."""
    of = plan_study(config(small_data, tmp_path)).cells
    deep = override(of[0].config, {"num_hidden_layers": 5, "max_steps": 2, "warmup_steps": 1})
    model = pretrain(small_data, output_dir=tmp_path / "deep", config=deep).exported[KEPT]
    recipes = (
        f"bert-tiny:{TINY},init_discriminator={model}",
        f"bert-tiny:{TINY}".replace("layers=1", "layers=5"),
        f"bert-tiny:{TINY}",
    )
    study = plan_study(config(small_data, tmp_path, recipes=recipes, budgets=(1e9,), seeds=1))
    started, as_deep, shallow = (c for c in study.cells if c.budget)
    assert started.steps == as_deep.steps < shallow.steps
    assert started.flops == as_deep.flops == pytest.approx(1e9, rel=0.05)
    assert started.config.train.init_discriminator == str(model)
    for cell in (c for c in study.cells if not c.budget):
        assert cell.config.train.init_discriminator is None
        assert cell.config.model.num_hidden_layers == 5
    with pytest.raises(UserError, match=r"electra-tiny:.*: tasks: planted:mlm"):
        plan_study(config(small_data, tmp_path, tasks=("planted:mlm",)))


def test_the_supplement_is_a_task_of_its_own(small_data: Path, tmp_path: Path) -> None:
    """Its pairs are judged alone, and so are BLiMP's; a folder without it is refused."""
    given = config(small_data, tmp_path)
    with pytest.raises(UserError, match=r"tasks: supplement: no \.jsonl file in .*supplement"):
        plan_study(config(small_data, tmp_path, tasks=("supplement",)))
    supplemented(Path(given.data_dir))
    study = plan_study(config(small_data, tmp_path, tasks=("blimp", "supplement")))
    recipe = override(study.cells[0].config, {"max_steps": 2, "warmup_steps": 1})
    model = pretrain(small_data, output_dir=tmp_path / "run", config=recipe).exported[KEPT]
    how = Measuring.of(study.config, study.task_data)
    shown: list[list[str]] = []

    def judged(options: Any, paradigms: list[Paradigm]) -> list[Accuracy]:
        shown.append([p.name for p in paradigms])
        return evaluate_pairs(options, paradigms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("electrify.scoring.evaluate.evaluate_pairs", judged)
        for task in ("blimp", "supplement"):
            assert 0 <= measure(task, model, how, tmp_path / "out").median <= 1
    assert shown == [["agreement"], ["turns"]]


def test_no_command_comes_between_a_study_and_its_report(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have the folder's lock, and a study would end without a report after all its
    work."""
    study = plan_study(config(small_data, tmp_path))
    lines = [line(study, k) for k in range(len(study.cells))]
    monkeypatch.setattr(Runner, "run", lambda runner: lines)
    real = compare_module.table_of

    def between(*given: Any, **named: Any) -> Any:
        with pytest.raises(UserError, match="another process"), claim(study.out, STUDY):
            pass
        return real(*given, **named)

    monkeypatch.setattr(compare_module, "table_of", between)
    compare_module.compare(study)
    assert (study.out / "report.md").is_file()
    with claim(study.out, STUDY):
        pass


def test_the_files_of_pairs_are_read_once(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is said of them is said once; another plan reads them anew."""
    data_dir = tmp_path / "babylm"
    blimp(data_dir / "blimp_filtered")
    blimp(data_dir / "supplement_filtered")
    given = config(
        small_data,
        tmp_path,
        recipes=(f"bert-tiny:{TINY}",),
        tasks=("blimp", "supplement", "blimp:mlm"),
        data_dir=str(data_dir),
    )
    for _ in range(2):
        plan_study(given)
        assert capsys.readouterr().err.count("BabyLM's selection of BLiMP's pairs") == 1


def test_a_study_that_somebody_wrote_meanwhile_is_left(small_data: Path, tmp_path: Path) -> None:
    mine = plan_study(config(small_data, tmp_path, task_seeds=5))
    theirs = plan_study(config(small_data, tmp_path))
    theirs.out.mkdir()
    write_study(theirs)
    before = (theirs.out / STUDY).read_bytes()
    with pytest.raises(UserError, match="holds a study with --task-seeds 3"):
        run_study(mine)
    assert (theirs.out / STUDY).read_bytes() == before


def test_tasks_are_the_second_half_of_a_cell(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    cell = study.cells[0]
    tasks = ["stsb", "stsb:cosine", "cola", "blimp"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text(f'\n{{"step": {cell.steps}}}\n')
    assert progress_of(cell, tmp_path, tasks) == 0.5
    outcome = tmp_path / OUTCOME
    found: dict[str, dict[str, Any]] = {"scores": {}, "failed": {}}
    for name, part, share in (
        ("stsb", "scores", 0.625),
        ("stsb:cosine", "scores", 0.75),
        ("cola", "failed", 0.875),
    ):
        found[part][name] = "as it was"
        outcome.write_text(json.dumps(found))
        assert progress_of(cell, tmp_path, tasks) == share
    # What an earlier process said does not measure this one.
    outcome.write_text("[")
    (tmp_path / "log.txt").write_text("stsb measured: spearman 61.2\n")
    assert progress_of(cell, tmp_path, tasks) == 0.5


def test_a_first_stage_is_a_part_of_the_training(small_data: Path, tmp_path: Path) -> None:
    words = f"two-stage-tiny:{TINY},discriminator_start=random"
    study = plan_study(config(small_data, tmp_path, recipes=(words,), baselines=False))
    cell = study.cells[0]
    first, steps = cell.config.train.generator_steps, cell.steps
    assert first > 1
    (tmp_path / "run" / "generator-stage").mkdir(parents=True)
    log = tmp_path / "run" / "generator-stage" / "metrics.jsonl"
    log.write_text(f'\n{{"step": {first}}}\n')
    done = progress_of(cell, tmp_path, ["cola"])
    assert done == pytest.approx(0.5 * first / (first + steps))
    (tmp_path / "run" / "metrics.jsonl").write_text(f'\n{{"step": {steps}}}\n')
    assert progress_of(cell, tmp_path, ["cola"]) == 0.5


def test_what_failed_is_to_do_again(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    cell = study.cells[0]
    folder = study.out / "cells" / folder_name(cell)
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "metrics.jsonl").write_text(f'\n{{"step": {cell.steps}}}\n')
    (folder / OUTCOME).write_text('{"scores": {}, "failed": {"blimp": "no such folder"}}')
    assert progress_of(cell, folder, ["blimp"]) == 1.0
    runner = Runner(study)
    assert runner.share() == pytest.approx(0.5 * runner.weights[key_of(cell)])


def test_a_cut_line_can_be_removed(small_data: Path, tmp_path: Path) -> None:
    study = plan_study(config(small_data, tmp_path))
    study.out.mkdir()
    write_results(study.out, [line(study, 0), line(study, 1)])
    text = (study.out / RESULTS).read_text()
    (study.out / RESULTS).write_text(text[:-30])
    with pytest.raises(UserError, match=r"line 2 is damaged .* Remove it, and its run"):
        read_results(study.out)


def test_the_rate_leaves_out_what_an_earlier_command_did(small_data: Path, tmp_path: Path) -> None:
    """A cell that is half trained counts for the share that is done from the start on."""
    study = plan_study(config(small_data, tmp_path))
    runner = Runner(study)
    assert runner.share() == 0
    cell = study.cells[0]
    run = runner.folder(cell) / "run"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(f'\n{{"step": {cell.steps}}}\n')
    again = Runner(study)
    assert again.share() == pytest.approx(0.5 * again.weights[key_of(cell)])


def test_a_cell_runs_no_code_of_the_current_folder(tmp_path: Path) -> None:
    """Nor is it one of the processes that torchrun started."""
    (tmp_path / "random.py").write_text("raise SystemExit('the user's own random.py ran')\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WORLD_SIZE", "2")
        patched.setenv("RANK", "1")
        own = environment(None, "cpu")
    assert not {"WORLD_SIZE", "RANK"} & own.keys()
    done = subprocess.run(
        CELL, input=b"{}", env=own, cwd=tmp_path, capture_output=True, check=False
    )
    assert b"random.py ran" not in done.stderr
    assert b"missing" in done.stderr  # the fields of Work


def test_names_of_folders_are_short_and_distinct(small_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "recipes.yaml"
    names = ["x" * 250 + end for end in "ab"]
    fields = "".join(f"  {w.replace('=', ': ')}\n" for w in TINY.split(","))
    path.write_text("".join(f"{n}:\n  recipe: bert-tiny\n{fields}" for n in names))
    study = plan_study(
        config(small_data, tmp_path, recipes=(), recipe_file=str(path), baselines=False)
    )
    found = {folder_name(c) for c in study.cells}
    assert len(found) == len(study.cells)
    assert max(map(len, found)) < 120


def test_a_cell_gets_one_of_the_gpus_that_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "gpus", lambda device: 2)
    for ours, names in (
        ("2,3", ["2", "3"]),
        ("GPU-a, MIG-b", ["GPU-a", "MIG-b"]),
        ("", ["0", "1"]),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ours)
        found = [environment(slot, "auto") for slot in processes.slots(2, "auto")]
        assert [own["CUDA_VISIBLE_DEVICES"] for own in found] == names
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert environment(1, "auto")["CUDA_VISIBLE_DEVICES"] == "1"


FROZEN: dict[str, Any] = {
    "generator_training": "frozen",
    "generator_steps": 300,
    "discriminator_start": "random",
    "tie": "none",
}


def test_two_studies_at_once_do_not_share_a_core(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process goes where there is room; several of one study keep to a core each, of those that
    the command may use."""
    ours = {2, 3, 5}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: ours, raising=False)
    assert processes.slots(1, "cpu") == [None]
    assert processes.slots(2, "cpu") == [2, 3]
    runners = [Runner(plan_study(config(small_data, tmp_path / name))) for name in "ab"]
    assert [runner.slots for runner in runners] == [[None], [None]]


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        *(
            (name, {})
            for name in ("two-stage-tiny", "fast-electra-tiny", "electra-modernbert-long")
        ),
        *(("corrective-tiny", {"mlm_share": share}) for share in (0.4, 0.7, 0.99)),
        ("corrective-tiny", {"mlm_share": 0.5, "correction": "none"}),
        ("bert-tiny", {"batch_size_schedule": {16: 0.6}}),
        ("adversarial-tiny", {"generator_steps": 300, "discriminator_start": "random"}),
        ("coco-lm-tiny", FROZEN | {"term_weights": {"rtd": 50, "correct": 1, "contrast": 1}}),
    ],
    ids=str,
)
def test_every_recipe_has_untrained_rows(recipe: str, fields: dict[str, Any]) -> None:
    config = override(load(recipe), fields)
    check(config)
    for name in UNTRAINED:
        cell = untrained(config, name, 0)
        check(cell.config)
        assert cell.steps == {0.4: 2, 0.5: 2, 0.7: 4, 0.99: 100}.get(fields.get("mlm_share", 0), 1)


def test_untrained_rows_that_cannot_run_are_found_before_the_first_run(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrained_module, "UNTRAINED", {"untrained": "nonsense"})
    with pytest.raises(
        UserError, match=r"^bert-tiny:.*: its row untrained: .*nonsense.* --baselines false"
    ):
        plan_study(config(small_data, tmp_path))
