"""One fine-tuning run: (task, encoder folder, seed) -> scores.

The score of a run is that of its last update: choosing the best evaluation would train on the validation set.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config.finetune import FinetuneSettings
from ..errors import UserError
from ..progress import Progress
from . import loop, metrics
from .encoder import Classifier, Loaded, load
from .saving import save
from .tasks import Example, TaskData

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
    predictions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each test set of the task, by its name: labels as the files write them, or values."""

    def record(self) -> dict[str, Any]:
        """What scores.jsonl keeps: all but the predictions, which are files of their own."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "predictions"}


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
        also, tests = ({n: loop.encode(e, loaded.tokenizer, **common) for n, e in sets} for sets in (task.also, task.test))
        scores = curve.points[-1].metrics | {f"{metric}_{n}": value for n, part in also.items() for metric, value in curve.score(part).items()}
        predictions = {n: curve.predictions(part, center=center, scale=scale) for n, part in tests.items()}
        if save_to is not None:
            save(classifier, loaded, task, save_to, center=center, scale=scale)
    return Outcome(scores, tuple(curve.points), len(training), curve.total, time.monotonic() - began, predictions)


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
        return metrics.score(self.task.metrics, data.labels_N.cpu().numpy(), self._answers(data).numpy())

    def predictions(self, data: loop.Encoded, *, center: float, scale: float) -> tuple[str, ...]:
        """What a test file asks for: the label of each example as its file writes it, or its value."""
        answers_N = self._answers(data)
        if self.task.kind == "regression":
            return tuple(f"{value * scale + center:.3f}" for value in answers_N.tolist())
        return tuple(self.task.labels[k] for k in answers_N.tolist())

    def _answers(self, data: loop.Encoded) -> Tensor:
        logits_NC = loop.predict(self.model, data, bf16=self.bf16)
        if not bool(logits_NC.isfinite().all()):
            raise UserError(f"{self.title}: the model's outputs are no numbers any more; lower --learning-rate")
        return logits_NC[:, 0] if self.task.kind == "regression" else logits_NC.argmax(-1)
