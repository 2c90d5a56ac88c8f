"""One fine-tuning run: (task, encoder, seed) -> scores.

The score of a run is that of its last update: choosing the best evaluation would train on the
validation set. With load_best_model_at_end, examples held out of the training set choose one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..progress import Progress
from ..train.machine import keep_memory, peak_memory_bytes
from . import loop, metrics
from .answering import Answering
from .frozen import FrozenTagging, FrozenTexts
from .model import (
    Reader,
    computing_in_bf16,
    last_layer,
    learning_rates,
    load_encoder,
    save,
    unknown_note,
)
from .options import SELECTION, FinetuneSettings
from .published import ENCODER_DROPOUT, PROTOCOLS, in_both_orders, published_problem
from .split import parted
from .tagging import Tagging
from .tasks import MAX_SEQ_LENGTH, Example, Question, Sentence, TaskData
from .texts import Texts, Truncation, class_weights

# Added to a run's seed, so that dropout does not depend on how many random numbers loading used.
DROPOUT_SEED = 1 << 32
# The most evaluations by default: ten passes over a validation set that is larger than the training
# set would take half of the time.
EVALUATIONS = 5
# A head alone learns more slowly, needs a higher rate and more epochs.
FROZEN_RATE = 2e-3
FROZEN_EPOCHS = 20.0
MOST_EPOCHS = 50
"""To reach a minimum of updates, a set is shown at most this often."""


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
    chosen: bool = False
    """Whether its weights were kept, in place of the last ones."""


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
    peak_memory_bytes: int = 0
    """The peak so far, including earlier runs: allocated on a GPU, or used by the whole process on
    a CPU."""
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
    progress: Progress | None = None,
    save_to: Path | None = None,
    finished: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Fine-tunes an encoder on a task once. A pure function of its arguments on one machine;
    torch's own generator is left as it was.

    Args:
        model: folder, Hub id, or `random:` and one of them.
        progress: advanced by the number of updates that `expected_updates` predicts.
        save_to: where the fine-tuned model is saved as a Hugging Face folder.
        finished: called with the outcome before the model is saved, which may fail.

    Raises:
        UserError: the model cannot be loaded, or does not suit the task.
    """
    began = time.monotonic()
    device = loop.device_named(settings.device)
    keep_memory()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        run = _Run(model, task, seed, settings, device)
        if save_to is not None and task.kind == "regression":
            last_layer(run.net.library)  # before the hours of training
        run.train(progress)
        scores, files = run.results()
        outcome = Outcome(
            scores,
            tuple(run.points),
            len(run.examples),
            run.points[-1].step,
            time.monotonic() - began,
            sum(p.numel() for p in run.net.parameters()),
            peak_memory_bytes(device),
            files,
            tuple(run.notes),
        )
        finished(outcome)
        if save_to is not None:
            run.save(save_to)
    return outcome


def problem_of(
    task: TaskData, reader: Reader, settings: FinetuneSettings, device: torch.device, *, bf16: bool
) -> Any:
    """The task made ready for an encoder."""
    default = task.max_seq_length or MAX_SEQ_LENGTH[task.kind]
    common: dict[str, Any] = {
        "max_seq_length": reader.fitting(settings.max_seq_length, default),
        "device": device,
    }
    if task.kind == "answering":
        questions: Any = (*task.train, *task.validation)
        common["answerless"] = not all(q.answers for q in questions)
        common["doc_stride"] = settings.doc_stride
        common["n_best"] = settings.n_best_size
        common["longest_answer"] = settings.max_answer_length
    elif settings.class_weights == "balanced" and task.kind != "regression":
        common["weights"] = class_weights(task)
    if settings.protocol == "published":
        return published_problem(task, reader, common)
    probed = settings.frozen_encoder != "none"
    match task.kind:
        case "tagging":
            found = (FrozenTagging if probed else Tagging)(reader, task.labels, **common)
        case "answering":
            return Answering(reader, **common)
        case _:
            texts = FrozenTexts if probed else Texts
            found = texts(reader, task.kind, task.labels, **common)
    if isinstance(found, FrozenTexts):
        first: Any = task.train[0]
        found.pairs = first.pair is not None
    if isinstance(found, FrozenTagging | FrozenTexts):
        found.freeze(settings.frozen_encoder, bf16=bf16)  # type: ignore[arg-type]
    return found


