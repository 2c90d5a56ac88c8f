"""Which training examples a run shows, and how often."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UserError
from . import loop
from .options import SELECTION, FinetuneSettings
from .read.split import parted
from .tasks import TaskData

FROZEN_EPOCHS = 20.0
"""A head alone learns more slowly."""
CLASSED = ("classification", "multilabel")
MOST_EPOCHS = 50
"""To reach a minimum of updates, a set is shown at most this often."""


def training_examples(task: TaskData, *, seed: int, settings: FinetuneSettings) -> list[Any]:
    """The training examples of a seed: all, or `max_train_samples` drawn by the seed; pairs of a
    symmetric task in both orders on request."""
    return _both_orders(_drawn(task, seed, settings), task, settings)


def _drawn(task: TaskData, seed: int, settings: FinetuneSettings) -> list[Any]:
    examples: list[Any] = list(task.train)
    if settings.max_train_samples is not None and settings.max_train_samples < len(examples):
        chosen = loop.shuffled(len(examples), seed, loop.SUBSET)[: settings.max_train_samples]
        examples = [examples[int(i)] for i in chosen]
    return examples


def _both_orders(examples: list[Any], task: TaskData, settings: FinetuneSettings) -> list[Any]:
    # For the user's own pairs only the user knows, so a protocol does not decide it.
    known = settings if task.symmetric is None else settings.filled()
    if not known.double_unordered or task.symmetric is False:
        return examples
    return examples + [replace(e, text=e.pair or "", pair=e.text) for e in examples]


def epochs_of(task: TaskData, settings: FinetuneSettings, *, examples: int) -> float:
    """How often this many training examples are shown."""
    if settings.num_train_epochs is not None:
        return settings.num_train_epochs
    if settings.frozen_encoder != "none":
        return FROZEN_EPOCHS
    fewest = settings.min_train_steps
    if fewest is None:
        fewest = task.min_updates if settings.protocol == "electrify" else 0
    per_epoch = math.ceil(examples / settings.per_device_train_batch_size)
    return max(task.epochs, min(MOST_EPOCHS, math.ceil(fewest / per_epoch)))


def updates_of(task: TaskData, settings: FinetuneSettings) -> int:
    """How many updates a run takes if each example is one row (long contexts give several)."""
    n = len(examples_of(task, seed=0, settings=settings).examples)
    size = settings.per_device_train_batch_size
    return loop.updates_of(n, batch_size=size, epochs=epochs_of(task, settings, examples=n))


@dataclass(frozen=True)
class Shown:
    """The examples of a run that are trained on, and those that are held out for choosing an
    evaluation (none takes the last)."""

    examples: list[Any]
    selection: tuple[Any, ...] = ()


def examples_of(task: TaskData, *, seed: int, settings: FinetuneSettings) -> Shown:
    """The examples of a seed. A pair that is held out is not trained on in its other order."""
    examples = _drawn(task, seed, settings)
    if not settings.load_best_model_at_end:
        return Shown(_both_orders(examples, task, settings))
    share = settings.selection_fraction or SELECTION
    how: Any = {"flag": "--selection-fraction", "every_class": task.kind in CLASSED}
    stay, held = parted(task.kind, examples, share, seed=seed, **how)
    if task.kind == "regression":
        _must_differ(task, stay, held, share)
    return Shown(_both_orders(list(stay), task, settings), held)


def _must_differ(task: TaskData, stay: Sequence[Any], held: Sequence[Any], share: float) -> None:
    """Raises UserError for values among which nothing can be chosen, or learnt."""
    for part, what in ((held, "that are held out"), (stay, "that remain for training")):
        values = {example.label for example in part}
        if len(values) == 1:
            raise UserError(
                f"task {task.name!r}: with --selection-fraction {share:g}, every label of the "
                f"{len(part):,} training examples {what} is {values.pop():g}; give another share, "
                "or leave --load-best-model-at-end out"
            )


def must_divide(task: TaskData, seeds: Iterable[int], settings: FinetuneSettings) -> None:
    """Raises UserError if the training examples cannot be divided with one of the seeds."""
    if settings.load_best_model_at_end:
        for seed in seeds:
            examples_of(task, seed=seed, settings=settings)
