"""What a fine-tuned model predicts, by its config.json; known before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..exporting.places import mark_of
from ..files import read_json
from .tasks import Kind

CLASSES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
}
"""The ending of a class of the library, and the class that loads it."""
PROBLEMS: dict[Kind, str] = {
    "regression": "regression",
    "multilabel": "multi_label_classification",
    "classification": "single_label_classification",
}
"""The kinds of text tasks and the names that the library has for them."""
KEY = "electrify"
"""The key in config.json of how a model reads its texts (model.Reading)."""
TRAINED = "fine-tuned"
"""The part in the mark of a model that `electrify finetune` saved."""
MOST_SHOWN = 4


def class_ending(kind: Kind) -> str:
    """The ending of the library's class for a kind of task."""
    return {"tagging": "ForTokenClassification", "answering": "ForQuestionAnswering"}.get(
        kind, "ForSequenceClassification"
    )


def kept(model: str) -> str:
    """The model itself where `model` is an output folder of `electrify finetune --save-model` that
    holds one; anything else stays what it is. Raises UserError if it holds several or none."""
    folder = Path(model)
    if (folder / "config.json").exists() or not (folder / "scores.jsonl").is_file():
        return model
    found = sorted(path.parent for path in folder.glob("models/*/config.json"))
    if not found:
        raise UserError(f"{model} holds scores and no model. Rerun finetune with --save-model")
    if len(found) > 1:
        names = ", ".join(str(path) for path in found[:MOST_SHOWN])
        names += ", ..." * (len(found) > MOST_SHOWN)
        raise UserError(f"{model} holds {len(found)} models. Name one: {names}")
    return str(found[0])


def kind_in(model: str) -> Kind | None:
    """What the model of a folder predicts; None for an id of the Hub. Raises UserError for a model
    that was not fine-tuned."""
    folder = Path(model)
    return kind_of(model, read_json(folder / "config.json")) if folder.is_dir() else None


def pairs_in(model: str) -> bool | None:
    """Whether the model of a folder was trained on pairs of texts; None if it does not say."""
    noted = read_json(Path(model) / "config.json").get(KEY)
    return noted.get("pairs") if isinstance(noted, dict) else None


def kind_of(model: str, config: Mapping[str, Any]) -> Kind:
    """What a model with this configuration predicts. Raises UserError for one that was not
    fine-tuned."""
    match _ending_in(model, config):
        case "ForTokenClassification":
            return "tagging"
        case "ForQuestionAnswering":
            return "answering"
    by_name: dict[Any, Kind] = {name: kind for kind, name in PROBLEMS.items()}
    if config.get("problem_type") in by_name:
        return by_name[config["problem_type"]]
    labels = config.get("id2label")
    number = len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)
    return "regression" if number == 1 else "classification"


def _ending_in(model: str, config: Mapping[str, Any]) -> str:
    """One of CLASSES. Raises UserError if the configuration names another class, or if the folder's
    mark says that it is a network of a run: some discriminators have the class for tags."""
    named = config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    found = next((ending for ending in CLASSES if name.endswith(ending)), None)
    part = mark_of(model).get("part", TRAINED)
    if part == TRAINED and found is not None:
        return found
    what = f"the {part} of a run" if part != TRAINED else name or "a model without a head"
    raise UserError(
        f"{model} is {what}. Predictions need a fine-tuned model, as `electrify finetune "
        "--save-model` saves it"
    )
