"""What the runs of the architectures have in common: eight updates of two blocks, and what
fine-tuning makes of their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small import pretrain_words

SHORT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "max_steps": 8,
    "logging_steps": 4,
    "save_steps": 8,
    "eval_steps": 4,
}
TEXTS = ["the chef ate a meal", "the", "a meal that the chef ate was a meal of the chef"]


def deberta_words(
    data: Path, folder: Path, name: str = "electra-deberta", **fields: Any
) -> list[str]:
    """The command of a short run of a tiny recipe with DeBERTa's blocks."""
    own = SHORT | {"position_buckets": 8} | fields
    return [str(w) for w in pretrain_words(data, folder, recipe=f"{name}-tiny", **own)]
