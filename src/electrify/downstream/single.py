"""One fine-tuning run: (task, encoder folder, seed) -> scores.

The score of a run is that of its last update: choosing the best evaluation would train on the
validation set.
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

from ..config.finetune_settings import FinetuneSettings
from ..config.protocol import PUBLISHED_DROPOUT
from ..errors import UserError
from ..progress import Progress
from ..train.allocator import keep_memory
from ..train.device import peak_memory_bytes
from . import loop
from .encoder import Loaded, load
from .examples import Example
from .problems.answering import Answering
from .problems.frozen import FrozenTagging
from .problems.problem import Answers, HeldOut, Problem
from .problems.tagging import Tagging
from .problems.texts import Texts
from .saving import save
from .tasks import MAX_SEQ_LENGTH, TaskData

_DROPOUT_SEED = (
    1 << 32
)  # added to a run's seed, so that dropout does not depend on how many numbers the loading took
# At most, where the user does not say: ten rounds over a validation set larger than the training
# set would be half of the time.
_EVALUATIONS = 5
FROZEN_EPOCHS, FROZEN_RATE = 20.0, 2e-3  # a head alone learns slower and takes a higher rate
DOC_STRIDE, N_BEST, BEAM, LONGEST_ANSWER = (
    128,
    20,
    20,
    30,
)  # ELECTRA's of SQuAD (finetune/configure)


@dataclass(frozen=True)
class Point:
    """One evaluation: updates and epochs done, mean training loss since the last evaluation,
    validation metrics."""

    step: int
    epoch: float
    loss: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """One fine-tuning run: the metrics after the last update (between -1 and 1), and how it got
    there."""

    scores: dict[str, float]
    curve: tuple[Point, ...]
    train_examples: int
    updates: int
    seconds: float
    parameters: int = 0
    """Numbers in the encoder and its head."""
    peak_memory_bytes: int = 0
    """The most memory so far: allocated on a GPU, of the whole process on a CPU, runs before this
    one included."""
    files: dict[str, str] = field(default_factory=dict)
    """Answers as files, name to content: of test sets, of tagging and of question answering."""

    def record(self) -> dict[str, Any]:
        """What scores.jsonl keeps: all but the files, which stand beside it."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "files"}


