"""What a fine-tuned model predicts, by its config.json; known before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import UserError
from ..exporting.places import mark_of
from .tasks import Kind

CLASSES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
}
"""The ending of a class of the library, and the class that loads it."""
ENDINGS: dict[Kind, str] = {
    "tagging": "ForTokenClassification",
    "answering": "ForQuestionAnswering",
}
"""Of the kinds of task that are not about whole texts."""
PROBLEMS: dict[Kind, str] = {
    "regression": "regression",
    "multilabel": "multi_label_classification",
    "classification": "single_label_classification",
}
"""The kinds of text tasks and the names that the library has for them."""
KEY = "electrify"
"""The key in config.json of how a model reads its texts (Reading)."""
TRAINED = "fine-tuned"
"""The part in the mark of a model that `electrify finetune` saved."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a saved model reads its texts: what decides its answers and is not in its weights. In
    config.json under `electrify`; None if it is not known, or does not apply."""

    max_seq_length: int | None = None
    pairs: bool | None = None
    """Whether it was trained on pairs of texts."""
    doc_stride: int | None = None
    max_answer_length: int | None = None
    no_answer_threshold: float | None = None
    """The score for "no answer" above which none is given."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Reading:
        """That in the config.json of a model."""
        known = config.get(KEY) or {}
        return cls(**{f.name: known.get(f.name) for f in fields(cls)})


def class_for(kind: Kind) -> str:
    """The library's class that loads, or makes, a model for a kind of task."""
    return CLASSES[ENDINGS.get(kind, "ForSequenceClassification")]


def kind_of(model: str, config: Mapping[str, Any]) -> Kind:
    """What a model with this configuration predicts. Raises UserError for one that was not
    fine-tuned: another class, or, by the folder's mark, a network of a run: some discriminators
    have the class for tags."""
    name = str((config.get("architectures") or [""])[0])
    ending = next((ending for ending in CLASSES if name.endswith(ending)), None)
    part = mark_of(model).get("part", TRAINED)
    if part != TRAINED or ending is None:
        what = f"the {part} of a run" if part != TRAINED else name or "a model without a head"
        raise UserError(
            f"{model} is {what}. Predictions need a fine-tuned model, as `electrify finetune "
            "--save-model` saves it"
        )
    for kind, its in ENDINGS.items():
        if its == ending:
            return kind
    for kind, problem in PROBLEMS.items():
        if config.get("problem_type") == problem:
            return kind
    number = len(config.get("id2label") or range(config.get("num_labels", 2)))
    return "regression" if number == 1 else "classification"
