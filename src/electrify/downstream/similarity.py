"""How similar two texts are, without any training: the cosine of the means of their states."""

from __future__ import annotations

import torch

from ..errors import UserError
from .encoder import load
from .examples import Example
from .loop import device_named
from .metrics import spearman
from .problems.frozen_texts import FrozenTexts
from .tasks import TaskData

MAX_SEQ_LENGTH = 128


def cosine_score(task: TaskData, model: str, *, device: str = "auto") -> float:
    """Spearman's correlation of the cosines with the values of the validation pairs. Raises
    UserError for a task without pairs or without values."""
    if task.kind != "regression":
        raise UserError(f"{task.name} has no values with which cosines could be compared")
    at = device_named(device)
    loaded = load(model, device=at)
    length = min(MAX_SEQ_LENGTH, loaded.positions)
    texts = FrozenTexts(task, loaded, max_seq_length=length, device=at, layers="last", bf16=False)
    if not texts.pairs:
        raise UserError(f"{task.name} has no pairs of texts whose cosines could be taken")
    examples = [e for e in task.validation if isinstance(e, Example)]
    u_ND, v_ND = texts.pair_means(examples)
    cosines_N = torch.nn.functional.cosine_similarity(u_ND, v_ND)
    return spearman(
        [float(e.label) for e in examples if isinstance(e.label, int | float)], cosines_N.tolist()
    )
