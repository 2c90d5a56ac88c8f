"""What kind of folder a folder is, judged by the names in it. Imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path

from ..config.compare import STUDY
from ..errors import UserError
from ..oldfiles.lock import LOCK
from ..oldfiles.reading import UnreadableError
from ..oldfiles.run_folder import CONFIG, FACTS, METRICS, any_checkpoint, must_not_be_in_first_stage
from ..text.manifest import MANIFEST
from ..text.placed import UNFINISHED, unfinished_state
from .findings import Kind


def kind_of(path: Path) -> Kind:
    """The kind, judged by the folder's content, complete or not. Raises UserError if it is none of
    ours."""
    if not path.exists():
        raise UserError(f"{path}: no such folder")
    if not path.is_dir():
        raise UserError(f"{path} is a file; name the folder that it is in")
    try:
        names = {p.name for p in path.iterdir()}
    except OSError as e:
        raise UserError(f"{path} cannot be read ({e.strerror})") from e
    if "state.json" in names and any(n.endswith(".safetensors") for n in names):
        raise UserError(f"{path} is a checkpoint of a run; name the run's folder, {path.parent}")
    must_not_be_in_first_stage(path)
    # Another program's checkpoints may lie in the folder of its model.
    numbered = any_checkpoint(names) and "config.json" not in names
    if numbered or names & {CONFIG, FACTS, METRICS}:
        return "RUN"
    if (
        names & {MANIFEST, "unigram.npy"}
        or _is_begun(path, names)
        or any(n.startswith(("tokens-", "documents-")) for n in names)
    ):
        return "DATA"
    weights = (path / n for n in names if n.startswith(("model", "pytorch_model")))
    if "config.json" in names or not all(map(os.path.isdir, weights)):
        return "MODEL"
    _must_not_hold_others(path, names)
    if names <= {LOCK}:
        raise UserError(
            f"{path} is empty: nothing has been made there, or a command ended before its first "
            "file; run that command again"
        )
    raise UserError(
        f"{path} is neither a prepared corpus nor a run nor a Hugging Face model: it has no "
        "manifest.json, config.yaml or config.json"
    )


def _must_not_hold_others(path: Path, names: set[str]) -> None:
    """Raises UserError for a folder of `finetune` or of `compare`, naming what can be examined in
    it, and for a tokenizer."""
    if names & {"tokenizer.json", "vocab.txt"}:
        raise UserError(
            f"{path} holds a tokenizer only; name the folder of a corpus, a run or a model, which "
            "is examined with its tokenizer"
        )
    if names & {"finetune.json", "scores.jsonl"}:
        what, verb, marks = "model", "finetune", "models/*/config.json"
    elif STUDY in names:
        what, verb, marks = "run", "compare", f"cells/*/*/{CONFIG}"
    else:
        return
    holds = f"{path} holds results of `electrify {verb}`"
    found = sorted(mark.parent for mark in path.glob(marks))
    if found:
        raise UserError(f"{holds}, which are not examined; name a {what} in it, such as {found[0]}")
    raise UserError(f"{holds} and no {what}; name the folder of a corpus, a run or a model")


def _is_begun(path: Path, names: set[str]) -> bool:
    """Whether `prepare` has begun here; if that cannot be read, whether it seems so."""
    try:
        return unfinished_state(path) is not None
    except UnreadableError:
        return UNFINISHED in names
