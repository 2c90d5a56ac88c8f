"""Recognises, by its mark, a folder that electrify made: a run, a prepared corpus, a model, results
of fine-tuning or of a study. What lies in it is not text of a corpus, though vocabularies, reports
and cards have the endings of texts."""

from __future__ import annotations

import os
from pathlib import Path

from ..config.compare import STUDY, STUDY_MARK
from ..config.pretrain import RUN_MARK
from ..files.folders import KEY, MARK, own_bytes, own_object
from ..files.reading import UnreadableError
from ..files.seals import SEAL
from .manifest import MANIFEST
from .placed import unfinished_state

MARKS = (MARK, "finetune.json", "blimp.json")
_BEGINNINGS = {"config.yaml": RUN_MARK, STUDY: STUDY_MARK}


def is_made(folder: Path) -> bool:
    """Whether one of our marks is right in the folder."""
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
