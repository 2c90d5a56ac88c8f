"""`electrify finetune`: every model on every task with every seed, each run once, and the report of them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.finetune import FinetuneConfig, FinetuneSettings
from ..errors import UserError
from ..progress import Progress, say
from ..text.whole import write_atomically
from . import loop, metrics, submission
from .encoder import RANDOM, encoder_fingerprint, load
from .plot import write_plot
from .read.own import read_own
from .read.task import read_task
from .records import line_of, read_records, read_settings, settings_text
from .report import Report, report_of, write_report
from .saving import can_save
from .search import search
from .single import finetune_one, problem_of, updates_of
from .tasks import Kind, TaskData, tasks_named


def finetune(options: FinetuneConfig) -> Report:
    """Every model on every task with every seed; runs already in OUT/scores.jsonl are not repeated. Writes scores.jsonl and report.{md,csv,json}.

    With `hyperparameter_search` the same for every combination, see search.py.

    Raises UserError for bad data or models (all are looked at before the first update), and where `output_dir` holds runs with other options.
    """
    if options.hyperparameter_search is not None:
        return search(options, finetune)
    tasks = _read(options)
    for task in tasks:
        if task.kind not in ("tagging", "answering"):  # whose scores are our own
            metrics.require(task.metrics)
    _require_use(options, tasks)
    models = _models(options)
    out = Path(options.output_dir)
    held = _held(out, options.settings)
    plan = list(_plan(options, out, models, tasks))
    done = {(r["model"], r["task"], r["seed"]): r for r in read_records(out)}
    todo = [run for run in plan if not _is_done(run, done, out)]
    device = loop.device_named(options.settings.device)
    for model in dict.fromkeys(run.model for run in todo):
        loaded = load(model, device=device)  # a broken second model should not be found after the first one's hours
        for task in tasks:
            problem_of(task, loaded, settings=options.settings, device=device, bf16=False, name=model)
    if not held:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "finetune.json", settings_text(_kept(options.settings)))
    if len(todo) < len(plan):
        say(f"{len(plan) - len(todo)} of {len(plan)} runs are done already: {out / 'scores.jsonl'}")
    _run_all(todo, done, out, options.settings)
    report = report_of(
        [done[run.key] for run in plan], {t.name: t.score_names for t in tasks}, settings=options.settings, shown={r.label: r.model for r in plan}
    )
    write_report(report, out)
    write_plot(report, out / "report.png")
    if options.predict_test:
        _submit(plan, done, out, random=options.random_weights)
    return report


def _submit(plan: list[_Run], done: dict[Any, dict[str, Any]], out: Path, *, random: bool) -> None:
    """An archive for every model; for those of random weights only where there are no others."""
    for model in dict.fromkeys(run.model for run in plan if random or not run.model.startswith(RANDOM)):
        runs = [run for run in plan if run.model == model]
        for line in submission.assemble(out, [(run.task, run.predictions, done[run.key]["scores"]) for run in runs], name=_name(runs[0].label)):
            say(line)


def _run_all(todo: list[_Run], done: dict[Any, dict[str, Any]], out: Path, settings: FinetuneSettings) -> None:
    """Runs what is left; after each its predictions and its record are on disk."""
    with Progress(sum(run.updates for run in todo), title="finetune", unit="updates") as progress:
        for run in todo:
            outcome = finetune_one(run.model, run.task, seed=run.seed, settings=settings, progress=progress, save_to=run.save_to)
            submission.write_files(run.predictions, outcome.files)
            done[run.key] = run.identity | outcome.record() | {"validation_examples": len(run.task.validation), "notes": run.task.notes}
            write_atomically(out / "scores.jsonl", "".join(map(line_of, done.values())))
            shown = ", ".join(f"{name} {value:.4f}" for name, value in outcome.scores.items())
            say(f"{run.model} {run.task.name} seed {run.seed}: {shown} ({outcome.seconds:.1f} s)")


@dataclass(frozen=True)
class _Run:
    """One cell of the grid."""

    model: str
    label: str
    task: TaskData
    seed: int
    updates: int
    save_to: Path | None
    predictions: Path
    """Folder of the answers."""
    hashes: dict[str, str]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.label, self.task.name, self.seed

    @property
    def identity(self) -> dict[str, Any]:
        return {"model": self.label, "task": self.task.name, "seed": self.seed, **self.hashes}


def _read(options: FinetuneConfig) -> list[TaskData]:
    if options.task:
        return [read_task(row, options.data_dir, test=options.predict_test) for row in tasks_named(options.task)]
    named = {"text_column": options.text_column, "pair_column": options.pair_column, "label_column": options.label_column}
    return [read_own(options.train_file or "", options.validation_file or "", **named, problem_type=options.problem_type)]


_ONLY_FOR: dict[str, tuple[Kind, str]] = {
    "frozen_encoder": ("tagging", "tagging"), "tagging_head": ("tagging", "tagging"), "answer_head": ("answering", "question answering"),
    "doc_stride": ("answering", "question answering"), "n_best_size": ("answering", "question answering"),
    "max_answer_length": ("answering", "question answering"),
}  # fmt: skip


def _require_use(options: FinetuneConfig, tasks: list[TaskData]) -> None:
    """Raises UserError for an option that none of the tasks would use, and where a model cannot be kept."""
    kinds = {task.kind for task in tasks}
    for name, (kind, shown) in _ONLY_FOR.items():
        if kind not in kinds and getattr(options.settings, name) != getattr(FinetuneSettings(), name):
            raise UserError(f"--{name.replace('_', '-')} is for {shown}; none of the tasks is")
    if options.settings.double_unordered and not any(task.symmetric for task in tasks):
        raise UserError("--double-unordered is for pairs whose order does not matter (MRPC, STS-B, your own); none of the tasks has such")
    others = [task.name for task in tasks if task.kind != "tagging"]
    if options.settings.frozen_encoder != "none" and others:
        raise UserError(f"--frozen-encoder is for tagging, not for {', '.join(others)}")
    if options.predict_test and not any(task.test for task in tasks) and not kinds & {"classification", "regression"}:
        raise UserError("--predict-test is for GLUE's test sets; none of the tasks has one")
    if options.save_model and "answering" in kinds and options.settings.answer_head == "joint":
        raise UserError("--save-model with question answering needs --answer-head plain: the library has no joint head")


def _models(options: FinetuneConfig) -> list[str]:
    names = [RANDOM + name.removeprefix(RANDOM) if options.random_weights else name for name in options.models]
    if options.random_baseline:
        names += [RANDOM + name.removeprefix(RANDOM) for name in names]
    names = list(dict.fromkeys(names))
    for name in names if options.save_model else ():
        can_save(name)
    return names


def _label(model: str, out: Path) -> str:
    """What a model is called in files: folders relative to the output folder, so that a project can be moved."""
    prefix, path = (RANDOM, model.removeprefix(RANDOM)) if model.startswith(RANDOM) else ("", model)
    return prefix + (os.path.relpath(path, out) if Path(path).is_dir() else path)


def _plan(options: FinetuneConfig, out: Path, models: list[str], tasks: list[TaskData]) -> Iterator[_Run]:
    settings = options.settings
    content = {task.name: repr((task.kind, task.labels, task.train, task.validation, task.also)).encode() for task in tasks}
    hashes = {name: hashlib.sha256(examples).hexdigest()[:16] for name, examples in content.items()}
    for model in models:
        weights, label = encoder_fingerprint(model), _label(model, out)
        for task in tasks:
            updates = updates_of(task, settings)
            for seed in range(options.seed, options.seed + options.seeds):
                save_to = out / "models" / f"{task.name}-{_name(label)}-seed{seed}" if options.save_model and seed == options.seed else None
                predictions = out / "predictions" / _name(label) / f"{task.name}-seed{seed}"
                yield _Run(model, label, task, seed, updates, save_to, predictions, {"weights": weights, "data": hashes[task.name]})


def _name(label: str) -> str:
    """A model's label as the name of a folder."""
    return re.sub(r"[^\w-]+", "-", f"{label.replace('..', '').strip('./')}-{hashlib.sha256(label.encode()).hexdigest()[:6]}")


