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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..progress import Progress
from ..train.machine import keep_memory, peak_memory_bytes
from . import loop, metrics
from .answering import Answering
from .encoding import Truncation, text_of
from .frozen import FrozenTagging, FrozenTexts
from .model import (
    Reader,
    computing_in_bf16,
    default_rates,
    last_layer,
    learning_rates,
    load_encoder,
    save,
    unknown_note,
)
from .options import SELECTION, FinetuneSettings
from .published import ENCODER_DROPOUT, ElectraQuestions, PublishedTexts, published_head
from .split import parted
from .tagging import Tagging
from .tasks import MAX_SEQ_LENGTH, Example, TaskData
from .texts import Texts, class_weights

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
PROBLEMS: dict[tuple[str, str], Any] = {
    ("texts", "electrify"): Texts,
    ("texts", "published"): PublishedTexts,
    ("texts", "frozen"): FrozenTexts,
    ("tagging", "electrify"): Tagging,
    ("tagging", "published"): Tagging,
    ("tagging", "frozen"): FrozenTagging,
    ("answering", "electrify"): Answering,
    ("answering", "published"): ElectraQuestions,
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
        torch.manual_seed(seed)
        published = settings.protocol == "published"
        reader = load_encoder(model, device=device, dropout=ENCODER_DROPOUT if published else None)
        bf16 = loop.computes_in_bf16(settings.bf16, device)
        problem = problem_of(task, reader, settings, device, bf16=bf16)
        torch.manual_seed(seed)  # the same head for every encoder of a class and width
        net = problem.net(dropout=settings.dropout)
        if save_to is not None and task.kind == "regression":
            last_layer(net.library)  # before the hours of training
        if settings.frozen_encoder == "none" and bf16:
            computing_in_bf16(net.encoder)
        if settings.torch_compile:  # batches differ in length, so one graph serves all of them
            net.encoder.compile(dynamic=True)
        shown, selection = shown_examples(task, seed=seed, settings=settings)
        rows = problem.training(shown)
        notes = notes_on(task, problem, shown, rows)
        torch.manual_seed(seed + DROPOUT_SEED)
        how = {"seed": seed, "settings": settings, "progress": progress}
        points, kept = _train(net, problem, task, rows, selection, **how)
        if selection and math.isnan(kept.score):
            notes.append(
                f"{task.metrics[0]} is not a number on the held-out training examples, so the "
                "last evaluation counts. Raise --selection-fraction"
            )
        scores, files = _answers(net, problem, task, kept)
        outcome = Outcome(
            points[kept.point].metrics | scores,
            tuple(points),
            len(shown),
            points[-1].step,
            time.monotonic() - began,
            sum(p.numel() for p in net.parameters()),
            peak_memory_bytes(device),
            files,
            tuple(notes),
        )
        finished(outcome)
        if save_to is not None:
            reading = problem.reading(task, kept.rows, kept.outputs)
            scaled = (problem.scale, problem.center) if task.kind == "regression" else (1.0, 0.0)
            save(net, reader, task.name, save_to, reading=reading, scaled=scaled)
    return outcome


def problem_of(
    task: TaskData, reader: Reader, settings: FinetuneSettings, device: torch.device, *, bf16: bool
) -> Any:
    """The task made ready for an encoder."""
    group = task.kind if task.kind in ("tagging", "answering") else "texts"
    way = "frozen" if settings.frozen_encoder != "none" else settings.protocol
    default = task.max_seq_length or MAX_SEQ_LENGTH[task.kind]
    how: dict[str, Any] = {"max_seq_length": reader.fitting(settings.max_seq_length, default)}
    if group == "answering":
        wanted = settings.doc_stride, settings.n_best_size, settings.max_answer_length
        names = "doc_stride", "n_best", "longest_answer"
        how |= {name: x for name, x in zip(names, wanted, strict=True) if x is not None}
        questions: Any = (*task.train, *task.validation)
        how["answerless"] = not all(q.answers for q in questions)
    elif settings.class_weights == "balanced" and task.kind != "regression":
        how["weights"] = class_weights(task)
    if way == "published":
        how["head"] = published_head
        if group == "texts":
            how["value_range"] = task.value_range
        if group == "tagging":
            how["first_piece"] = True
    if way == "frozen":
        pairs = isinstance(task.train[0], Example) and task.train[0].pair is not None
        how |= {"layers": settings.frozen_encoder, "bf16": bf16, "pairs": pairs}
    return PROBLEMS[group, way](reader, task.kind, task.labels, device=device, **how)


@dataclass
class _Kept:
    """The evaluation that counts: its number, and the outputs of the validation rows. score,
    weights: of a choice among evaluations."""

    point: int
    rows: Any
    outputs: loop.Outputs
    score: float = math.nan
    weights: dict[str, Tensor] = field(default_factory=dict)


def _train(
    net: Any,
    problem: Any,
    task: TaskData,
    rows: Any,
    selection: tuple[Any, ...],
    *,
    seed: int,
    settings: FinetuneSettings,
    progress: Progress | None,
) -> tuple[list[Point], _Kept]:
    """All updates and evaluations of a run. The net has the weights of the one that counts then.
    selection: the examples that choose it."""
    held = problem.rows(task.validation)
    choosing = problem.rows(selection) if selection else None
    number, size = len(rows.lengths_N), settings.per_device_train_batch_size
    epochs = epochs_of(task, settings, examples=number)
    total = loop.updates_of(number, batch_size=size, epochs=epochs)
    rounds = -(-math.ceil(epochs) // EVALUATIONS)
    every = settings.eval_steps or math.ceil(number / size) * rounds
    expected = expected_updates(task, settings)
    points, losses = list[Point](), list[Tensor]()
    kept = _Kept(-1, held, {})

    def evaluate(step: int, epoch: float) -> Point:
        nonlocal kept
        outputs = loop.predict(net, problem, held)
        scores = problem.score(task, task.validation, held, outputs)
        point = Point(step, round(epoch, 4), float(torch.stack(losses).mean()), scores)
        losses.clear()
        if choosing is None:
            kept = _Kept(len(points), held, outputs)
            return point
        found = loop.predict(net, problem, choosing)
        score = problem.score(task, selection, choosing, found)[task.metrics[0]]
        # Where no score is a number so far, the latest counts, as without a choice.
        if math.isnan(kept.score) or metrics.better(task.metrics[0], score, kept.score):
            named = net.named_parameters()
            weights = {n: p.detach().clone() for n, p in named if p.requires_grad}
            kept = _Kept(len(points), held, outputs, score, weights)
        return replace(point, selection=score)

    def after(step: int, epoch: float, loss: Tensor) -> bool:
        losses.append(loss)
        note, goes_on = "", True
        if step % every == 0 or step == total:
            points.append(evaluate(step, epoch))
            patience = settings.early_stopping_patience or math.inf
            goes_on = choosing is None or len(points) - 1 - kept.point < patience
            name, value = next(iter(points[-1].metrics.items()))
            note = f"{task.name} seed {seed}: loss {points[-1].loss:.3f}, {name} {value:.3f}"
        if progress is not None:
            left = 0 if goes_on else total - step
            progress.advance(expected / total * (1 + left), note)
        return goes_on

    rates = rates_of(net, problem.reader, task, settings)
    loop.train(net, problem, rows, settings, rates=rates, epochs=epochs, seed=seed, after=after)
    if choosing is not None:
        net.load_state_dict(kept.weights, strict=False)
        points[kept.point] = replace(points[kept.point], chosen=True)
    return points, kept


def rates_of(
    net: Any, reader: Reader, task: TaskData, settings: FinetuneSettings
) -> dict[str, float]:
    """The peak learning rate of every parameter that is trained."""
    if settings.frozen_encoder != "none":
        rate = settings.learning_rate or FROZEN_RATE
        return {name: rate for name, _ in net.named_parameters()}
    tags = task.kind == "tagging" and settings.protocol != "published"
    peak, decay = default_rates(reader.width, tags=tags)
    return learning_rates(
        net,
        peak=settings.learning_rate or peak,
        decay=settings.layerwise_lr_decay or decay,
        skip=loop.PROTOCOLS[settings.protocol].skip_level,
    )


def _answers(
    net: Any, problem: Any, task: TaskData, kept: _Kept
) -> tuple[dict[str, float], dict[str, str]]:
    """The scores of further labelled sets (their names are appended to the metrics'), and the
    predictions of all sets as files."""
    files = problem.files(task.name, task, task.validation, kept.rows, kept.outputs)
    scores = {}
    for name, examples in task.also:
        rows = problem.rows(examples)
        found = problem.score(task, examples, rows, loop.predict(net, problem, rows))
        scores |= {f"{metric}_{name}": value for metric, value in found.items()}
    for name, examples in task.test:
        rows = problem.rows(examples)
        files |= problem.files(name, task, examples, rows, loop.predict(net, problem, rows))
    return scores, files


def notes_on(task: TaskData, problem: Any, shown: list[Any], rows: Any) -> list[str]:
    """What a reader of the scores must know of the training texts: that they were truncated, or
    that the tokenizer does not know their words."""
    notes = []
    if isinstance(problem, Texts):
        cut = Truncation(problem.reader, problem.max_seq_length)
        lengths = rows.lengths_N.tolist()
        if isinstance(problem, FrozenTexts):  # which reads the texts of a pair one by one
            shown = [Example(t) for e in shown for t in (e.text, e.pair) if t is not None]
            lengths = [cut.length] * len(shown)
        cut.add(shown, lengths)
        notes += [f"training: {cut.text()}"] * bool(cut.truncated)
    unknown = unknown_note(problem.reader, map(text_of, task.train))
    return notes + [unknown.removeprefix("warning: ")] * bool(unknown)


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
    if loop.PROTOCOLS[settings.protocol].both_orders and task.symmetric:
        examples += [replace(e, text=e.pair or "", pair=e.text) for e in examples]
    return examples, held


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
