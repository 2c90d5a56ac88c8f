"""One fine-tuning run: (model, task, settings, seed) -> scores.

The score of a run is that of its last update: choosing the best evaluation would train on the
validation set. With load_best_model_at_end, examples held out of the training set choose one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..text.report import note_on_unknown
from ..train.machine import keep_memory, pick_device
from . import loop
from .encoding import fitting
from .frozen import FrozenTagging, FrozenTexts
from .loop import Answered
from .metrics import rank
from .model import Reader, computing_in_bf16, last_layer, load_encoder, rates_of, save
from .options import FinetuneSettings
from .problems import Answering, Tagging, Texts, class_weights
from .published import ENCODER_DROPOUT, ElectraQuestions, PublishedTexts, published_head
from .split import parted
from .tasks import MAX_SEQ_LENGTH, TaskData

OnUpdate = Callable[[float, str], None]
# Added to a run's seed, so that dropout does not depend on how many random numbers loading used.
DROPOUT_SEED = 1 << 32
# The most evaluations by default: with ten, passes over a validation set that is larger than the
# training set would take half of the time.
EVALUATIONS = 5
FROZEN_EPOCHS = 20.0  # a head alone learns more slowly
MOST_EPOCHS = 50
"""To reach a minimum of updates, a set is shown at most this often."""
SELECTION = 0.1
"""Share of the training examples that is held out to choose the best evaluation."""
PROBLEMS: dict[str, dict[str, Any]] = {
    "texts": {"electrify": Texts, "published": PublishedTexts, "frozen": FrozenTexts},
    "tagging": {
        "electrify": Tagging,
        "published": partial(Tagging, first_piece=True, head=published_head),
        "frozen": FrozenTagging,
    },
    "answering": {"electrify": Answering, "published": ElectraQuestions},
}
"""How a kind of task is learnt, by the protocol or as a probe."""


@dataclass(frozen=True)
class Point:
    """One evaluation: updates and epochs done, mean training loss since the last evaluation,
    validation metrics."""

    step: int
    epoch: float
    loss: float
    metrics: dict[str, float]
    selection: float | None = None
    """The first metric on the examples that were held out of the training set to choose by."""


@dataclass(frozen=True)
class Outcome:
    """One fine-tuning run: the metrics (between -1 and 1), and how it got there."""

    scores: dict[str, float]
    curve: tuple[Point, ...]
    train_examples: int
    updates: int
    seconds: float
    parameters: int = 0
    """Of the encoder and its head."""
    files: dict[str, str] = field(default_factory=dict)
    """Predictions as files, name to content: of test sets, and of the validation examples."""
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """For scores.jsonl: everything except the files and the notes."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in ("files", "notes")}


