"""A study: its trials, and the folder in which its results lie.

    OUT/study.yaml        what is compared and by which score, written before the first run
    OUT/results.jsonl     one line for each encoder that was trained and measured
    OUT/encoders/NAME/    its run, what its tasks wrote, and its log

results.jsonl is enough to go on elsewhere: an encoder with a line is not trained again.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from ..errors import failing_as, must_have, need
from ..files import claim, json_text, must_be_ours, text_hash, write
from ..recipe import Entry, Recipe, entries, entry, joined
from ..text.corpus import Corpus, verify
from ..text.streams import read_text
from ..train.job import GUARDS, decisive
from ..train.start import content_of, starts_of
from ..values import plain_yaml
from .budgets import BASELINES, Cost, Key, Trial, planned, rows_of
from .measures import MEAN_RANK, Measure, Score, chosen, digest_of, network_of
from .options import CompareConfig

STUDY = "study.yaml"
HEADER = "# The plan of a study, written by electrify compare before its first run.\n"
RESULTS = "results.jsonl"
ENCODERS = "encoders"
PRETRAIN = "pretrain"
"""The name of what failed if an encoder was not trained to its end."""
FIXED = ("task_seeds", "max_train_samples", "max_eval_samples", "convention", "equal")
FIXED += ("lr_scheduler_type",)
COMPARED = sorted(GUARDS | {"eval_rows"})
"""Options that may differ when a run goes on, but not between recipes that are compared: which
updates are refused, and the rows of the validation set."""
OTHERS = {"data": "another corpus", "task_data": "other --tasks, or other examples of them"}
OTHERS["score"] = "another score"


@dataclass(frozen=True)
class Study:
    """What is to be run, and where."""

    config: CompareConfig
    entries: list[Entry]
    """The recipes with their changes, in the order given."""
    measures: list[Measure]
    out: Path
    cost: Cost
    fixed: dict[str, Any]
    """What decides the scores beside the recipe, and so stays as it is from the first command on:
    the corpus, the examples of the tasks, and how they are measured."""
    trials: list[Trial]
    score: Score | None
    """What decides it; None: the mean rank."""

    @property
    def recipes(self) -> list[str]:
        return [entry.name for entry in self.entries]

    @property
    def tasks(self) -> list[str]:
        return [measure.name for measure in self.measures]

    @cached_property
    def longest(self) -> dict[tuple[str, int], Trial]:
        """The longest run of each recipe and seed, from which the shorter ones start."""
        return {(t.entry, t.seed): t for t in sorted(self.trials, key=lambda t: t.steps)}

    def folder(self, trial: Trial) -> Path:
        """Where an encoder is trained and measured."""
        readable = re.sub(r"[^\w.-]+", "-", trial.entry)[:60]
        name = f"{readable}-{trial.budget:.4g}-seed{trial.seed}-{trial.identity[:8]}"
        return self.out / ENCODERS / name

    def finished(self, results: Mapping[Key, Result]) -> set[Key]:
        """The trials that need not be run: every task has a score."""
        found = (results.get(trial.key) for trial in self.trials)
        return {r.key for r in found if r and r.scores.keys() >= set(self.tasks)}


# ------------------------------------------------------------------ the plan


def plan_study(config: CompareConfig) -> Study:
    """Everything that can be checked before the first run: recipes, budgets, corpus, tasks, and the
    folder. Raises UserError."""
    must_have("a study", "eval", "scipy", "sklearn")
    out, corpus = Path(config.output_dir), Path(config.data)
    verify(corpus, max_bytes=0)
    text = Corpus(corpus, "train")
    measures, score = chosen(config)
    config = replace(config, tasks=tuple(measure.name for measure in measures))
    fixed = {name: getattr(config, name) for name in FIXED} | {"data": text.manifest.fingerprint}
    must_be_ours(out, STUDY, RESULTS)
    _must_agree(out, fixed, score)  # budgets in another unit would make no sense
    asked = entries_of(config)
    cost = Cost(text.manifest.vocab_size, rows_of(text), config.convention, config.equal)
    trials = planned(config, asked, cost)
    for trial, measure in product(trials, measures):
        network_of(measure, trial.recipe)
    fixed["task_data"] = dict(sorted((m.name, digest_of(m, corpus)) for m in measures))
    _must_agree(out, fixed, score)
    trials = [replace(t, identity=identity(t.entry, t.recipe, fixed)) for t in trials]
    return Study(config, asked, measures, out, cost, fixed, trials, score)


def entries_of(config: CompareConfig) -> list[Entry]:
    """The recipes with their changes. Raises UserError."""
    found = [entry(word) for word in joined(config.recipes)]
    if config.recipe_file is not None:
        values = plain_yaml(read_text(config.recipe_file), config.recipe_file)
        found += entries(values, config.recipe_file)
    names = Counter([*BASELINES, *(entry.name for entry in found)])
    twice = [name for name, times in names.items() if times > 1]
    need(not twice, f"recipes: the name {', '.join(twice)} is taken twice")
    return found


def identity(entry: str, recipe: Recipe, fixed: Mapping[str, Any]) -> str:
    """A hash of everything that decides the scores of an encoder: its recipe, the weights that it
    starts from, and what its study keeps."""
    decides = decisive(recipe) | {name: getattr(recipe.train, name) for name in COMPARED}
    starts = {name: content_of(start) for name, start in starts_of(recipe).items()}
    return digest([entry, decides, starts, fixed])


def digest(value: Any) -> str:
    """A hash of plain values."""
    return text_hash(json.dumps(value, sort_keys=True))[:16]


# ------------------------------------------------------------------ study.yaml


def _must_agree(out: Path, fixed: Mapping[str, Any], score: Score | None) -> None:
    """Raises UserError if the folder holds a study with other values of these."""
    path = out / STUDY
    if not path.exists():
        return
    had = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, now in {**fixed, "score": asdict(score) if score else MEAN_RANK}.items():
        what = f"--{name.replace('_', '-')} {had.get(name)}, not {now}"
        said = f"{out} holds a study with {OTHERS.get(name, what)}"
        need(had.get(name) == now, f"{said}. Choose another --output-dir")


@contextmanager
def held(study: Study) -> Iterator[None]:
    """Holds the folder of a study for this process, with its study.yaml."""
    with claim(study.out, STUDY, RESULTS):
        write_study(study)
        yield


def write_study(study: Study) -> None:
    """Writes study.yaml, which names the score before anything is run."""
    plan = study.fixed | {
        "score": asdict(study.score) if study.score else MEAN_RANK,
        "tasks": study.tasks,
        "recipes": [asdict(entry) for entry in study.entries],
        "budgets": list(study.config.budgets),
        "seeds": [study.config.seed, study.config.seeds],
    }
    plain = json.loads(json.dumps(plan))  # without tuples
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    write(study.out / STUDY, HEADER + text)


# ------------------------------------------------------------------ results.jsonl


@dataclass(frozen=True)
class Result:
    """One encoder, as a line of results.jsonl."""

    entry: str
    budget: float
    seed: int
    recipe: str
    """`Trial.identity`."""
    steps: int = 0
    flops: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    """Of pre-training."""
    parameters: int = 0
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Task -> metric, and scores: one for each seed of the task."""
    failed: dict[str, str] = field(default_factory=dict)
    """Task, or PRETRAIN -> the reason."""
    validation: dict[str, Any] = field(default_factory=dict)
    task_seconds: float = 0.0

    @property
    def key(self) -> Key:
        return self.entry, self.budget, self.seed, self.recipe

    def median(self, task: str) -> float:
        """The score of a task: the median over its seeds."""
        return statistics.median(self.scores[task]["scores"])


def merged(had: Result | None, new: Result) -> Result:
    """Two attempts at one encoder: each task by its newest score, a reason only where there is
    none."""
    if had is None:
        return new
    scores = had.scores | new.scores
    over = scores.keys() | ({PRETRAIN} if new.steps else ())
    failed = {name: why for name, why in (had.failed | new.failed).items() if name not in over}
    return replace(new if new.scores else had, scores=scores, failed=failed)


def read_results(out: Path) -> dict[Key, Result]:
    """The encoders of results.jsonl; several lines of one are joined. Raises UserError for a line
    that is damaged."""
    from pydantic import TypeAdapter

    path, line_of = out / RESULTS, TypeAdapter(Result)
    found: dict[Key, Result] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        fact = f"{path}, line {number} is damaged. Remove it, and its run is made again"
        with failing_as(fact):
            new = line_of.validate_json(line)
        found[new.key] = merged(found.get(new.key), new)
    return found


def record(out: Path, results: dict[Key, Result], new: Result) -> None:
    """Joins a result with what is known of its encoder, and writes all of them."""
    results[new.key] = merged(results.get(new.key), new)
    lines = (json_text(asdict(result)) + "\n" for result in results.values())
    write(out / RESULTS, "".join(lines))
