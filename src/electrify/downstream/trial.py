"""A trial before the first update: every model on a few examples of every task. A model that is
broken, or that needs inputs that no text gives, is found now and not after hours of training
another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import Unfinished, UserError
from . import loop
from .encoder import Loaded, load
from .one_run import problem_of
from .options import FinetuneSettings
from .tasks import TaskData

_EXAMPLES = 2


def width_of(
    model: str, tasks: list[TaskData], settings: FinetuneSettings, device: torch.device
) -> int:
    """The width of a model. Raises UserError if it is broken, or does not suit every task."""
    with _one_sentence(f"{model} cannot be fine-tuned here"):
        loaded = load(model, device=device)
        width = loaded.width
    cuda = [device] if device.type == "cuda" else []
    for task in tasks:
        with (
            torch.random.fork_rng(devices=cuda),
            _one_sentence(f"{model} cannot be fine-tuned here: its forward pass failed with"),
        ):
            _try(model, task, loaded, settings, device)
    return width


def _try(
    model: str, task: TaskData, loaded: Loaded, settings: FinetuneSettings, device: torch.device
) -> None:
    """The loss and the answers of a few examples."""
    bf16 = loop.computes_in_bf16(settings.bf16, device)
    problem = problem_of(task, loaded, settings=settings, device=device, bf16=bf16, name=model)
    net = problem.model(dropout=0.0, std=None).to(device)
    few = task.train[:_EXAMPLES]
    # Training leaves out examples that nothing can be learned from, which may be all of these.
    answering = task.kind == "answering"
    data = problem.held_out(few).data if answering else problem.training(few)
    batch = data.batch(torch.arange(min(_EXAMPLES, len(data.lengths_N))))
    for training in (True, False):
        net.train(training)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            (net.loss if training else net.answers)(batch)


@contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    """What somebody's model raises, which may be anything, as a UserError."""
    try:
        yield
    except (UserError, Unfinished, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as e:
        said = " ".join(str(e).split())[:200]
        raise UserError(f"{what} {type(e).__name__}" + f": {said}" * bool(said)) from e
