"""Ensures that we write only inside the folder that the user named, and never through a link in it
to somewhere else."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..console import brief
from ..errors import OutputError, UserError

HEADER = ("config.yaml", "run.json")
NUMBERED = re.compile("checkpoint-(0|[1-9][0-9]*)")
_OF_A_CHECKPOINT = ("manifest.json", "state.json")


def must_stay_inside(path: Path, top: Path) -> None:
    """Raises UserError if a folder on the way from `top` down to `path` is a link. `path` itself is
    checked; `top` is not, because the user named it, and it may be a link."""
    step = top
    for name in path.relative_to(top).parts:
        step = step / name
        if step.is_symlink():
            raise OutputError(
                f"{step} is a link, and files would be written through it",
                "put a folder in its place, or choose another --output-dir",
            )


def make_inside(path: Path, top: Path) -> None:
    """Makes the folder `path`, and those between it and `top`, which must exist. Raises UserError
    like `must_stay_inside`, and OSError if it cannot make them."""
    must_stay_inside(path, top)
    path.mkdir(parents=True, exist_ok=True)


def must_not_be_in_a_checkpoint(folder: Path) -> None:
    """Raises UserError for a checkpoint of a run and for anything inside one, because checkpoints
    come and go while the run trains."""
    real = Path(os.path.realpath(folder))
    for path in (real, *real.parents):
        if not NUMBERED.fullmatch(path.name):
            continue
        if any((path.parent / name).is_file() for name in HEADER) or all(
            (path / name).is_file() for name in _OF_A_CHECKPOINT
        ):
            what = "a checkpoint" if path == real else f"in {path}, a checkpoint"
            raise OutputError(
                f"{folder} is {what} of a run, which the run may remove",
                "choose another --output-dir",
            )


def must_be_utf8(folder: Path) -> None:
    """Raises UserError for a name in another encoding: the library that writes weights takes UTF-8
    only."""
    if "\0" in os.fspath(folder):
        raise UserError(
            f"output_dir {brief(str(folder))} holds a zero byte, which no path does: look at how "
            "it was made"
        )
    try:
        os.fspath(folder).encode("utf-8")
    except UnicodeEncodeError as e:
        raise OutputError(
            f"{folder}: this name is not UTF-8, and weights cannot be written there",
            "choose another --output-dir",
        ) from e
