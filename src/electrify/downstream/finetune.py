"""Fine-tuning: (task, encoder folder, seed) -> scores, and the grid of them behind `electrify finetune`.

The score of a run is that of its last update: choosing the best evaluation would train on the validation set.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config.finetune import FinetuneConfig, FinetuneSettings
from ..errors import UserError
from ..progress import Progress, say
from . import loop, metrics, readers
from .encoder import RANDOM, Classifier, Loaded, encoder_fingerprint, load
from .report import Report, report_of, write_atomically, write_report
from .saving import can_save, save
from .tasks import TASKS, Example, TaskData, task_named

_DROPOUT_SEED = 1 << 32  # added to a run's seed, so that dropout does not depend on how many numbers the loading took
_EVALUATIONS = 5  # at most, where the user does not say: ten rounds over a validation set larger than the training set would be half of the time


@dataclass(frozen=True)
class Point:
    """One evaluation: updates and epochs done, mean training loss since the last evaluation, validation metrics."""

    step: int
    epoch: float
    loss: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """One fine-tuning run: the metrics after the last update (between -1 and 1), and how it got there."""

    scores: dict[str, float]
    curve: tuple[Point, ...]
    train_examples: int
    updates: int
    seconds: float


def finetune_one(
    model: str, task: TaskData, *, seed: int, settings: FinetuneSettings, progress: Progress | None = None, save_to: Path | None = None
) -> Outcome:
    """Fine-tune an encoder on a task once. A pure function of its arguments on one machine; torch's own generator is left as it was.

    model: folder, Hub id, or `random:` and one of them. save_to: write the fine-tuned model there as a Hugging Face folder. progress: advanced by
    one for each update. Raises UserError.
    """
    began = time.monotonic()
    device = loop.device_named(settings.device)
    bf16 = loop.computes_in_bf16(settings.bf16, device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        loaded = load(model, device=device)
        classifier = _classifier(loaded, task, settings, seed).to(device)
        if settings.max_seq_length > loaded.positions:
            raise UserError(f"{model}: reads {loaded.positions} tokens at most; give --max-seq-length {loaded.positions}")
        training = training_examples(task, seed=seed, settings=settings)
        common: dict[str, Any] = {"segments": loaded.segments, "max_seq_length": settings.max_seq_length, "device": device}
        data, held_out = (loop.encode(examples, loaded.tokenizer, **common) for examples in (training, task.validation))
        center, scale = _scale(task, data.labels_N)
        data = dataclasses.replace(data, labels_N=(data.labels_N - center) / scale)
        curve = _Curve(classifier, task, held_out, bf16=bf16, progress=progress, title=f"{task.name} seed {seed}")
        epochs = settings.num_train_epochs or task.epochs
        curve.total = loop.updates_of(len(training), batch_size=settings.per_device_train_batch_size, epochs=epochs)
        curve.every = settings.eval_steps or -(-len(training) // settings.per_device_train_batch_size) * -(-math.ceil(epochs) // _EVALUATIONS)
        torch.manual_seed(seed + _DROPOUT_SEED)
        loop.train(
            classifier, data, regression=task.kind == "regression", rates=loop.rates_for(classifier, settings), settings=settings, epochs=epochs,
            seed=seed, bf16=bf16, after=curve.after,
        )  # fmt: skip
        scores = dict(curve.points[-1].metrics)
        for name, examples in task.also:
            found = curve.score(loop.encode(examples, loaded.tokenizer, **common))
            scores |= {f"{metric}_{name}": value for metric, value in found.items()}
        if save_to is not None:
            save(classifier, loaded, task, save_to, center=center, scale=scale)
    return Outcome(scores, tuple(curve.points), len(training), curve.total, time.monotonic() - began)


def _classifier(loaded: Loaded, task: TaskData, settings: FinetuneSettings, seed: int) -> Classifier:
    torch.manual_seed(seed)  # the same head for every encoder of a width
    dropout = loaded.dropout if settings.dropout is None else settings.dropout
    std = getattr(loaded.encoder.config, "initializer_range", None) or 0.02
    return Classifier(loaded.encoder, num_outputs=task.num_outputs, dropout=dropout, std=std)


def training_examples(task: TaskData, *, seed: int, settings: FinetuneSettings) -> list[Example]:
    """The training examples of a seed: all, or `max_train_samples` drawn by the seed; pairs of a symmetric task in both orders on request."""
    examples = list(task.train)
    if settings.max_train_samples is not None and settings.max_train_samples < len(examples):
        chosen = loop.shuffled(len(examples), seed, loop.SUBSET)[: settings.max_train_samples]
        examples = [examples[int(i)] for i in chosen]
    if settings.double_unordered and task.symmetric:
        examples += [Example(e.pair or "", e.text, e.label) for e in examples]
    return examples


def _scale(task: TaskData, labels_N: Tensor) -> tuple[float, float]:
    """Regression learns standardised values (correlations do not notice): targets of 0 to 5 would first have to move the bias there."""
    if task.kind == "classification":
        return 0.0, 1.0
    std = float(labels_N.double().std(correction=0))
    return float(labels_N.double().mean()), std if std > 0 else 1.0


class _Curve:
    """Evaluates where it is due and keeps the points."""

    def __init__(self, model: Classifier, task: TaskData, held_out: loop.Encoded, *, bf16: bool, progress: Progress | None, title: str) -> None:
        self.model, self.task, self.held_out, self.bf16, self.progress, self.title = model, task, held_out, bf16, progress, title
        self.every, self.points, self.total = 1, list[Point](), 0
        self._losses: list[Tensor] = []

    def after(self, step: int, epoch: float, loss: Tensor) -> None:
        self._losses.append(loss)
        note = ""
        if step % self.every == 0 or step == self.total:
            mean = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self.points.append(Point(step, round(epoch, 4), mean, self.score(self.held_out)))
            name = self.task.metrics[0]
            note = f"{self.title}: loss {mean:.3f}, {name} {self.points[-1].metrics[name]:.3f}"
        if self.progress is not None:
            self.progress.advance(1, note)

    def score(self, data: loop.Encoded) -> dict[str, float]:
        logits_NC = loop.predict(self.model, data, bf16=self.bf16)
        if not bool(logits_NC.isfinite().all()):
            raise UserError(f"{self.title}: the model's outputs are no numbers any more; lower --learning-rate")
        predictions = logits_NC[:, 0] if self.task.kind == "regression" else logits_NC.argmax(-1)
        return metrics.score(self.task.metrics, data.labels_N.cpu().numpy(), predictions.numpy())


def finetune(options: FinetuneConfig) -> Report:
    """Every model on every task with every seed; runs already in OUT/scores.jsonl are not repeated. Writes scores.jsonl and report.{md,csv,json}.

    Raises UserError for bad data or models (all are looked at before the first update), and where `output_dir` holds runs with other options.
    """
    tasks = _read(options)
    for task in tasks:
        metrics.require(task.metrics)
    models = _models(options)
    out = Path(options.output_dir)
    held = _held(out, options.settings)
    plan = list(_plan(options, out, models, tasks))
    done = {(r["model"], r["task"], r["seed"]): r for r in _records(out)}
    todo = [run for run in plan if not _is_done(run, done, out)]
    device = loop.device_named(options.settings.device)
    for model in dict.fromkeys(run.model for run in todo):
        load(model, device=device)  # a broken second model should not be found after the first one's hours
    if not held:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "finetune.json", json.dumps(_kept(options.settings), indent=1, sort_keys=True) + "\n")
    if len(todo) < len(plan):
        say(f"{len(plan) - len(todo)} of {len(plan)} runs are done already: {out / 'scores.jsonl'}")
    with Progress(sum(run.updates for run in todo), title="finetune", unit="updates") as progress:
        for run in todo:
            outcome = finetune_one(run.model, run.task, seed=run.seed, settings=options.settings, progress=progress, save_to=run.save_to)
            done[run.key] = run.identity | dataclasses.asdict(outcome) | {"validation_examples": len(run.task.validation), "notes": run.task.notes}
            write_atomically(out / "scores.jsonl", "".join(json.dumps(r, sort_keys=True) + "\n" for r in done.values()))
            shown = ", ".join(f"{name} {value:.4f}" for name, value in outcome.scores.items())
            say(f"{run.model} {run.task.name} seed {run.seed}: {shown} ({outcome.seconds:.1f} s)")
    report = report_of(
        [done[run.key] for run in plan], {t.name: t.score_names for t in tasks}, settings=options.settings, shown={r.label: r.model for r in plan}
    )
    write_report(report, out)
    return report


@dataclass(frozen=True)
class _Run:
    """One cell of the grid."""

    model: str
    label: str
    task: TaskData
    seed: int
    updates: int
    save_to: Path | None
    hashes: dict[str, str]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.label, self.task.name, self.seed

    @property
    def identity(self) -> dict[str, Any]:
        return {"model": self.label, "task": self.task.name, "seed": self.seed, **self.hashes}


def _read(options: FinetuneConfig) -> list[TaskData]:
    if options.task:
        names = [name for given in options.task for name in (TASKS if given == "glue" else (given,))]
        rows = list({row.name: row for row in map(task_named, names)}.values())
        return [readers.read_glue(row, options.data_dir or "") for row in rows]
    named = {"text_column": options.text_column, "pair_column": options.pair_column, "label_column": options.label_column}
    return [readers.read_own(options.train_file or "", options.validation_file or "", **named, problem_type=options.problem_type)]


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
    hashes = {task.name: hashlib.sha256(repr(task).encode()).hexdigest()[:16] for task in tasks}
    for model in models:
        weights, label = encoder_fingerprint(model), _label(model, out)
        for task in tasks:
            n, epochs = len(training_examples(task, seed=0, settings=settings)), settings.num_train_epochs or task.epochs
            updates = loop.updates_of(n, batch_size=settings.per_device_train_batch_size, epochs=epochs)
            for seed in range(options.seed, options.seed + options.seeds):
                name = re.sub(r"[^\w-]+", "-", f"{task.name}-{label.replace('..', '').strip('./')}-{hashlib.sha256(label.encode()).hexdigest()[:6]}")
                save_to = out / "models" / name if options.save_model and seed == options.seed else None
                yield _Run(model, label, task, seed, updates, save_to, {"weights": weights, "data": hashes[task.name]})


def _is_done(run: _Run, done: dict[Any, dict[str, Any]], out: Path) -> bool:
    record = done.get(run.key)
    if record is None:
        return False
    for what, name in (("weights", f"model {run.model!r}"), ("data", f"the examples of task {run.task.name!r}")):
        if record[what] != run.hashes[what]:
            raise UserError(f"{out}: holds scores of {name} from before it changed; choose another --output-dir")
    return run.save_to is None or run.save_to.is_dir()


def _records(out: Path) -> list[dict[str, Any]]:
    path = out / "scores.jsonl"
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as e:
        raise UserError(f"{path}: not a file of scores ({e}); delete it or choose another --output-dir") from e


def _kept(settings: FinetuneSettings) -> dict[str, Any]:
    """What all runs of an output folder share."""
    return {k: v for k, v in dataclasses.asdict(settings).items() if k != "device"}


def _held(out: Path, settings: FinetuneSettings) -> bool:
    """Whether the folder is ours already. Raises UserError where it belongs to something else or to runs with other settings."""
    wanted, path = _kept(settings), out / "finetune.json"
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file, not a folder; choose another --output-dir")
    if not path.exists():
        if out.is_dir() and any(out.iterdir()):
            raise UserError(f"{out}: holds other files and no finetune.json; choose another --output-dir")
        return False
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise UserError(f"{path}: broken ({e}); choose another --output-dir") from e
    for k in sorted({*wanted, *held}):
        if wanted.get(k) != held.get(k):
            raise UserError(f"{out}: holds runs with --{k.replace('_', '-')} {held.get(k)}, not {wanted.get(k)}; choose another --output-dir")
    return True
