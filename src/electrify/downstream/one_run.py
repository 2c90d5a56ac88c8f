"""One fine-tuning run: (task, encoder folder, seed) -> scores.

The score of a run is that of its last update: choosing the best evaluation would train on the
validation set. With load_best_model_at_end, examples held out of the training set choose one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import UserError
from ..progress import Progress
from ..train.machine import keep_memory, peak_memory_bytes
from . import loop
from .curve import Best, Curve, Point
from .encoder import Loaded, load
from .epochs import Shown, epochs_of, examples_of, updates_of
from .fingerprints import must_be_unchanged
from .heads import Finetuned
from .lengths import Cut
from .options import PUBLISHED_DROPOUT, FinetuneSettings
from .problems.answering import Answering
from .problems.frozen import FrozenTagging
from .problems.frozen_texts import FrozenTexts
from .problems.problem import Problem
from .problems.tagging import Tagging
from .problems.texts import Texts
from .reading import reading_of
from .saving import save
from .tasks import MAX_SEQ_LENGTH, TaskData

# Added to a run's seed, so that dropout does not depend on how many random numbers loading has
# used.
_DROPOUT_SEED = 1 << 32
# The maximum number of evaluations by default: ten passes over a validation set that is larger than
# the training set would take half of the time.
_EVALUATIONS = 5
# A head alone learns more slowly and needs a higher rate.
FROZEN_RATE = 2e-3
# ELECTRA's values for SQuAD (finetune/configure).
DOC_STRIDE = 128
N_BEST = 20
BEAM = 20
LONGEST_ANSWER = 30


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
    """Number of parameters in the encoder and its head."""
    peak_memory_bytes: int = 0
    """The peak of memory so far, including earlier runs: allocated on a GPU, or used by the whole
    process on a CPU."""
    files: dict[str, str] = field(default_factory=dict)
    """Answers as files, name to content: those to test sets, and to the validation examples."""
    notes: tuple[str, ...] = ()
    """What a reader of the scores must know about this run."""

    def record(self) -> dict[str, Any]:
        """The record for scores.jsonl: everything except the files, which are stored separately,
        and the notes, to which others are added."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in ("files", "notes")}


