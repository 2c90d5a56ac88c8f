"""The runs of a fine-tuning: every model on every task with every seed, what each run depends on,
and which are done."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..export.places import RANDOM
from ..files import sha256
from .baselines import applies, baseline_hashes, is_baseline
from .epochs import must_divide, updates_of
from .fingerprints import fingerprints, is_on_hub, may_be_same
from .names import folder_name, must_be_encodable, relative, short
from .options import FinetuneConfig
from .saving import WEIGHTS
from .tasks import TaskData


@dataclass(frozen=True)
class Run:
    """One cell of the grid."""

    model: str
    label: str
    task: TaskData
    seed: int
    updates: int
    save_to: Path | None
    predictions: Path
    """Folder of the answers."""
    hashes: dict[str, Any]
    """Hashes of everything that the scores depend on: weights, tokenizer, data, and each test set
    by name."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.label, self.task.name, self.seed

    @property
    def identity(self) -> dict[str, Any]:
        return {"model": self.label, "task": self.task.name, "seed": self.seed, **self.hashes}


def _label(model: str, out: Path) -> str:
    """The name of a model in our files: folders relative to the output folder, so that a project
    can be moved."""
    if is_baseline(model):
        return model
    prefix, path = (RANDOM, model.removeprefix(RANDOM)) if model.startswith(RANDOM) else ("", model)
    return prefix + relative(path, out)


def models_of(options: FinetuneConfig) -> list[str]:
    """The encoders that somebody named, by their shapes alone if the weights are to be random."""
    if not options.random_weights:
        return list(options.models)
    return [RANDOM + name.removeprefix(RANDOM) for name in options.models]


def planned(
    options: FinetuneConfig, out: Path, models: list[str], tasks: list[TaskData]
) -> Iterator[Run]:
    settings = options.settings
    seeds = range(options.seed, options.seed + options.seeds)
    for task in tasks:
        must_divide(task, seeds, settings)
    hashes = {
        task.name: _hash((task.kind, task.labels, task.train, task.validation, task.also))
        for task in tasks
    }
    tests = {t.name: {name: _hash(examples) for name, examples in t.test} for t in tasks}
    for model in models:
        label = _label(model, out)
        known = baseline_hashes(model) if is_baseline(model) else fingerprints(model)
        for task in tasks:
            if not applies(model, task):
                continue
            # A baseline does not answer test sets.
            answered = {} if is_baseline(model) else tests[task.name]
            updates = 0 if is_baseline(model) else updates_of(task, settings)
            for seed in seeds:
                folder = folder_name(label)
                keep = options.save_model and seed == options.seed and is_wanted(model, models)
                saved = out / "models" / f"{short(task.name)}-{folder}-seed{seed}"
                predictions = out / "predictions" / folder / f"{short(task.name)}-seed{seed}"
                yield Run(
                    model,
                    label,
                    task,
                    seed,
                    updates,
                    saved if keep else None,
                    predictions,
                    known
                    | {"data": hashes[task.name], "test": answered}
                    | {"chosen_by": task.metrics[0] if settings.load_best_model_at_end else None},
                )


def _hash(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def is_wanted(model: str, models: Iterable[str]) -> bool:
    """Whether anybody wants the fine-tuned model: nobody does if the row is only a comparison, as
    random weights are beside others."""
    others = (m for m in models if not m.startswith(RANDOM) and not is_baseline(m))
    return not is_baseline(model) and (not model.startswith(RANDOM) or not any(others))


def must_be_sayable(models: Iterable[str], tasks: Iterable[TaskData], out: Path) -> None:
    """Raises UserError if our files could not hold the name of a model or a task."""
    for name in (*(_label(model, out) for model in models), *(task.name for task in tasks)):
        must_be_encodable(name)


def must_be_makeable(path: Path) -> None:
    """Raises UserError if nothing can have this name."""
    try:
        os.lstat(path)
    except OSError as e:
        if e.errno == errno.ENAMETOOLONG:
            raise UserError(
                f"{path}: the name is too long for this disk; choose another --output-dir"
            ) from e


def must_be_of_same_examples(
    plan: Iterable[Run], records: Iterable[dict[str, Any]], out: Path
) -> None:
    """Raises UserError if a folder holds scores of other examples of a task, of whatever model and
    seed: side by side, they would be compared."""
    data = {run.task.name: run.hashes["data"] for run in plan}
    other = next((r["task"] for r in records if data.get(r["task"], r["data"]) != r["data"]), None)
    if other is not None:
        raise UserError(
            f"{out}: holds scores of other examples of task {other!r}: a file has changed, or "
            "--validation-fraction or --seed, which draw from it; give the same as before, or "
            "choose another --output-dir"
        )


def is_done(run: Run, done: dict[Any, dict[str, Any]], out: Path) -> bool:
    record = done.get(run.key)
    if record is None:
        return False
    _must_be_of(record, run, out)
    answers = record.get("answers") or {}
    files = [f"{name}.tsv" for name in run.hashes["test"]]
    predicted = all(
        (run.predictions / name).is_file() and sha256(run.predictions / name) == answers.get(name)
        for name in files
    )
    if not predicted or not (run.save_to is None or (run.save_to / WEIGHTS).is_file()):
        return False
    lacking = [name for name in run.task.score_names if name not in record["scores"]]
    if lacking:
        raise UserError(
            f"{out}: holds scores of task {run.task.name!r} without {', '.join(lacking)}, made "
            "with other --metrics or by an earlier version; move scores.jsonl away, and its runs "
            "are made again, or choose another --output-dir"
        )
    return True


def at_commits(
    todo: Iterable[Run], plan: Iterable[Run], done: dict[Any, dict[str, Any]], out: Path
) -> list[Run]:
    """The runs to be made, with the commits of their models on the Hub, which are known once the
    models were read. Raises UserError if a finished run of the plan is of another commit."""
    known = {
        model: fingerprints(model)
        for model in {run.model for run in todo}
        if not is_baseline(model) and is_on_hub(model)
    }
    for run in plan:
        if run.model in known and run.key in done:
            _must_be_of_model(done[run.key], known[run.model], run.model, out)
    return [replace(run, hashes=run.hashes | known.get(run.model, {})) for run in todo]


def _must_be_of_model(
    record: dict[str, Any], hashes: dict[str, Any], model: str, out: Path
) -> None:
    """Raises UserError if the record of a run has other fingerprints of its model."""
    named = (
        ("weights", f"model {model!r}"),
        ("tokenizer", f"the tokenizer of {model!r}"),
    )
    for what, name in named:
        # Records of earlier versions have no tokenizer.
        if not may_be_same(record.get(what, hashes[what]), hashes[what]):
            raise UserError(
                f"{out}: holds scores of {name} from before it changed; choose another --output-dir"
            )


def _must_be_of(record: dict[str, Any], run: Run, out: Path) -> None:
    """Raises UserError if the record of a run is of another model, or of weights that another
    metric chose."""
    _must_be_of_model(record, run.hashes, run.model, out)
    chosen_by = run.hashes["chosen_by"]
    if record.get("chosen_by", chosen_by) != chosen_by:
        raise UserError(
            f"{out}: holds scores of task {run.task.name!r} whose weights were chosen by "
            f"{record['chosen_by']}, now {chosen_by} is the first of --metrics; choose another "
            "--output-dir"
        )
    answered = record.get("test") or {}
    for name, digest in run.hashes["test"].items():
        if answered.get(name, digest) != digest:
            raise UserError(
                f"{out}: holds answers to the test set {name} from before it changed; choose "
                "another --output-dir"
            )
