"""What a name stands for, before anything heavy is loaded: a model folder, one of ours, a model of
the Hub, a run. So a typo is reported at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import need
from ..files import read_json
from ..hub import file_of, must_be_reachable
from ..methods import DISCRIMINATOR
from ..train import CONFIG

SETTINGS = "config.json"
METADATA = "electrify.json"
"""The file of our model folders that says what the model is: its part (the network of a run, or
"fine-tuned"), and of a network its objective, the meaning of its logits, its corpus and run, and an
architecture of one's own."""
SCORES = "scores.jsonl"
"""The file of the runs in a folder of `electrify finetune`."""
MOST_SHOWN = 4
RANDOM = "random:"  # before the name of a model: its shape with random weights
FROZEN = "frozen:"  # a linear probe on the model as it is


def metadata_of(name: str) -> dict[str, Any]:
    """What electrify.json says of a model, a folder or an id of the Hub whose config.json was read;
    empty if it has none. The libraries do not fetch that file, and without it energies and choices
    look like other logits."""
    folder = Path(name)
    metadata = folder / METADATA if folder.is_dir() else file_of(name, METADATA)
    return read_json(metadata) if metadata is not None and metadata.is_file() else {}


def may_be_on_hub(name: str) -> bool:
    """Whether a name that is not a folder may be an id of the Hub: not if its parent is a folder
    here, as with a mistyped folder."""
    beside_a_folder = "/" in name and Path(name).parent.is_dir()
    return not beside_a_folder and re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name) is not None


def model_in(name: str) -> str:
    """The model that a name means: the discriminator of a run, the only model of a folder of
    `electrify finetune`, otherwise the name itself. Raises UserError if a folder holds several
    fine-tuned models or none."""
    folder = Path(name)
    if (folder / CONFIG).is_file() and (folder / DISCRIMINATOR / SETTINGS).is_file():
        return str(folder / DISCRIMINATOR)
    if not (folder / SCORES).is_file():
        return name
    found = sorted(str(config.parent) for config in folder.glob("models/[!.]*/config.json"))
    need(bool(found), f"{name} holds scores and no model. Rerun finetune with --save-model")
    names = ", ".join(found[:MOST_SHOWN]) + ", ..." * (len(found) > MOST_SHOWN)
    need(len(found) == 1, f"{name} holds {len(found)} models. Name one: {names}")
    return found[0]


def check_place(path: str) -> None:
    """Raises UserError for a name that is meant as a folder of a model and is not one, and for a
    name that the Hub, asked once, does not know."""
    folder = Path(path)
    need(not folder.is_file(), f"{path}: a file, not a folder")
    if not folder.is_dir():
        need(may_be_on_hub(path), f"{path}: no such folder")
        must_be_reachable(path, "model")
        return
    inside = sorted(config.parent for config in folder.glob("*/config.json"))
    hint = f"; did you mean {inside[0]}?" if inside else ""
    need(
        (folder / SETTINGS).is_file(),
        f"{path}: the folder holds no config.json, so it is not a Hugging Face model{hint}",
    )