def finetune_one(
    model: str,
    task: TaskData,
    *,
    seed: int,
    settings: FinetuneSettings,
    progress: Progress | None = None,
    save_to: Path | None = None,
    top: Path | None = None,
) -> Outcome:
    """Fine-tune an encoder on a task once. A pure function of its arguments on one machine; torch's
    own generator is left as it was.

    model: folder, Hub id, or `random:` and one of them. save_to: write the fine-tuned model there
    as a Hugging Face folder; it lies in `top`, which no link may lead out of. progress: advanced by
    the updates that `updates_of` foretells. Raises UserError.
    """
    began = time.monotonic()
    settings = settings.filled()
    device = loop.device_named(settings.device)
    keep_memory()
    bf16 = loop.computes_in_bf16(settings.bf16, device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        loaded = load(model, device=device, dropout=settings.encoder_dropout)
        problem = problem_of(task, loaded, settings=settings, device=device, bf16=bf16, name=model)
        torch.manual_seed(seed)  # the same head for every encoder of a width
        net = problem.model(
            dropout=_dropout(task, loaded, settings), std=_std(loaded, settings)
        ).to(device)
        examples = training_examples(task, seed=seed, settings=settings)
        data = problem.training(examples)
        epochs = epochs_of(task, settings)
        total = loop.updates_of(
            len(data.lengths_N), batch_size=settings.per_device_train_batch_size, epochs=epochs
        )
        curve = _Curve(
            net,
            problem,
            problem.held_out(task.validation),
            bf16=bf16,
            progress=progress,
            title=f"{task.name} seed {seed}",
            total=total,
        )
        curve.every = settings.eval_steps or -(
            -len(data.lengths_N) // settings.per_device_train_batch_size
        ) * -(-math.ceil(epochs) // _EVALUATIONS)
        curve.share = updates_of(task, settings) / total
        torch.manual_seed(seed + _DROPOUT_SEED)
        rates = _rates(net, loaded, settings)
        loop.train(
            _compiled(net, settings),
            data,
            rates=rates,
            settings=settings,
            epochs=epochs,
            seed=seed,
            bf16=bf16,
            after=curve.after,
        )
        scores, files = curve.points[-1].metrics | curve.further(task), curve.files(task)
        if save_to is not None:
            save(net, loaded, task, save_to, problem=problem, top=top)
        spent = (
            time.monotonic() - began,
            sum(p.numel() for p in net.parameters()),
            peak_memory_bytes(device),
        )
    return Outcome(scores, tuple(curve.points), len(examples), total, *spent, files)


def _dropout(task: TaskData, loaded: Loaded, settings: FinetuneSettings) -> float:
    """Before the head."""
    if settings.dropout is not None:
        return settings.dropout
    return PUBLISHED_DROPOUT[task.kind] if settings.protocol == "published" else loaded.dropout


def _std(loaded: Loaded, settings: FinetuneSettings) -> float | None:
    """Of the head's first weights; none is Glorot's."""
    return (
        None
        if settings.head_init == "glorot"
        else getattr(loaded.encoder.config, "initializer_range", None) or 0.02
    )


def problem_of(
    task: TaskData,
    loaded: Loaded,
    *,
    settings: FinetuneSettings,
    device: torch.device,
    bf16: bool,
    name: str,
) -> Problem:
    """The task made ready for an encoder. Raises UserError where it reads fewer tokens than were
    asked for."""
    settings = settings.filled()
    length = settings.max_seq_length or min(MAX_SEQ_LENGTH[task.kind], loaded.positions)
    if length > loaded.positions:
        raise UserError(
            f"{name}: reads {loaded.positions} tokens at most; give --max-seq-length "
            f"{loaded.positions}"
        )
    common: dict[str, Any] = {"max_seq_length": length, "device": device}
    match task.kind:
        case "tagging" if settings.frozen_encoder != "none":
            return FrozenTagging(
                task,
                loaded,
                **common,
                layers=settings.frozen_encoder,
                head=settings.tagging_head,
                bf16=bf16,
            )
        case "tagging":
            return Tagging(task, loaded, **common)
        case "answering":
            return Answering(
                task, loaded, **common, doc_stride=settings.doc_stride or DOC_STRIDE, head=str(settings.answer_head),
                n_best=settings.n_best_size or N_BEST, beam=BEAM, longest_answer=settings.max_answer_length or LONGEST_ANSWER,
            )  # fmt: skip
        case _:
            return Texts(
                task, loaded, **common, regression_targets=str(settings.regression_targets)
            )


def training_examples(task: TaskData, *, seed: int, settings: FinetuneSettings) -> list[Any]:
    """The training examples of a seed: all, or `max_train_samples` drawn by the seed; pairs of a
    symmetric task in both orders on request."""
    examples: list[Any] = list(task.train)
    if settings.max_train_samples is not None and settings.max_train_samples < len(examples):
        chosen = loop.shuffled(len(examples), seed, loop.SUBSET)[: settings.max_train_samples]
        examples = [examples[int(i)] for i in chosen]
    if settings.filled().double_unordered and task.symmetric:
        examples += [Example(e.pair or "", e.text, e.label) for e in examples]
    return examples


def epochs_of(task: TaskData, settings: FinetuneSettings) -> float:
    """How often the training examples are shown."""
    return settings.num_train_epochs or (
        task.epochs if settings.frozen_encoder == "none" else FROZEN_EPOCHS
    )


def updates_of(task: TaskData, settings: FinetuneSettings) -> int:
    """How many updates a run takes, were each example one row (long contexts are several)."""
    n = len(training_examples(task, seed=0, settings=settings))
    return loop.updates_of(
        n, batch_size=settings.per_device_train_batch_size, epochs=epochs_of(task, settings)
    )


def _rates(net: torch.nn.Module, loaded: Loaded, settings: FinetuneSettings) -> dict[str, float]:
    named = dict(net.named_parameters())
    if settings.frozen_encoder != "none":
        return dict.fromkeys(named, settings.learning_rate or FROZEN_RATE)
    return loop.rates_for(named, settings, width=loaded.width)


def _compiled(net: Any, settings: FinetuneSettings) -> Any:
    """The encoder compiled in place: batches differ in length, so its graph is one for all of them.
    """
    if settings.torch_compile:
        net.encoder.compile(dynamic=True)
    return net


class _Curve:
    """Evaluates where it is due and keeps the points."""

    def __init__(
        self,
        model: Any,
        problem: Problem,
        held: HeldOut,
        *,
        bf16: bool,
        progress: Progress | None,
        title: str,
        total: int,
    ) -> None:
        self.model, self.problem, self.held, self.bf16, self.progress, self.title = (
            model,
            problem,
            held,
            bf16,
            progress,
            title,
        )
        self.every, self.points, self.total, self.share = 1, list[Point](), total, 1.0
        self._losses: list[Tensor] = []
        self._last: Answers = {}

    def after(self, step: int, epoch: float, loss: Tensor) -> None:
        self._losses.append(loss)
        note = ""
        if step % self.every == 0 or step == self.total:
            mean = float(torch.stack(self._losses).mean())
            self._losses.clear()
            self._last = self.answers(self.held)
            self.points.append(
                Point(step, round(epoch, 4), mean, self.problem.score(self.held, self._last))
            )
            name, value = next(iter(self.points[-1].metrics.items()))
            note = f"{self.title}: loss {mean:.3f}, {name} {value:.3f}"
        if self.progress is not None:
            self.progress.advance(self.share, note)

    def answers(self, held: HeldOut) -> Answers:
        found = loop.predict(self.model, held.data, bf16=self.bf16)
        if not all(bool(x.isfinite().all()) for x in found.values()):
            raise UserError(
                f"{self.title}: the model's outputs are no numbers any more; lower --learning-rate"
            )
        return found

    def further(self, task: TaskData) -> dict[str, float]:
        """The scores of further labelled sets, their names behind the metrics'."""
        sets = ((name, self.problem.held_out(examples)) for name, examples in task.also)
        return {
            f"{metric}_{name}": value
            for name, held in sets
            for metric, value in self.problem.score(held, self.answers(held)).items()
        }

    def files(self, task: TaskData) -> dict[str, str]:
        """The answers to test sets; of tagging and question answering those to the validation
        examples."""
        found = (
            self.problem.files(self.held, self._last, task.name)
            if task.kind in ("tagging", "answering")
            else {}
        )
        for name, examples in task.test:
            held = self.problem.held_out(examples)
            found |= self.problem.files(held, self.answers(held), name)
        return found
