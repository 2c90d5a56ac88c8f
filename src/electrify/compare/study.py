"""A study: its plan, and the folder in which its results lie.

    OUT/study.yaml       what is compared and by which score, written before the first run
    OUT/results.jsonl    one line for each encoder that was trained and measured, each sealed
    OUT/cells/CELL/      the run, what its tasks wrote, and its log

results.jsonl is enough to go on elsewhere: an encoder with a line is not trained again.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ..config.checks import check
from ..config.compare import SCORE, STUDY, STUDY_MARK, CompareConfig
from ..config.pretrain import PretrainConfig, override
from ..config.recipe_files import plain_values, read_recipe
from ..errors import UserError
from ..files.folders import must_be_new
from ..files.results import besides_record, write_results
from ..text.manifest import Manifest
from ..text.shards import Corpus
from .cost import Cost, rows_of
from .identity import identity
from .measures import digest_of, network_of, place_of
from .plan import Cell, Entry, as_started, cells, configured, joined, read_entries, read_entry
from .processes import slots
from .results import RESULTS, Key, Result, read_results

CELLS = "cells"
ELSEWHERE = "choose another --output-dir"
# What a study keeps from its first command on: else its scores could not be compared.
KEPT = (
    "tasks",
    "task_seeds",
    "max_train_samples",
    "max_eval_samples",
    "convention",
    "equal",
    "lr_scheduler_type",
)
OTHERS = {"data": "another corpus", "task_data": "other examples of its tasks"}
"""The same, for what no option names."""
UNTRAINED = {"untrained": "random", "untrained + words": "cooccurrence"}
"""The rows that are always there, and the words with which they begin."""


@dataclass(frozen=True)
class Study:
    """What is to be run, and where."""

    config: CompareConfig
    asked: list[Entry]
    """The recipes with their changes."""
    out: Path
    manifest: Manifest
    cost: Cost
    """What runs cost."""
    task_data: dict[str, str]
    """Task -> hash of its examples."""
    cells: list[Cell]

    @property
    def recipes(self) -> list[str]:
        """The names of the recipes, in the order given."""
        return [entry.name for entry in self.asked]


def plan_study(config: CompareConfig) -> Study:
    """Checks everything that can be checked before the first run: recipes, budgets, corpus, tasks,
    and the folder. Raises UserError."""
    if find_spec("scipy") is None:
        raise UserError(
            "intervals need scipy, which is not installed: pip install 'electrify[eval]'"
        )
    out = Path(config.output_dir)
    corpus = Corpus(Path(config.data), "train")
    entries = entries_of(config)
    had = _plan_in(out)
    if had is not None:  # budgets of another unit would make no sense
        _must_agree(out, had, {"equal": config.equal})
    seeds = range(config.seed, config.seed + config.seeds)
    schedule = None if config.lr_scheduler_type == "recipe" else config.lr_scheduler_type
    cost = Cost(corpus.manifest.vocab_size, rows_of(corpus), config.convention, config.equal)
    found = cells(entries, config.budgets, seeds, cost, schedule=schedule)
    if config.baselines:
        found += baselines(entries[0], seeds, cost.vocab_size)
    for task, cell in itertools.product(config.tasks, found):
        try:
            network_of(task, cell.config)
        except UserError as e:
            raise UserError(f"{cell.entry}: {e}") from None
    tasks = task_data(config)
    study = Study(config, entries, out, corpus.manifest, cost, tasks, found)
    study = replace(study, cells=[replace(c, identity=identity(c, kept(study))) for c in found])
    must_be_ours(study)
    slots(config.processes, config.device)  # last: it may import torch
    return study


def task_data(config: CompareConfig) -> dict[str, str]:
    """A hash of the examples of each task. Raises UserError for a task that stands there twice, or
    cannot be read."""
    if not Path(config.data_dir).is_dir():
        raise UserError(f"--data-dir {config.data_dir}: no such folder")
    meant = [place_of(task, config.data_dir)[:2] for task in config.tasks]
    twice = [task for task, what in zip(config.tasks, meant, strict=True) if meant.count(what) > 1]
    if twice:
        raise UserError(f"tasks: {' and '.join(twice)} are one thing")
    return {task: digest_of(task, config.data_dir, data=config.data) for task in config.tasks}


def entries_of(config: CompareConfig) -> list[Entry]:
    """The recipes with their changes. Raises UserError."""
    found = [read_entry(word) for word in joined(config.recipes)]
    if config.recipe_file is not None:
        path = Path(config.recipe_file)
        found += read_entries(plain_values(read_recipe(path), str(path)), str(path))
    names = [entry.name for entry in found]
    for name in UNTRAINED:
        if name in names:
            raise UserError(f"recipes: {name} is the name of a row that is always there")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"recipes: {twice[0]} stands there twice")
    return found


def baselines(first: Entry, seeds: Sequence[int], vocab_size: int) -> list[Cell]:
    """The untrained rows of a study. Raises UserError where its first recipe has none."""
    base = as_started(configured(first, schedule="constant", seed=seeds[0]), vocab_size)
    found = []
    for name in UNTRAINED:
        try:
            found += [untrained(base, name, seed) for seed in seeds]
            check(found[-1].config)
        except UserError as e:
            raise UserError(
                f"{first.name}: its row {name}: {e}; put another recipe first, or give "
                "--baselines false"
            ) from e
    return found


def untrained(base: PretrainConfig, name: str, seed: int) -> Cell:
    """The encoder of a recipe before it is trained: after the fewest updates, at a rate that moves
    no weight."""
    fields: dict[str, Any] = dict.fromkeys(("init_discriminator", "init_generator"))
    fields |= dict.fromkeys(base.model.extends)
    fields["discriminator_start"] = "generator"  # for a run of one stage
    if base.corruption.generator_training == "frozen":
        # No first stage or folder: its generator is one that nothing has trained, too.
        weights = {"generator": 1.0} | base.objective.term_weights
        fields |= {"generator_training": "joint", "term_weights": weights}
    # A part of the run that comes later has one update, too.
    shares = [getattr(base.objective.options, name) for name in base.objective.row.moving]
    config = override(
        base,
        fields
        | {
            "seed": seed,
            "init_words": UNTRAINED[name],
            "max_steps": math.ceil(1 / (1 - max(shares, default=0.0))),
            "warmup_steps": 0,
            "learning_rate": 1e-12,
            "generator_learning_rate": None,
            "generator_warmup_steps": None,
            "generator_steps": 0,
            "weight_decay": 0.0,
        },
    )
    return Cell(name, 0.0, seed, config, 0.0, None)


# ------------------------------------------------------------------ the folder


def folder_name(cell: Cell) -> str:
    """The name of a cell's folder."""
    readable = re.sub(r"[^\w.-]+", "-", cell.entry)[:60]
    return f"{readable}-{cell.budget:.4g}-seed{cell.seed}-{cell.identity[:8]}"


