"""The files of a folder and its subfolders in sorted order, and the names that were left out, by
reason: a corpus is never shortened silently.

Links to files are followed (caches of data sets consist of them). Links to folders are not, because
two that lead back would give more paths than can be walked; the user can name such a folder as an
input.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import sha256

SHOWN = 3  # names shown for each reason in the line about what was left out

LINKED_FOLDER = "links to folders (not followed)"
NO_FILE = "links that lead nowhere, pipes or devices"
UNREADABLE_FOLDER = "folders that may not be read"
UNREADABLE = "files that may not be read"
EMPTY = "empty files"
OTHER_KIND = "files of other kinds"
ABOUT = "files about the corpus"
MADE = "folders that electrify made"
HIDDEN = "hidden"
UNMATCHED_FOLDER = "folders into which this pattern does not lead"
# Names that tell a corpus (finished or not), a run, a study, results of fine-tuning, a model.
MADE_WITH = (
    ("manifest.json", "unigram.npy"),
    ("unfinished/state.json",),
    ("config.yaml", "run.json"),
    ("study.yaml", "cells"),
    ("finetune.json",),
    ("search.json", "grid"),
    ("electrify.json",),
)


@dataclass(frozen=True)
class LeftOut:
    """A name inside a folder, and one of the reasons above."""

    name: str
    reason: str


def sentence(left_out: list[LeftOut]) -> str:
    """`left out 3; hidden: 2 (.a, .b); empty files: 1 (c.txt)`; empty if nothing was."""
    groups: dict[str, list[str]] = {}
    for one in left_out:
        groups.setdefault(one.reason, []).append(one.name)
    shown = (
        f"{reason}: {len(names)} ({', '.join(names[:SHOWN])}{' ...' * (len(names) > SHOWN)})"
        for reason, names in groups.items()
    )
    return f"left out {len(left_out)}; {'; '.join(shown)}" if left_out else ""


def files(folder: Path, left_out: list[LeftOut], *, besides: Path | None = None) -> Iterator[Path]:
    """The regular files below `folder` that may be read and are not empty. besides: a folder inside
    it that is skipped silently.

    Raises UserError if `folder` itself may not be read.
    """
    passed = besides and besides.resolve()
    waiting = _listed(folder, folder, left_out)
    while waiting:
        path = waiting.pop()
        if path.name.startswith("."):
            left_out.append(LeftOut(_inside(path, folder), HIDDEN))
        elif path.is_dir():
            if passed is not None and path.resolve() == passed:
                continue
            if path.is_symlink():
                left_out.append(LeftOut(_inside(path, folder), LINKED_FOLDER))
            elif is_made(path):
                left_out.append(LeftOut(_inside(path, folder), MADE))
            else:
                waiting += _listed(path, folder, left_out)
        elif (reason := unfit(path)) is not None:
            left_out.append(LeftOut(_inside(path, folder), reason))
        else:
            yield path


def unfit(path: Path) -> str | None:
    """Why something that is not a folder cannot hold text, whatever its name; None if it can."""
    if not path.is_file():
        return NO_FILE
    return None if os.access(path, os.R_OK) else UNREADABLE


def is_made(folder: Path) -> bool:
    """Whether electrify made the folder: its content is not text for a corpus, although
    vocabularies, reports and cards have the endings of texts."""
    return any(all((folder / name).exists() for name in names) for names in MADE_WITH)


def _listed(folder: Path, top: Path, left_out: list[LeftOut]) -> list[Path]:
    """The entries of a folder in reverse order."""
    try:
        return sorted(folder.iterdir(), reverse=True)
    except OSError as e:
        if folder == top:
            raise UserError(f"the folder {folder} cannot be read: {e.strerror or e}") from e
        left_out.append(LeftOut(_inside(folder, top), UNREADABLE_FOLDER))
        return []


def _inside(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def identity_of(folder: Path) -> dict[str, Any]:
    """bytes and sha256 of what is in the folder of a data set; 0 and "" if it is not a folder."""
    if not folder.is_dir():
        return {"bytes": 0, "sha256": ""}
    found = hashlib.sha256()
    size = 0
    try:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            digest = bytes.fromhex(sha256(path))
            found.update(os.fsencode(path.relative_to(folder)) + b"\0" + digest)
            size += path.stat().st_size
    except OSError as e:
        raise UserError(f"{folder} cannot be read: {e.strerror or e}") from e
    return {"bytes": size, "sha256": found.hexdigest()}
