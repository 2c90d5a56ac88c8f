"""A study: its plan, and the folder in which its results lie.

    OUT/study.yaml       what is compared and by which score, written before the first run
    OUT/results.jsonl    one line for each encoder that was trained and measured, each sealed
    OUT/cells/CELL/      the run, what its tasks wrote, and its log

study.yaml and results.jsonl are enough to go on elsewhere: an encoder with a line is not trained
again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from ..config.compare import SCORE, CompareConfig
from ..config.pretrain import PretrainConfig, override
from ..config.recipe_files import plain_values, read_recipe
from ..errors import UserError
from ..files.folders import must_be_new
from ..files.reading import FileError, json_of, read_text
from ..files.schema import SchemaError, check
from ..files.seals import sealed, unsealed
from ..files.whole import json_text, write_atomically
from ..text.manifest import Manifest
from ..text.shards import Corpus
from ..train.decisive import decisive
from .measures import read
from .plan import Cell, Entry, cells, configured, read_entries, read_entry

STUDY = "study.yaml"
RESULTS = "results.jsonl"
CELLS = "cells"
AGAIN = "remove the line, and its run is made again"
ELSEWHERE = "choose another --output-dir"
# What a study keeps from its first command on: else its scores could not be compared.
KEPT = (
    "tasks",
    "task_seeds",
    "max_train_samples",
    "max_eval_samples",
    "convention",
    "lr_scheduler_type",
)
UNTRAINED = {"untrained": "random", "untrained + words": "cooccurrence"}
"""The rows that are always there, and the words with which they begin."""
PRETRAIN = "pretrain"
"""What failed where an encoder was not trained to its end."""


@dataclass(frozen=True)
class Result:
    """One encoder, as a line of results.jsonl."""

    entry: str
    budget: float
    seed: int
    recipe: str
    """Hash of everything that decides its numbers."""
    steps: int
    flops: float
    tokens: float
    seconds: float
    parameters: int
    scores: dict[str, Any]
    """Task -> {"metric", "scores", one for each seed of the task}."""
    failed: dict[str, str] = field(default_factory=dict)
    """Task, or PRETRAIN -> the reason."""
    joules: float | None = None
    validation: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, float, int]:
        return self.entry, self.budget, self.seed

    def median(self, task: str) -> float | None:
        """The score of a task: the median over its seeds."""
        found = self.scores.get(task)
        return statistics.median(found["scores"]) if found else None


@dataclass(frozen=True)
class Study:
    """What is to be run, and where."""

    config: CompareConfig
    asked: list[Entry]
    """The recipes with their changes."""
    out: Path
    manifest: Manifest
    corpus_tokens: int
    """Tokens of its train split."""
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
    corpus = Corpus(Path(config.data), "train")
    entries = entries_of(config)
    seeds = range(config.seed, config.seed + config.seeds)
    schedule = None if config.lr_scheduler_type == "recipe" else config.lr_scheduler_type
    found = cells(
        entries,
        config.budgets,
        seeds,
        vocab_size=corpus.manifest.vocab_size,
        schedule=schedule,
        convention=config.convention,
    )
    if config.baselines:
        base = configured(entries[0], schedule="constant", seed=seeds[0])
        found += [untrained(base, name, seed) for name in UNTRAINED for seed in seeds]
    for task in config.tasks:
        read(task, config.data_dir, data=config.data)
    out = Path(config.output_dir)
    study = Study(config, entries, out, corpus.manifest, corpus.num_tokens, found)
    must_be_ours(study)
    return study


def entries_of(config: CompareConfig) -> list[Entry]:
    """The recipes with their changes. On the command line a comma stands between recipes and
    between changes: what has a `=` and no colon before it is a change of the recipe before. Raises
    UserError."""
    words: list[str] = []
    for part in config.recipes:
        if words and "=" in part and ":" not in part.split("=")[0]:
            words[-1] += f",{part}"
        else:
            words.append(part)
    found = [read_entry(word) for word in words]
    if config.recipe_file is not None:
        path = Path(config.recipe_file)
        found += read_entries(plain_values(read_recipe(path), str(path)), str(path))
    names = [entry.name for entry in found] + list(UNTRAINED)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"recipes: {twice[0]} stands there twice")
    return found


def untrained(base: PretrainConfig, name: str, seed: int) -> Cell:
    """The encoder of a recipe before it is trained: after one update at a rate that moves no
    weight."""
    config = override(
        base,
        {
            "seed": seed,
            "init_words": UNTRAINED[name],
            "max_steps": 1,
            "warmup_steps": 0,
            "learning_rate": 1e-12,
            "generator_learning_rate": None,
            "generator_steps": 0,
            "weight_decay": 0.0,
        },
    )
    return Cell(name, 0.0, seed, config, 0.0, None)


# ------------------------------------------------------------------ the folder


def folder_name(cell: Cell) -> str:
    """The name of a cell's folder."""
    readable = re.sub(r"[^\w.-]+", "-", cell.entry)
    if readable != cell.entry:
        readable = f"{readable[:80]}-{hashlib.sha256(cell.entry.encode()).hexdigest()[:6]}"
    return f"{readable}-{cell.budget:.4g}-seed{cell.seed}"