def _is_done(run: _Run, done: dict[Any, dict[str, Any]], out: Path) -> bool:
    record = done.get(run.key)
    if record is None:
        return False
    for what, name in (("weights", f"model {run.model!r}"), ("data", f"the examples of task {run.task.name!r}")):
        if record[what] != run.hashes[what]:
            raise UserError(f"{out}: holds scores of {name} from before it changed; choose another --output-dir")
    predicted = all((run.predictions / f"{name}.tsv").is_file() for name, _ in run.task.test)
    return predicted and (run.save_to is None or run.save_to.is_dir())


def _kept(settings: FinetuneSettings) -> dict[str, Any]:
    """What all runs of an output folder share."""
    return {k: v for k, v in dataclasses.asdict(settings).items() if k != "device"}


def _held(out: Path, settings: FinetuneSettings) -> bool:
    """Whether the folder is ours already. Raises UserError where it belongs to something else or to runs with other settings."""
    wanted = _kept(settings)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file, not a folder; choose another --output-dir")
    held = read_settings(out)
    if held is None:
        if out.is_dir() and any(out.iterdir()):
            raise UserError(f"{out}: holds other files and no finetune.json; choose another --output-dir")
        return False
    held = _kept(FinetuneSettings()) | held  # an option that the folder's version did not have yet was at its default
    for k in sorted({*wanted, *held}):
        if wanted.get(k) != held.get(k):
            raise UserError(f"{out}: holds runs with --{k.replace('_', '-')} {held.get(k)}, not {wanted.get(k)}; choose another --output-dir")
    return True