def kept(study: Study) -> dict[str, Any]:
    """What a study keeps from its first command on, as study.yaml has it."""
    fields = {k: v for k, v in dataclasses.asdict(study.config).items() if k in KEPT}
    fields |= {"data": study.manifest.fingerprint, "task_data": study.task_data}
    if fields["equal"] == "flops":  # as studies say it that are older than this option
        del fields["equal"]
    return json.loads(json.dumps(fields))


def declared(study: Study) -> dict[str, Any]:
    """The content of study.yaml."""
    fields = kept(study) | {
        "score": SCORE,
        "recipes": [dataclasses.asdict(entry) for entry in study.asked],
        "budgets": list(study.config.budgets),
        "seeds": [study.config.seed, study.config.seeds],
    }
    return json.loads(json.dumps(fields))


def must_be_ours(study: Study) -> None:
    """Raises UserError where the folder holds anything but this study."""
    had = _plan_in(study.out)
    if had is None:
        there = besides_record(study.out)
        if there == [RESULTS]:  # carried here from another folder
            read_results(study.out)
        elif {RESULTS, CELLS}.issubset(there):
            raise UserError(
                f"{study.out / STUDY} is missing, the plan of the study whose results are there; "
                f"put it back, or carry {RESULTS} alone to an empty folder"
            )
        elif there or not study.out.is_dir():
            must_be_new(study.out, STUDY)
        return
    ours = kept(study)
    _must_agree(study.out, had, {name: ours.get(name) for name in (*KEPT, *OTHERS)})
    read_results(study.out)


def _plan_in(out: Path) -> dict[str, Any] | None:
    """What study.yaml says, if there is one. Raises UserError for another file of that name."""
    path = out / STUDY
    if not path.exists() and not path.is_symlink():
        return None
    had = plain_values(read_recipe(path, within=out), str(path))
    if not isinstance(had, dict) or had.get("score") != SCORE:
        raise UserError(f"{path} is not the plan of a study that electrify wrote; {ELSEWHERE}")
    return had


def _must_agree(out: Path, had: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raises UserError where the study in the folder has another value of what is kept."""
    for name, value in ours.items():
        missing = "flops" if name == "equal" else None  # older studies do not say it
        was = had.get(name, missing)
        if was != (missing if value is None else value):
            what = OTHERS.get(name, f"--{name.replace('_', '-')} {was}")
            raise UserError(f"{out} holds a study with {what}; {ELSEWHERE}")


def write_study(study: Study) -> None:
    """Writes study.yaml, which names the score before anything is run; what the user made of it is
    kept."""
    there, plan = _plan_in(study.out), declared(study)
    ours = there is not None and there.keys() == plan.keys()
    ours = ours and (study.out / STUDY).read_bytes() == _written(there or {})
    write_results(study.out, {STUDY: _written(plan)}, [STUDY] if ours else [])


def _written(plan: dict[str, Any]) -> bytes:
    """study.yaml as every study writes it."""
    return (STUDY_MARK + yaml.safe_dump(plan, sort_keys=False, allow_unicode=True)).encode()


def key_of(cell: Cell) -> Key:
    return cell.entry, cell.budget, cell.seed, cell.identity


def finished(study: Study, results: Iterable[Result]) -> dict[Key, Result]:
    """The cells of the study that need not be run: with a line of their own in which nothing failed
    and every task has a score."""
    wanted = set(map(key_of, study.cells))
    return {
        r.key: r
        for r in results
        if r.key in wanted and not r.failed and all(task in r.scores for task in study.config.tasks)
    }
