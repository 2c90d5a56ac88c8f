"""`pretrain --recipe auto`: the recipe for a budget, from what was measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.flop_counts import recipe_flops
from electrify.recipe import Entry, Recipe, load, override, values_of
from electrify.studies.measures import Score
from electrify.studies.report import DECLARED, table_of
from electrify.studies.study import read_results
from electrify.text.corpus import Corpus
from electrify.train import length as module
from electrify.train.length import auto, measured_budgets
from electrify.train.options import Pretrain
from small import SMALL, flags, mistake, run

STUDIES = Path(__file__).parents[1] / "benchmarks" / "studies"
FAMILIES = {
    "pairs": ("stsb", "mnli"),
    "sentences": ("cola",),
    "tagging": ("conll2000:frozen", "ud:frozen"),
    "vectors": ("stsb:cosine", "stsb:frozen"),
    "language": ("blimp", "substitution"),
}


def flops_of(config: Recipe, data: Path) -> float:
    vocab_size = Corpus(data, "train").manifest.vocab_size
    return recipe_flops(config, vocab_size=vocab_size, convention="hardware").train


@pytest.mark.parametrize("budget", measured_budgets())
def test_the_evidence_is_that_of_the_committed_lines(budget: float) -> None:
    """The recipe of a row has the highest score of those with three seeds at its budget."""
    entry, evidence = measured_budgets()[budget]
    studies = ["first"] if evidence["study"] == "first" else ["S3", "options", "architectures"]
    results = [r for name in studies for r in read_results(STUDIES / name).values()]
    tasks = set.intersection(*(set(r.scores) for r in results))
    families = {
        name: found
        for name, of in FAMILIES.items()
        if (found := {task: 1.0 for task in of if task in tasks})
    }
    score = Score(families)
    floors = read_results(STUDIES / ("S1" if len(tasks) > 4 else "first")).values()
    results = [r for r in results if r.entry != "untrained"]
    results += [r for r in floors if r.entry == "untrained"]
    names = sorted({r.entry for r in results if r.budget == budget})
    table = table_of(results, recipes=names, tasks=score.tasks, score=score)
    rows = {name: table.row(name, budget, DECLARED) for name in names}
    scores = {n: 100 * r.mean.value for n, r in rows.items() if r and len(r.by_seed) >= 3}
    best = max(scores, key=lambda name: scores[name])
    changes = {name: value for name, value in entry.changes.items() if name != "lr_scheduler_type"}
    assert best == ":".join([entry.recipe, *(f"{k}={v}" for k, v in changes.items())]).replace(
        "=0.", "=."
    )
    assert scores[best] == pytest.approx(float(evidence["score"]), abs=0.05)
    (other,) = evidence.keys() & scores.keys()
    assert scores[other] == pytest.approx(float(evidence[other]), abs=0.05)
    seeds = {len(row.by_seed) for name, row in rows.items() if row and name == best}
    assert seeds == {int(evidence["seeds"])}


def asked(data: Path, run: Path, **given: Any) -> Pretrain:
    words = {"data": str(data), "output_dir": str(run), "recipe": "auto"}
    return Pretrain.of(words | given)


@pytest.mark.parametrize(
    ("flops", "like", "share"),
    [(1e13, "bert-tiny", 0.0), (3e14, "bert-modernbert-tiny", 0.0), (1e15, "corrective-tiny", 0.4)],
)
def test_the_updates_spend_the_budget(flops, like, share, small_data, tmp_path):
    def found(**fields: Any) -> Recipe:
        data, recipe = auto(asked(small_data, tmp_path / "run", flops=flops, **fields))
        assert data == small_data
        return recipe

    own = found(seed=3)
    assert flops_of(own, small_data) == pytest.approx(flops, rel=1e-3)
    fields = {"seed": 3, "lr_scheduler_type": "wsd", "max_steps": own.train.max_steps}
    fields |= {"mlm_share": share} if share else {}
    assert own == override(load(like), fields)
    # A flag that makes an update dearer makes fewer of them.
    wider = found(hidden_size=256)
    assert flops_of(wider, small_data) == pytest.approx(flops, rel=1e-2)
    assert wider.train.max_steps < 0.6 * own.train.max_steps


def budgets(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Recipe]:
    """Small measured budgets, of `bert` and from 1e9 FLOPs on of `electra`."""
    small = {k: str(v).lower() for k, v in SMALL.items() if k != "max_steps"}
    small |= {"warmup_steps": "1", "device": "cpu"}
    names = {1e8: "bert-tiny", 1e9: "electra-tiny", 1e10: "electra-tiny"}
    rows = {b: (Entry(str(b), name, small), {"seeds": "3"}) for b, name in names.items()}
    monkeypatch.setattr(module, "measured_budgets", lambda: rows)
    return lambda budget: rows[budget][0].load()


def test_a_run_by_flops(small_data, tmp_path, monkeypatch, capsys, without_exports):
    """config.yaml holds plain numbers, and the same command finds the run finished."""
    recipe_of = budgets(monkeypatch)
    folder = tmp_path / "run"
    words = ["pretrain", str(small_data), "--recipe", "auto", "--output-dir", str(folder)]
    for _ in range(2):
        assert run(*words, "--flops", "2e8", "--seed", "5") == 0
    assert "recipe auto: bert-tiny with" in capsys.readouterr().err
    assert "auto" not in (folder / "config.yaml").read_text().replace("threads: auto", "")
    found = load(folder / "config.yaml")
    assert flops_of(found, small_data) == pytest.approx(2e8, rel=0.05)
    asked = override(recipe_of(1e8), {"seed": 5, "max_steps": found.train.max_steps})
    differ = {n for n, v in values_of(asked).items() if values_of(found)[n] != v}
    assert differ <= {"bf16", "torch_compile", "logging_steps"}, "by the machine and the length"
    said = mistake(capsys, *words, "--flops", "2e9", "--seed", "5")
    assert "holds another run (objective" in said


def test_a_run_by_minutes(small_data, tmp_path, monkeypatch, capsys, without_exports):
    """The rate of this machine decides which recipe it is; a run that has begun keeps it."""
    recipe_of = budgets(monkeypatch)
    vocab_size = Corpus(small_data, "train").manifest.vocab_size
    token = recipe_flops(recipe_of(1e8), vocab_size=vocab_size, convention="hardware").token
    rate: dict[str, Any] = {}

    def probe(data: Path, folder: Path, config: Recipe, *, limit_s: float) -> tuple[float, int]:
        assert (data, config.train.seed, limit_s) == (small_data, 5, 3.0)
        return token / rate["flops_per_s"], 16

    monkeypatch.setattr(module, "probe", probe)
    folder = tmp_path / "run"
    words = ["pretrain", str(small_data), "--recipe", "auto", "--output-dir", str(folder)]
    words += flags(seed=5, max_minutes=1e-9, train_minutes=1)
    rate["flops_per_s"] = 3e9 / 60
    assert run(*words) == 75
    assert "recipe auto: electra-tiny with" in capsys.readouterr().err
    rate["flops_per_s"] = 3e8 / 60  # the machine is busy now
    assert run(*words) == 75
    assert "a run that has begun keeps its" in capsys.readouterr().err
    assert load(folder / "config.yaml").objective.objective == "rtd"


def test_a_folder_of_other_files(small_data, tmp_path, monkeypatch, without_exports):
    """A folder that is not ours is refused before anything is prepared."""
    budgets(monkeypatch)
    text, mine = tmp_path / "text.txt", tmp_path / "mine"
    text.write_text("one\n\ntwo\n")
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    words = ["pretrain", str(text), "--recipe", "auto", "--flops", "2e8", "--output-dir", str(mine)]
    assert run(*words) == 2
    assert not (tmp_path / "mine-data").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs flops or train_minutes"),
        ({"max_steps": 10, "flops": 1e14}, "max_steps is set by recipe auto"),
        ({"flops": 1e12}, "1e.12 FLOPs is outside .* 1e.13 to 1e.15[.;] [Tt]he nearest .*1e.13"),
    ],
)
def test_what_auto_cannot_do(given, says, small_data, tmp_path):
    with pytest.raises(UserError, match=says):
        auto(asked(small_data, tmp_path / "run", **given))
