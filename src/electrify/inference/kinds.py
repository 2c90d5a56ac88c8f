"""What a fine-tuned model predicts, by its config.json; known before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..downstream.tasks import Kind
from ..errors import UserError
from ..export.places import mark_of
from ..files import read_json

CLASSES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
}
"""The ending of a class of the library, and the class that loads it."""
MOST_SHOWN = 4
_NOTED = "electrify"
"""The key of what fine-tuning has noted in config.json (downstream/reading.py, which is heavy)."""
_TRAINED = "fine-tuned"
"""The part in the mark of a model that `electrify finetune` saved."""
_PROBLEMS: dict[str, Kind] = {
    "regression": "regression",
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
}


def kept(model: str) -> str:
    """The model itself where `model` is an output folder of `electrify finetune --save-model` that
    holds one; anything else stays what it is. Raises UserError if it holds several or none."""
    folder = Path(model)
    if (folder / "config.json").exists() or not (folder / "scores.jsonl").is_file():
        return model
    found = sorted(path.parent for path in folder.glob("models/*/config.json"))
    if not found:
        raise UserError(
            f"{model} holds scores and no model; repeat the fine-tuning with --save-model"
        )
    if len(found) > 1:
        names = ", ".join(str(path) for path in found[:MOST_SHOWN])
        names += " ..." * (len(found) > MOST_SHOWN)
        raise UserError(f"{model} holds {len(found)} models; name one of {names}")
    return str(found[0])


def kind_in(model: str) -> Kind | None:
    """What the model of a folder predicts; None for an id of the Hub. Raises UserError for a model
    that was not fine-tuned."""
    folder = Path(model)
    if not folder.is_dir():
        return None
    return kind_of(model, read_json(folder / "config.json"))


def pairs_in(model: str) -> bool | None:
    """Whether the model of a folder was trained on pairs of texts; None if it does not say."""
    folder = Path(model)
    noted = read_json(folder / "config.json").get(_NOTED)
    pairs = noted.get("pairs") if isinstance(noted, dict) else None
    return pairs if isinstance(pairs, bool) else None


def kind_of(model: str, config: Mapping[str, Any]) -> Kind:
    """What a model with this configuration predicts. Raises UserError for one that was not
    fine-tuned."""
    match ending_in(model, config):
        case "ForTokenClassification":
            return "tagging"
        case "ForQuestionAnswering":
            return "answering"
    known = _PROBLEMS.get(str(config.get("problem_type")))
    if known is not None:
        return known
    labels = config.get("id2label")
    number = len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)
    return "regression" if number == 1 else "classification"


def ending_in(model: str, config: Mapping[str, Any]) -> str:
    """One of CLASSES. Raises UserError if the configuration names another class, or if the folder's
    mark says that it is a network of a run: some discriminators have the class for tags."""
    named = config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    found = next((ending for ending in CLASSES if name.endswith(ending)), None)
    part = mark_of(model).get("part", _TRAINED)
    if part != _TRAINED:
        what = f"is the {part} of a run"
    elif found is not None:
        return found
    else:
        what = f"is a {name}" if name else "does not say what it predicts"
    raise UserError(
        f"{model}: the model {what}; predictions need a fine-tuned one "
        f"({', '.join(CLASSES)}), as `electrify finetune --save-model` keeps it"
    )
