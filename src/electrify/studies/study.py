"""A study: its plan, and the folder in which its results lie.

    OUT/study.yaml       what is compared and by which score, written before the first run
    OUT/results.jsonl    one line for each encoder that was trained and measured
    OUT/cells/CELL/      the run, what its tasks wrote, and its log

results.jsonl is enough to go on elsewhere: an encoder with a line is not trained again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from .. import files
from ..errors import UserError
from ..recipe import Entry, Recipe, entries, entry, joined
from ..scoring.blimp import read_blimp
from ..text.corpus import Corpus, Manifest
from ..train.run import GUARDS, decisive
from ..train.start import content_of
from ..values import plain_yaml
from .cost import Cost, rows_of
from .measures import digest_of, meant_by, network_of
from .options import SCORE, STUDY, STUDY_MARK, CompareConfig
from .plan import Cell, cells
from .processes import slots
from .results import RESULTS, Key, Result, read_results
from .untrained import UNTRAINED, baselines

CELLS = "cells"
ELSEWHERE = "choose another --output-dir"
# What a study keeps from its first command on; otherwise its scores could not be compared.
FIXED = (
    "tasks",
    "task_seeds",
    "max_train_samples",
    "max_eval_samples",
    "convention",
    "equal",
    "lr_scheduler_type",
)
OTHERS = {"data": "another corpus", "task_data": "other examples of its tasks"}
"""The same, for what has no option."""

COMPARED = sorted(GUARDS | {"eval_rows"})
"""Options that may differ when a run goes on, but not between recipes that are compared: which
updates are refused, and the rows of the figures on held-out text."""


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
    asked = entries_of(config)
    had = _plan_in(out)
    if had is not None:  # budgets in another unit would make no sense
        _must_agree(out, had, {"equal": config.equal})
        config = as_begun(config, had)
    seeds = range(config.seed, config.seed + config.seeds)
    schedule = None if config.lr_scheduler_type == "recipe" else config.lr_scheduler_type
    cost = Cost(corpus.manifest.vocab_size, rows_of(corpus), config.convention, config.equal)
    found = cells(asked, config.budgets, seeds, cost, schedule=schedule)
    if config.baselines:
        found += baselines(asked[0], seeds, cost.vocab_size)
    for task, cell in itertools.product(config.tasks, found):
        try:
            network_of(task, cell.config)
        except UserError as e:
            raise UserError(f"{cell.entry}: {e}") from None
    study = identified(Study(config, asked, out, corpus.manifest, cost, task_data(config), found))
    must_be_ours(study)
    slots(config.processes, config.device)  # last: it may import torch
    return study


def as_begun(config: CompareConfig, had: dict[str, Any]) -> CompareConfig:
    """The tasks by the names and in the order of the folder's study, where they are the same:
    neither changes a score. had: its study.yaml."""

    def meant(names: Any) -> list[tuple[str, ...]]:
        return sorted(meant_by(name, config.data_dir)[:2] for name in names)

    with suppress(UserError, TypeError, AttributeError):  # whatever the user wrote there
        if meant(had.get("tasks")) == meant(config.tasks):
            return replace(config, tasks=tuple(had["tasks"]))
    return config


def identified(study: Study) -> Study:
    """The study with the hashes of its cells."""
    fixed = kept(study)
    planned = [replace(c, starts=starts_of(c.config)) for c in study.cells]
    return replace(study, cells=[replace(c, identity=identity(c, fixed)) for c in planned])


def task_data(config: CompareConfig) -> dict[str, str]:
    """A hash of the examples of each task. Raises UserError for a task that is given twice, or
    cannot be read."""
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        raise UserError(f"--data-dir {config.data_dir}: no such folder")
    meant = [meant_by(task, config.data_dir)[:2] for task in config.tasks]
    twice = [task for task, what in zip(config.tasks, meant, strict=True) if meant.count(what) > 1]
    if twice:
        raise UserError(f"tasks: {' and '.join(twice)} are the same")
    read = cache(read_blimp)  # once for all that are made of its files
    return {t: digest_of(t, config.data_dir, data=config.data, read=read) for t in config.tasks}


def entries_of(config: CompareConfig) -> list[Entry]:
    """The recipes with their changes. Raises UserError."""
    found = [entry(word) for word in joined(config.recipes)]
    if config.recipe_file is not None:
        path = Path(config.recipe_file)
        found += entries(plain_yaml(read_text(path), str(path)), str(path))
    names = [entry.name for entry in found]
    for name in UNTRAINED:
        if name in names:
            raise UserError(f"recipes: {name} is the name of a row that is always there")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"recipes: {twice[0]} is given twice")
    return found


def read_text(path: Path) -> str:
    """The text of a file of the user. Raises UserError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"{path} cannot be read: {e}") from e