def recipe_hash(config: PretrainConfig) -> str:
    """A short hash of everything that decides the numbers of a run."""
    return hashlib.sha256(json.dumps(decisive(config), sort_keys=True).encode()).hexdigest()[:16]


def declared(study: Study) -> dict[str, Any]:
    """The content of study.yaml."""
    fields = {k: v for k, v in dataclasses.asdict(study.config).items() if k in KEPT}
    fields |= {"data": study.manifest.fingerprint, "score": SCORE}
    fields |= {
        "recipes": [dataclasses.asdict(entry) for entry in study.asked],
        "budgets": list(study.config.budgets),
        "seeds": [study.config.seed, study.config.seeds],
    }
    return json.loads(json.dumps(fields))


def must_be_ours(study: Study) -> None:
    """Raises UserError where the folder holds anything but this study."""
    path = study.out / STUDY
    if not path.exists() and not path.is_symlink():
        must_be_new(study.out, STUDY)
        return
    had = plain_values(read_recipe(path, within=study.out), str(path))
    if not isinstance(had, dict) or had.get("score") != SCORE:
        raise UserError(f"{path} is not the plan of a study that electrify wrote; {ELSEWHERE}")
    now = declared(study)
    for name in ("data", *KEPT):
        if had.get(name) != now[name]:
            what = f"--{name.replace('_', '-')} {had.get(name)}"
            what = "another corpus" if name == "data" else what
            raise UserError(f"{study.out} holds a study with {what}; {ELSEWHERE}")
    read_results(study.out)


def write_study(study: Study) -> None:
    """Writes study.yaml, which names the score before anything is run."""
    head = "# The plan of a study, written by electrify compare before its first run.\n"
    text = yaml.safe_dump(declared(study), sort_keys=False, allow_unicode=True)
    write_atomically(study.out / STUDY, head + text)


def read_results(out: Path) -> list[Result]:
    """The lines of results.jsonl. Raises UserError for a line that was not written here."""
    path = out / RESULTS
    if not path.exists() and not path.is_symlink():
        return []
    names = {f.name for f in dataclasses.fields(Result)}
    found = []
    try:
        for number, line in enumerate(read_text(path, within=out).splitlines(), 1):
            where = Path(f"{path}, line {number}")
            raw = json_of(line, where)
            if not isinstance(raw, dict):
                raise FileError(where, "is not a result", ELSEWHERE)
            raw = unsealed(raw, where, must=True, advice=AGAIN)
            check(Result, raw, str(where))
            found.append(Result(**{k: v for k, v in raw.items() if k in names}))
    except (FileError, SchemaError) as e:
        raise UserError(f"{e}" if getattr(e, "advice", "") else f"{e}; {ELSEWHERE}") from e
    return found


def write_results(out: Path, results: Iterable[Result]) -> None:
    """Writes results.jsonl, whole or not at all."""
    lines = []
    for result in results:
        plain = json.loads(json_text(dataclasses.asdict(result)))
        lines.append(json_text(sealed(plain)) + "\n")
    write_atomically(out / RESULTS, "".join(lines))


def finished(study: Study, results: Iterable[Result]) -> dict[tuple[str, float, int], Result]:
    """The cells of the study that need not be run: with a line for the same recipe in which nothing
    failed and every task has a score."""
    wanted = {(c.entry, c.budget, c.seed): recipe_hash(c.config) for c in study.cells}
    return {
        r.key: r
        for r in results
        if wanted.get(r.key) == r.recipe
        and not r.failed
        and all(task in r.scores for task in study.config.tasks)
    }
