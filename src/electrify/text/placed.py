"""Records which files in the folder of an unfinished corpus are ours: each is recorded with its
hash before it gets its name. All other files are left alone.

DATA/unfinished/placed    a line for each file in DATA: its SHA-256 and its name
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..oldfiles.folders import mark_of, own_bytes, own_object, remove_temporaries, sha256
from ..oldfiles.inside import must_stay_inside
from ..oldfiles.tokenizers import TOKENIZER_FILES
from ..oldfiles.whole import write_atomically
from .manifest import TOKENIZER

UNFINISHED = "unfinished"
STATE = "state.json"
KIND = "prepare"
RECORD = "placed"
_NAMES = re.compile(
    r"tokens-(train|valid)-[0-9]{5,}\.bin|documents-(train|valid)-[0-9]{5,}\.npy"
    r"|unigram\.npy|prepare\.log\.json"
)
_PART = re.compile(r"[0-9]{8,}\.(part|tmp)")
# The record's file in `unfinished`, beside the mark.
_FILES = (
    "tokenizer.done",
    "tokenizer.published",
    RECORD,
    "pydocs.jsonl",
    "pydocs.part",
    "lock",
)


def unfinished_state(folder: Path) -> dict[str, Any] | None:
    """The state that an unfinished run has recorded in the folder. None if there is no such run,
    whatever else may be called `unfinished` there.

    Earlier versions did not write a mark: their state holds options and sources, and nothing else.
    """
    path = folder / UNFINISHED / STATE
    if os.path.islink(folder / UNFINISHED):
        return None
    found = mark_of(path, KIND)
    if found is None:
        found = own_object(path)
        found = found if found is not None and found.keys() == {"options", "sources"} else None
    sound = (
        found is not None
        and isinstance(found.get("options"), dict)
        and isinstance(found.get("sources"), list)
    )
    return (
        found if sound and all(isinstance(row, dict) for row in (found or {})["sources"]) else None
    )


class Placed:
    """The files that one run has put into DATA."""

    def __init__(self, folder: Path, inside: Path) -> None:
        """inside: DATA/unfinished, where an earlier run of the same command may have recorded the
        files it placed."""
        self._folder = folder
        self._record = inside / RECORD
        lines = (own_bytes(self._record) or b"").decode("utf-8", "replace").splitlines()
        self._known: dict[str, set[str]] = {}
        for digest, name in (line.split(" ", 1) for line in lines if " " in line):
            self._known.setdefault(name, set()).add(digest)

    def names(self) -> list[str]:
        """The names of the files placed by this run or by an earlier one of the same command."""
        return sorted(self._known)

    def must_be_ours(self) -> None:
        """Raises UserError, before any text is read, if something has the name of one of our files
        but was not put there by this run."""
        for name in sorted(os.listdir(self._folder)):
            if _NAMES.fullmatch(name):
                self._must_be_ours(name)

    def _must_be_ours(self, name: str, *also: str) -> None:
        path = self._folder / name
        if os.path.lexists(path) and sha256(path) not in {*self._known.get(name, ()), *also}:
            raise UserError(
                f"{path} is not of this corpus; move it away, or choose another --output-dir"
            )

    def must_be_free(self, name: str) -> None:
        """Raises UserError if something has this name although this run has not given it to any
        file."""
        if os.path.lexists(self._folder / name):
            raise UserError(
                f"{self._folder / name} was put there while the corpus was prepared; move it away "
                "and run the same command again"
            )

    def put(self, part: Path, name: str, digest: str) -> None:
        """Gives the file `part`, which is complete and has this hash, its name in DATA. Raises
        UserError if another file has that name."""
        self._must_be_ours(name, digest)
        self._known.setdefault(name, set()).add(digest)
        self.write_down()
        part.replace(self._folder / name)

    def write_down(self) -> None:
        write_atomically(
            self._record,
            "".join(
                f"{digest} {name}\n"
                for name in sorted(self._known)
                for digest in sorted(self._known[name])
            ),
        )

    def must_be_there(self, names: list[str]) -> None:
        """Raises UserError if one of the files that the manifest will name has disappeared."""
        for name in names:
            if not (self._folder / name).is_file():
                raise UserError(
                    f"{self._folder / name} was removed while the corpus was prepared; run the "
                    "same command again"
                )


# ------------------------------------------------------------------ what is in `unfinished`


def must_have_no_links(inside: Path) -> None:
    """Raises UserError if a folder in `unfinished` is a link, because we would write through it."""
    for path in (inside / TOKENIZER, inside / "parts", *inside.glob("parts/*")):
        must_stay_inside(path, inside)


def clear(inside: Path) -> None:
    """Removes what we wrote into `unfinished`, the mark last, and then the folder if it is
    empty."""
    clear_tokenizer(inside)
    if not (inside / "parts").is_symlink():
        for folder in inside.glob("parts/*"):
            _remove(folder, [name for name in _listed(folder) if _PART.fullmatch(name)])
        _remove(inside / "parts", [])
    for name in _FILES:
        with suppress(IsADirectoryError, PermissionError):
            (inside / name).unlink(missing_ok=True)
    remove_temporaries(inside)
    (inside / STATE).unlink(missing_ok=True)
    with suppress(OSError):  # not empty: somebody put a file there
        inside.rmdir()


def clear_tokenizer(inside: Path) -> None:
    """Removes the tokenizer that was made in `unfinished`."""
    _remove(
        inside / TOKENIZER, [name for file in TOKENIZER_FILES for name in (file, f".{file}.part")]
    )


def _listed(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() and not folder.is_symlink() else []


def _remove(folder: Path, names: list[str]) -> None:
    """Removes these files of the folder, and the folder if it is then empty; never follows a
    link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    remove_temporaries(folder)
    for name in names:
        with suppress(IsADirectoryError, PermissionError):
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