def identity(cell: Cell, kept: dict[str, Any]) -> str:
    """A hash of everything that decides the scores of a cell: its recipe, the weights that it
    starts from, and what its study keeps: the corpus, the examples of the tasks and how they are
    measured."""
    t = cell.config.train
    found = cell.starts or starts_of(cell.config)
    starts = [start and found[start] for start in (t.init_discriminator, t.init_generator)]
    decides = decisive(cell.config) | {name: getattr(t, name) for name in COMPARED}
    parts = [cell.entry, decides, starts, kept]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def starts_of(config: Recipe) -> dict[str, str]:
    """A hash of each folder from which a recipe starts; of a Hub id its commit."""
    t = config.train
    return {start: content_of(start) for start in (t.init_discriminator, t.init_generator) if start}


# ------------------------------------------------------------------ the folder


def folder_name(cell: Cell) -> str:
    """The name of a cell's folder."""
    readable = re.sub(r"[^\w.-]+", "-", cell.entry)[:60]
    return f"{readable}-{cell.budget:.4g}-seed{cell.seed}-{cell.identity[:8]}"


def kept(study: Study) -> dict[str, Any]:
    """What a study keeps from its first command on, as study.yaml has it."""
    fields = {k: v for k, v in dataclasses.asdict(study.config).items() if k in FIXED}
    fields |= {"data": study.manifest.fingerprint, "task_data": study.task_data}
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
    """Raises UserError if the folder holds anything but this study, or results that were carried
    here from another folder."""
    files.must_be_ours(study.out, STUDY, RESULTS)
    had = _plan_in(study.out)
    if had is not None:
        ours = kept(study)
        _must_agree(study.out, had, {name: ours.get(name) for name in (*FIXED, *OTHERS)})
    read_results(study.out)


def _plan_in(out: Path) -> dict[str, Any] | None:
    """What study.yaml says, if there is one. Raises UserError for another file of that name."""
    path = out / STUDY
    if not path.exists():
        return None
    had = yaml.safe_load(read_text(path))
    if not isinstance(had, dict) or had.get("score") != SCORE:
        raise UserError(f"{path} is not the plan of a study that electrify wrote; {ELSEWHERE}")
    return had


def _must_agree(out: Path, had: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raises UserError if the study in the folder has another value of what is kept."""
    for name, value in ours.items():
        was = had.get(name)
        if was != value:
            raise UserError(f"{out} holds a study {_shown(name, was)}; {ELSEWHERE}")


def _shown(name: str, value: Any) -> str:
    """What is kept, as the flag writes it."""
    if name in OTHERS:
        return f"with {OTHERS[name]}"
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return f"without {flag}"
    return f"with {flag} {','.join(map(str, value)) if isinstance(value, list) else value}"


def write_study(study: Study) -> None:
    """Writes study.yaml, which names the score before anything is run."""
    plan = yaml.safe_dump(declared(study), sort_keys=False, allow_unicode=True)
    files.write(study.out / STUDY, STUDY_MARK + plan)


def key_of(cell: Cell) -> Key:
    return cell.entry, cell.budget, cell.seed, cell.identity


def finished(study: Study, results: Iterable[Result]) -> dict[Key, Result]:
    """The cells of the study that need not be run: they have a line in which nothing failed and
    every task has a score."""
    wanted = set(map(key_of, study.cells))
    return {
        r.key: r
        for r in results
        if r.key in wanted and not r.failed and all(task in r.scores for task in study.config.tasks)
    }
