"""Recognises, by its mark, a folder that electrify made: a run, a prepared corpus, a model, results
of fine-tuning or of a study. Its content is not text for a corpus, although vocabularies, reports
and cards have the endings of texts. Scores of BLiMP are single files in any folder of the user."""

from __future__ import annotations

import os
from pathlib import Path

from ..config.compare import STUDY, STUDY_MARK
from ..config.pretrain import RUN_MARK
from ..oldfiles.folders import KEY, MARK, SCORES, SCORES_PAGE, own_bytes, own_object
from ..oldfiles.reading import UnreadableError
from ..oldfiles.run_folder import CONFIG, TOKENIZER
from ..oldfiles.seals import SEAL
from .manifest import MANIFEST
from .placed import unfinished_state

MARKS = (MARK, "finetune.json")
_BEGINNINGS = {CONFIG: RUN_MARK, STUDY: STUDY_MARK}


def is_made(folder: Path) -> bool:
    """Whether one of our marks is directly in the folder, or, for a tokenizer's folder, in the one
    above it."""
    if folder.name == TOKENIZER:
        return _is_marked(folder) or _is_marked(folder.absolute().parent)
    return _is_marked(folder)


def _is_marked(folder: Path) -> bool:
    try:
        names = {entry.name for entry in os.scandir(folder)}
        return (
            any(
                name in names and (own_bytes(folder / name) or b"").startswith(begins.encode())
                for name, begins in _BEGINNINGS.items()
            )
            or any(name in names and KEY in (own_object(folder / name) or {}) for name in MARKS)
            or (MANIFEST in names and SEAL in (own_object(folder / MANIFEST) or {}))
            or unfinished_state(folder) is not None
        )
    except (OSError, UnreadableError):
        return False


def is_result(path: Path) -> bool:
    """Whether the file is one of the two in which `evaluate` writes its scores."""
    if path.name not in (SCORES, SCORES_PAGE):
        return False
    try:
        return KEY in (own_object(path.with_name(SCORES)) or {})
    except UnreadableError:
        return False
