"""`--class-weights balanced`: rare classes count as much as frequent ones in the loss.

A class with n of N examples counts N / (classes * n), so that the weights are 1 on average over the
examples (King and Zeng 2001; scikit-learn's `balanced`).

Shape suffixes: N examples, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .examples import Example, Sentence
from .targets import several
from .tasks import TaskData


def class_weights(task: TaskData, choice: str) -> Tensor | None:
    """The weights by the training examples: [C], or, if an example may have several classes,
    [C, 2], for a class that does not apply and for one that does. None for choice `none`."""
    if choice == "none":
        return None
    examples: Any = task.train
    if task.kind == "multilabel":
        targets_NC = several(examples, classes=task.num_outputs)
        return _balanced(torch.stack([(targets_NC == 0).sum(0), (targets_NC == 1).sum(0)], -1))
    return _balanced(torch.tensor(_numbers(task, examples)).bincount(minlength=task.num_outputs))


def _numbers(task: TaskData, examples: Any) -> list[int]:
    """The class of every example, or the tag of every word."""
    if task.kind == "tagging":
        numbers = {tag: k for k, tag in enumerate(task.labels)}
        return [numbers[tag] for one in examples if isinstance(one, Sentence) for tag in one.tags]
    labels: list[Any] = [one.label for one in examples if isinstance(one, Example)]
    return list(map(int, labels))


def _balanced(counts: Tensor) -> Tensor:
    """The weights over the last dimension. Even what never occurs has a weight, which nothing
    uses."""
    counts = counts.float().clamp(min=1)
    return counts.sum(-1, keepdim=True) / (counts.shape[-1] * counts)