def finetune_one(
    model: str,
    task: TaskData,
    *,
    seed: int,
    settings: FinetuneSettings,
    progress: Progress | None = None,
    save_to: Path | None = None,
    hashes: Mapping[str, Any] | None = None,
    finished: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Fine-tune an encoder on a task once. A pure function of its arguments on one machine; torch's
    own generator is left as it was.

    model: folder, Hub id, or `random:` and one of them. save_to: write the fine-tuned model there
    as a Hugging Face folder. progress: advanced by the number of updates that `updates_of`
    predicts. hashes: fingerprints that the model must still have when it is loaded. finished:
    called with the outcome before the model is saved, which may fail. Raises UserError.
    """
    began = time.monotonic()
    given, settings = settings, settings.filled()  # no protocol orders the user's pairs
    device = loop.device_named(settings.device)
    keep_memory()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        ready = _made_ready(model, task, seed=seed, settings=settings, device=device)
        must_be_unchanged(model, hashes)
        shown = examples_of(task, seed=seed, settings=given)
        how: Any = {"progress": progress, "expected": updates_of(task, given)}
        curve = _trained(ready, task, shown, seed=seed, settings=settings, **how)
        scores, files = curve.chosen.metrics | curve.further(task), curve.files(task)
        size = sum(p.numel() for p in ready.net.parameters())
        spent = (time.monotonic() - began, size, peak_memory_bytes(device), files, curve.notes)
        seen = (tuple(curve.points), len(shown.examples), curve.points[-1].step)
        outcome = Outcome(scores, *seen, *spent)
        finished(outcome)
        if save_to is not None:
            _save(ready, curve, task, save_to)
    return outcome


@dataclass(frozen=True)
class _Ready:
    """Everything that a run trains."""

    loaded: Loaded
    """The encoder."""
    problem: Problem
    """The task, made ready for the encoder."""
    net: Finetuned
    """The encoder with a new head."""
    bf16: bool


def _save(ready: _Ready, curve: Curve, task: TaskData, folder: Path) -> None:
    """Writes what was trained, and how it reads."""
    reading = reading_of(ready.problem, task, threshold=curve.threshold())
    save(ready.net, ready.loaded, task, folder, problem=ready.problem, reading=reading)


def _made_ready(
    model: str, task: TaskData, *, seed: int, settings: FinetuneSettings, device: torch.device
) -> _Ready:
    bf16 = loop.computes_in_bf16(settings.bf16, device)
    torch.manual_seed(seed)
    loaded = load(model, device=device, dropout=settings.encoder_dropout)
    problem = problem_of(task, loaded, settings=settings, device=device, bf16=bf16, name=model)
    torch.manual_seed(seed)  # the same head for every encoder of a width
    net = problem.model(dropout=_dropout(task, loaded, settings), std=_std(loaded, settings))
    return _Ready(loaded, problem, net.to(device), bf16)


def _trained(
    ready: _Ready,
    task: TaskData,
    shown: Shown,
    *,
    seed: int,
    settings: FinetuneSettings,
    progress: Progress | None,
    expected: int,
) -> Curve:
    """Trains and returns the evaluations; the weights are those of the chosen one. expected: the
    updates by which `progress` is advanced."""
    data = ready.problem.training(shown.examples)
    size = settings.per_device_train_batch_size
    epochs = epochs_of(task, settings, examples=len(shown.examples))
    curve = Curve(
        ready.net,
        ready.problem,
        ready.problem.held_out(task.validation),
        bf16=ready.bf16,
        progress=progress,
        title=f"{task.name} seed {seed}",
        total=loop.updates_of(len(data.lengths_N), batch_size=size, epochs=epochs),
    )
    curve.notes = _cut(ready, shown.examples, data)
    if shown.selection:
        held = ready.problem.held_out(shown.selection)
        curve.best = Best(held, task.metrics[0], settings.early_stopping_patience)
    rounds = -(-math.ceil(epochs) // _EVALUATIONS)  # over all examples, between two evaluations
    curve.every = settings.eval_steps or -(-len(data.lengths_N) // size) * rounds
    curve.share = expected / curve.total
    torch.manual_seed(seed + _DROPOUT_SEED)
    plan = {"settings": settings, "epochs": epochs, "seed": seed, "bf16": ready.bf16}
    net = _compiled(ready.net, settings)
    rates = _rates(ready.net, ready.loaded, settings, tags=task.kind == "tagging")
    loop.train(net, data, rates=rates, after=curve.after, **plan)
    curve.finish()
    return curve


def _cut(ready: _Ready, examples: list[Any], data: Any) -> tuple[str, ...]:
    """A note on training texts that were cut, if there are any."""
    problem = ready.problem
    if not isinstance(problem, Texts):
        return ()
    cut = Cut(ready.loaded, length=problem.max_seq_length)
    if isinstance(problem, FrozenTexts):  # its rows of features do not show how long the texts are
        for side in problem.sides(examples):
            cut.add(side, [cut.length] * len(side))
    else:
        cut.add(examples, data.lengths_N.tolist())
    return (f"training: {cut.text()}",) if cut.cut else ()


def _dropout(task: TaskData, loaded: Loaded, settings: FinetuneSettings) -> float:
    """The dropout before the head."""
    if settings.dropout is not None:
        return settings.dropout
    return PUBLISHED_DROPOUT[task.kind] if settings.protocol == "published" else loaded.dropout


def _std(loaded: Loaded, settings: FinetuneSettings) -> float | None:
    """The deviation of the head's first weights; None for Glorot's."""
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
    """The task made ready for an encoder. Raises UserError if the encoder reads fewer tokens than
    were asked for."""
    settings = settings.filled()
    length = longest_of(task, loaded, settings, name)
    common: dict[str, Any] = {"max_seq_length": length, "device": device}
    if task.kind != "answering":
        common["class_weights"] = settings.class_weights
    frozen: dict[str, Any] = {"layers": settings.frozen_encoder, "bf16": bf16}
    match task.kind:
        case "tagging":
            common["word_pooling"] = settings.word_pooling
            if settings.frozen_encoder == "none":
                return Tagging(task, loaded, **common)
            return FrozenTagging(task, loaded, **common, **frozen, head=settings.tagging_head)
        case "answering":
            return Answering(
                task,
                loaded,
                **common,
                head=str(settings.answer_head),
                doc_stride=settings.doc_stride or DOC_STRIDE,
                n_best=settings.n_best_size or N_BEST,
                longest_answer=settings.max_answer_length or LONGEST_ANSWER,
                beam=BEAM,
            )
        case _:
            common["regression_targets"] = str(settings.regression_targets)
            if settings.frozen_encoder == "none":
                return Texts(task, loaded, **common)
            return FrozenTexts(task, loaded, **common, **frozen)


def longest_of(task: TaskData, loaded: Loaded, settings: FinetuneSettings, name: str) -> int:
    """The longest sequence, in tokens."""
    length = settings.max_seq_length or min(
        task.max_seq_length or MAX_SEQ_LENGTH[task.kind], loaded.positions
    )
    if length > loaded.positions:
        raise UserError(
            f"{name}: reads {loaded.positions} tokens at most; give --max-seq-length "
            f"{loaded.positions}"
        )
    return length


def _rates(
    net: torch.nn.Module, loaded: Loaded, settings: FinetuneSettings, *, tags: bool
) -> dict[str, float]:
    named = dict(net.named_parameters())
    if settings.frozen_encoder != "none":
        return dict.fromkeys(named, settings.learning_rate or FROZEN_RATE)
    return loop.rates_for(named, settings, width=loaded.width, tags=tags)


def _compiled(net: Any, settings: FinetuneSettings) -> Any:
    """Compiles the encoder in place: batches differ in length, so one graph serves all of them."""
    if settings.torch_compile:
        net.encoder.compile(dynamic=True)
    return net