class _Run:
    """The state of a run."""

    def __init__(
        self,
        model: str,
        task: TaskData,
        seed: int,
        settings: FinetuneSettings,
        device: torch.device,
    ) -> None:
        self.task = task
        self.seed = seed
        self.settings = settings
        self.protocol = PROTOCOLS[settings.protocol]
        self.points: list[Point] = []
        published = settings.protocol == "published"
        frozen = settings.frozen_encoder != "none"
        torch.manual_seed(seed)
        self.reader = load_encoder(
            model, device=device, dropout=ENCODER_DROPOUT if published else None
        )
        bf16 = loop.computes_in_bf16(settings.bf16, device)
        self.problem = problem_of(task, self.reader, settings, device, bf16=bf16)
        torch.manual_seed(seed)  # the same head for every encoder of a class and width
        self.net = self.problem.net(dropout=settings.dropout)
        if bf16 and not frozen:
            computing_in_bf16(self.net.encoder)
        self.examples, self.selection = shown_examples(task, seed=seed, settings=settings)
        self.rows = self.problem.training(self.examples)
        self.held = self.problem.rows(task.validation)
        self.epochs = epochs_of(task, settings, examples=len(self.examples))
        size = settings.per_device_train_batch_size
        number = len(self.rows.lengths_N)
        self.total = loop.updates_of(number, batch_size=size, epochs=self.epochs)
        rounds = -(-math.ceil(self.epochs) // EVALUATIONS)
        self.every = settings.eval_steps or -(-number // size) * rounds
        self.notes = [note for note in (self._truncated(), self._unknown()) if note]
        # Of the best evaluation on held-out training examples:
        self.best = -1
        self.best_score = math.nan
        self.best_weights: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}

    def _truncated(self) -> str:
        if not isinstance(self.problem, Texts):
            return ""
        cut = Truncation(self.reader, self.problem.max_seq_length)
        if isinstance(self.problem, FrozenTexts):
            texts = [Example(t) for e in self.examples for t in (e.text, e.pair) if t is not None]
            cut.add(texts, [cut.length] * len(texts))
        else:
            cut.add(self.examples, self.rows.lengths_N.tolist())
        return f"training: {cut.text()}" if cut.truncated else ""

    def _unknown(self) -> str:
        note = unknown_note(self.reader, map(text_of, self.task.train))
        return note.removeprefix("warning: ")

    def train(self, progress: Progress | None) -> None:
        s = self.settings
        frozen = s.frozen_encoder != "none"
        if frozen:
            rate = s.learning_rate or FROZEN_RATE
            rates = {name: rate for name, _ in self.net.named_parameters()}
        else:
            tags = self.task.kind == "tagging" and s.protocol != "published"
            peak, decay = loop.default_rates(self.reader.width, tags=tags)
            rates = learning_rates(
                self.net,
                peak=s.learning_rate or peak,
                decay=s.layerwise_lr_decay or decay,
                skip=self.protocol.skip_level,
            )
            if s.torch_compile:  # batches differ in length, so one graph serves all of them
                self.net.encoder.compile(dynamic=True)
        expected = expected_updates(self.task, s)
        losses: list[Tensor] = []
        worse = 0

        def after(step: int, epoch: float, loss: Tensor) -> bool:
            nonlocal worse
            losses.append(loss)
            note, goes_on = "", True
            if step % self.every == 0 or step == self.total:
                point = self._evaluate(step, epoch, float(torch.stack(losses).mean()))
                losses.clear()
                worse = len(self.points) - 1 - self.best
                goes_on = not (self.selection and worse >= (s.early_stopping_patience or math.inf))
                name, value = next(iter(point.metrics.items()))
                note = f"{self.task.name} seed {self.seed}: loss {point.loss:.3f}, "
                note += f"{name} {value:.3f}"
            if progress is not None:
                left = 0 if goes_on else self.total - step
                progress.advance(expected / self.total * (1 + left), note)
            return goes_on

        torch.manual_seed(self.seed + DROPOUT_SEED)
        loop.train(
            self.net,
            self.problem,
            self.rows,
            rates=rates,
            protocol=self.protocol,
            batch_size=s.per_device_train_batch_size,
            epochs=self.epochs,
            warmup_ratio=s.warmup_ratio,
            weight_decay=s.weight_decay,
            max_grad_norm=s.max_grad_norm,
            seed=self.seed,
            after=after,
        )
        self._restore()

    def _evaluate(self, step: int, epoch: float, loss: float) -> Point:
        task, number = self.task, len(self.points)
        outputs = loop.predict(self.net, self.problem, self.held)
        scores = self.problem.score(task, task.validation, self.held, outputs)
        point = Point(step, round(epoch, 4), loss, scores)
        if self.selection:
            held = self.problem.rows(self.selection)
            found = loop.predict(self.net, self.problem, held)
            score = self.problem.score(task, self.selection, held, found)[task.metrics[0]]
            point = replace(point, selection=score)
            # Where no score is a number so far, the latest counts, as without a choice.
            if math.isnan(self.best_score) or metrics.better(
                task.metrics[0], score, self.best_score
            ):
                self.best, self.best_score = number, score
                named = self.net.named_parameters()
                self.best_weights = {n: p.detach().clone() for n, p in named if p.requires_grad}
                self.outputs = outputs
        else:
            self.best, self.outputs = number, outputs
        self.points.append(point)
        return point

    def _restore(self) -> None:
        """Gives the net the weights of the best evaluation."""
        if not self.selection:
            return
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                if name in self.best_weights:
                    parameter.copy_(self.best_weights[name])
        self.points[self.best] = replace(self.points[self.best], chosen=True)
        if math.isnan(self.best_score):
            self.notes.append(
                f"{self.task.metrics[0]} is not a number on the held-out training examples, so the "
                "last evaluation counts. Raise --selection-fraction"
            )

    def results(self) -> tuple[dict[str, float], dict[str, str]]:
        """The scores, also of further labelled sets (their names are appended to the metrics'), and
        the predictions as files."""
        task: Any = self.task
        problem = self.problem
        scores = dict(self.points[self.best].metrics)
        files = problem.files(
            f"{task.name}-validation" if isinstance(problem, Texts) else task.name,
            task,
            task.validation,
            self.held,
            self.outputs,
        )
        for name, examples in task.also:
            rows = problem.rows(examples)
            found = problem.score(task, examples, rows, loop.predict(self.net, problem, rows))
            scores |= {f"{metric}_{name}": value for metric, value in found.items()}
        for name, examples in task.test:
            rows = problem.rows(examples)
            outputs = loop.predict(self.net, problem, rows)
            files |= problem.files(name, task, examples, rows, outputs)
        return scores, files

    def save(self, folder: Path) -> None:
        reading = self.problem.reading(self.task, self.held, self.outputs)
        scale = getattr(self.problem, "scale", 1.0), getattr(self.problem, "center", 0.0)
        save(
            self.net,
            self.reader,
            self.task.name,
            folder,
            reading=reading,
            scale=scale[0],
            center=scale[1],
        )


def text_of(example: Any) -> str:
    """All words of an example."""
    match example:
        case Sentence():
            return " ".join(example.words)
        case Question():
            return f"{example.question} {example.context}"
    return f"{example.text} {example.pair or ''}"


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
        share = settings.selection_fraction or SELECTION
        classed = task.kind in ("classification", "multilabel")
        flag = "--selection-fraction"
        stay, held = parted(task.kind, examples, share, seed=seed, flag=flag, every_class=classed)
        if task.kind == "regression" and len({e.label for e in held}) == 1:
            raise UserError(
                f"task {task.name!r}: with {flag} {share:g} all held-out labels are equal. Give "
                "another share, or leave --load-best-model-at-end out"
            )
        examples = list(stay)
    both = PROTOCOLS[settings.protocol].both_orders and task.symmetric
    return in_both_orders(examples) if both else examples, held


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


def expected_updates(task: TaskData, settings: FinetuneSettings) -> int:
    """How many updates a run takes if each example is one row (long contexts give several)."""
    number = len(shown_examples(task, seed=0, settings=settings)[0])
    size = settings.per_device_train_batch_size
    epochs = epochs_of(task, settings, examples=number)
    return loop.updates_of(number, batch_size=size, epochs=epochs)