def finetune_one(
    model: str,
    task: TaskData,
    *,
    seed: int,
    settings: FinetuneSettings,
    after: OnUpdate = lambda share, note: None,
    save_to: Path | None = None,
    finished: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Fine-tunes an encoder on a task once. A pure function of its arguments on one machine;
    torch's own generator is left as it was.

    Args:
        model: folder, Hub id, or `random:` and one of them.
        after: called after each update with its share of them and, after an evaluation, the scores.
        save_to: where the fine-tuned model is saved as a Hugging Face folder.
        finished: called with the outcome before the model is saved, which may fail.

    Raises:
        UserError: the model cannot be loaded, or does not suit the task.
    """
    began = time.monotonic()
    device = pick_device(settings.device)
    keep_memory()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        published = settings.protocol == "published"
        reader = load_encoder(model, device=device, dropout=ENCODER_DROPOUT if published else None)
        problem = problem_of(task, reader, settings)
        torch.manual_seed(seed)  # the same head for every encoder of a class and width
        net = problem.net(dropout=settings.dropout)
        if save_to is not None and task.kind == "regression":
            last_layer(net.library)  # before the hours of training
        if settings.frozen_encoder == "none" and loop.computes_in_bf16(settings.bf16, device):
            computing_in_bf16(net.encoder)
        shown, selection = shown_examples(task, seed=seed, settings=settings)
        rows = problem.training(shown)
        unknown = note_on_unknown(reader.name, reader.tokenizer, (e.whole for e in task.train))
        notes = tuple(filter(None, (problem.note(), unknown.removeprefix("warning: "))))
        torch.manual_seed(seed + DROPOUT_SEED)
        course = Course(net, problem, task, selection)
        course.train(rows, after, seed=seed, settings=settings)
        outcome = Outcome(
            course.points[course.selected].metrics | course.further_scores(),
            tuple(course.points),
            len(shown),
            course.points[-1].step,
            time.monotonic() - began,
            sum(p.numel() for p in net.parameters()),
            course.files(),
            notes,
        )
        finished(outcome)
        if save_to is not None:
            reading = problem.reading(task, course.held)
            scaled = problem.scale, problem.center
            save(net, reader, task.name, save_to, reading=reading, scaled=scaled)
    return outcome


def problem_of(task: TaskData, reader: Reader, settings: FinetuneSettings) -> Any:
    """The task made ready for an encoder."""
    group = task.kind if task.kind in ("tagging", "answering") else "texts"
    way = "frozen" if settings.frozen_encoder != "none" else settings.protocol
    default = task.max_seq_length or MAX_SEQ_LENGTH[task.kind]
    how: dict[str, Any] = {"max_seq_length": fitting(reader, settings.max_seq_length, default)}
    if group == "answering":
        questions: Any = (*task.train, *task.validation)
        how["answerless"] = not all(q.answers for q in questions)
    elif settings.class_weights == "balanced" and task.kind != "regression":
        how["weights"] = class_weights(task)
    if (group, way) == ("texts", "published"):
        how["value_range"] = task.value_range
    if way == "frozen":
        how["bf16"] = loop.computes_in_bf16(settings.bf16, reader.device)
        how["pairs"] = getattr(task.train[0], "pair", None) is not None
        how["layers"] = settings.frozen_encoder
    return PROBLEMS[group][way](reader, task.kind, task.labels, **how)


class Course:
    """The updates and evaluations of a run. selection: the examples that choose an evaluation."""

    def __init__(self, net: Any, problem: Any, task: TaskData, selection: tuple[Any, ...]) -> None:
        self.net, self.problem, self.task = net, problem, task
        self.held = Answered(task.validation, problem.rows(task.validation))
        """The validation examples, answered with the weights that count."""
        self.choosing = Answered(selection, problem.rows(selection)) if selection else None
        self.points: list[Point] = []
        self.selected = -1
        """The number of the evaluation that counts."""
        self.weights: dict[str, Tensor] = {}

    def train(self, rows: Any, after: OnUpdate, *, seed: int, settings: FinetuneSettings) -> None:
        """Makes all updates and evaluations. The net then has the weights that count."""
        net, task = self.net, self.task
        number, size = len(rows.lengths_N), settings.per_device_train_batch_size
        epochs = epochs_of(task, settings, examples=number)
        total = loop.updates_of(number, batch_size=size, epochs=epochs)
        rounds = -(-math.ceil(epochs) // EVALUATIONS)
        every = settings.eval_steps or math.ceil(number / size) * rounds
        losses = list[Tensor]()
        how = {"rates": rates_of(net, self.problem.reader, task, settings), "epochs": epochs}
        for step, epoch, loss in loop.train(net, self.problem, rows, settings, seed=seed, **how):
            losses.append(loss)
            note, left = "", 0
            if step % every == 0 or step == total:
                found = self.evaluate(step, round(epoch, 4), float(torch.stack(losses).mean()))
                losses.clear()
                name, value = next(iter(found.metrics.items()))
                note = f"{task.name} seed {seed}: loss {found.loss:.3f}, {name} {value:.3f}"
                patience = settings.early_stopping_patience or math.inf
                if self.choosing and len(self.points) - 1 - self.selected >= patience:
                    left = total - step
            after((1 + left) / total, note)
            if left:
                break
        if self.choosing:
            net.load_state_dict(self.weights, strict=False)

    def evaluate(self, step: int, epoch: float, loss: float) -> Point:
        """The scores on the validation examples, and whether this evaluation counts so far."""
        now, first, chosen = self.answered(self.held), self.task.metrics[0], None
        scores, best = self.problem.score(self.task, now), math.inf
        if self.choosing:
            chosen = self.problem.score(self.task, self.answered(self.choosing))[first]
            known = (p.selection for p in self.points if p.selection is not None)
            best = min((rank(first, x) for x in known), default=math.inf)
        # Where no score is a number so far, the latest counts, as without a choice.
        if chosen is None or best == math.inf or rank(first, chosen) < best:
            self.selected, self.held = len(self.points), now
            if chosen is not None:
                named = self.net.named_parameters()
                self.weights = {n: p.detach().clone() for n, p in named if p.requires_grad}
        self.points.append(Point(step, epoch, loss, scores, chosen))
        return self.points[-1]

    def answered(self, held: Answered) -> Answered:
        return held._replace(answers=self.problem.answers(self.net, held))

    def files(self) -> dict[str, str]:
        """The predictions of the validation set and of all test sets."""
        files = self.problem.files(self.task.name, self.task, self.held)
        for name, examples in self.task.test:
            found = self.answered(Answered(examples, self.problem.rows(examples)))
            files |= self.problem.files(name, self.task, found)
        return files

    def further_scores(self) -> dict[str, float]:
        """The scores of further labelled sets, whose names are appended to the metrics'."""
        scores: dict[str, float] = {}
        for name, examples in self.task.also:
            found = self.answered(Answered(examples, self.problem.rows(examples)))
            its = self.problem.score(self.task, found).items()
            scores |= {f"{metric}_{name}": value for metric, value in its}
        return scores


# ------------------------------------------------------------------ which examples, how often


def drawn_examples(task: TaskData, *, seed: int, settings: FinetuneSettings) -> list[Any]:
    """All training examples, or `max_train_samples` drawn by the seed."""
    examples: list[Any] = list(task.train)
    most = settings.max_train_samples
    if most is None or most >= len(examples):
        return examples
    return [examples[int(k)] for k in loop.shuffled(len(examples), seed, loop.SUBSET)[:most]]


def shown_examples(
    task: TaskData, *, seed: int, settings: FinetuneSettings
) -> tuple[list[Any], tuple[Any, ...]]:
    """The examples that a run trains on, and those that are held out to choose an evaluation. A
    pair that is held out is not trained on in its other order."""
    examples, held = drawn_examples(task, seed=seed, settings=settings), ()
    if settings.load_best_model_at_end:
        classed = task.kind in ("classification", "multilabel")
        stay, held = parted(task.kind, examples, SELECTION, seed=seed, every_class=classed)
        examples = list(stay)
    if loop.PROTOCOLS[settings.protocol].both_orders and task.symmetric:
        examples += [replace(e, text=e.pair or "", pair=e.text) for e in examples]
    return examples, held


def epochs_of(task: TaskData, settings: FinetuneSettings, *, examples: int) -> float:
    """How often this many training examples are shown."""
    if settings.num_train_epochs is not None:
        return settings.num_train_epochs
    per_epoch = math.ceil(examples / settings.per_device_train_batch_size)
    if settings.max_steps is not None:
        return (settings.max_steps - 0.5) / per_epoch  # loop.updates_of rounds up
    if settings.frozen_encoder != "none":
        return FROZEN_EPOCHS
    fewest = settings.min_train_steps
    if fewest is None:
        fewest = task.min_updates if settings.protocol == "electrify" else 0
    return max(task.epochs, min(MOST_EPOCHS, math.ceil(fewest / per_epoch)))


def expected_updates(task: TaskData, settings: FinetuneSettings) -> int:
    """How many updates a run takes if each example is one row (long contexts give several)."""
    number = len(shown_examples(task, seed=0, settings=settings)[0])
    size = settings.per_device_train_batch_size
    epochs = epochs_of(task, settings, examples=number)
    return loop.updates_of(number, batch_size=size, epochs=epochs)
